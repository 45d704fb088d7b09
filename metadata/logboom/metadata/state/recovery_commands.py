"""The command of a survivor that goes on alone, and those that settle what its group has lost (R15).

The survivor's log may lack any number of the newest entries, and what they brought about may be on the
brokers' disks and in the hands of clients. So everything that counts up continues above what any lost
entry can have reached, every broker registers again, and no queue has a leader before the brokers have
told how far their logs go.
"""

from __future__ import annotations

from typing import Final

from logboom.metadata.raft.log_commands import GoOnAlone
from logboom.metadata.state.broker_commands import depart
from logboom.metadata.tables.cluster_state import VERSIONS, ClusterState, Queue
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused
from logboom.metadata.tables.consumer_groups import EPOCHS
from logboom.metadata.tables.replica_set import doubt_all
from logboom.wire.commands import DiscardLostTopic

PRODUCER_IDS: Final = 1 << 44
"""Producer ids that a recovery passes over."""
NUMBERS: Final = 1 << 32
"""Other numbers that a recovery passes over: instance epochs, ids of groups, versions of queues."""
TOPIC_IDS: Final = 1 << 26
"""Topic ids that a recovery passes over. They have 32 bits."""
LAST_TOPIC_ID: Final = (1 << 32) - 2


def go_on_alone(cluster: ClusterState, _command: GoOnAlone) -> CommandOutcome:
    """Let everything begin anew that lost entries may have changed."""
    cluster.recoveries += 1
    cluster.skip_to(cluster.version + VERSIONS)
    first = cluster.next_topic_id
    # Half of what is left, so that there is always something left.
    cluster.next_topic_id += min(TOPIC_IDS, (LAST_TOPIC_ID - first) // 2)
    cluster.lost_topic_ids.append((first, cluster.next_topic_id))
    cluster.next_producer_id += PRODUCER_IDS
    cluster.next_instance_epoch += NUMBERS
    cluster.groups.next_id += NUMBERS
    cluster.tails.clear()
    # Somebody else may have led since: which log counts is for an operator to say.
    cluster.lost_stores.clear()
    for topic in cluster.topics.values():
        for queue in topic.queues:
            _doubt(cluster, queue)
    for name in sorted(cluster.alive):
        depart(cluster, cluster.brokers[name])
    cluster.unheard = dict.fromkeys(sorted(cluster.brokers))
    _renew_groups(cluster)
    for app in cluster.transactions.apps.values():
        # Another producer may have taken it over.
        app.epoch = max(app.epoch, cluster.first_epoch)
    # Whoever knows what was lost has to hear everything.
    cluster.topic_changes.floor = cluster.version
    return DONE


def discard_lost_topic(cluster: ClusterState, command: DiscardLostTopic) -> CommandOutcome:
    """Give up a topic that was lost: to brokers it is deleted from now on."""
    lost, gone = cluster.lost_topic_ids, command.topic_id
    for place, (first, end) in enumerate(lost):
        if first <= gone < end:
            rest = [(first, gone), (gone + 1, end)]
            lost[place : place + 1] = [each for each in rest if each[0] < each[1]]
            cluster.bump()
            return DONE
    return refused(
        "UNKNOWN_TOPIC",
        f"topic {gone} is none that the name servers have lost: `logboom doctor` names their ids",
    )


def _doubt(cluster: ClusterState, queue: Queue) -> None:
    """Let a queue have no leader before its replicas have told how far they go."""
    before = queue.standing
    copies, need = len(before.replicas), queue.need
    cluster.place(queue, doubt_all(before))
    queue.epoch = max(queue.epoch + 1, cluster.first_epoch)
    queue.version += NUMBERS
    if not before.lost:
        # Whatever was committed is on `need` of them. If fewer were in sync, or they were being moved,
        # it may be on a single one.
        few = before.moving or len({*before.isr, *before.eligible}) < need
        cluster.doubted[queue.topic.id, queue.index] = copies if few else copies - need + 1
    cluster.touch_topic(queue.topic)


def _renew_groups(cluster: ClusterState) -> None:
    cluster.groups.first_epoch = cluster.recoveries * EPOCHS
    for _, group in sorted(cluster.groups.by_name.items()):
        group.coordinator_epoch += EPOCHS
        group.group_epoch += EPOCHS
        group.target_epoch += EPOCHS
        if group.subscription_version:
            group.subscription_version += EPOCHS
            for member in group.members.values():
                if member.subscription_version:
                    member.subscription_version += EPOCHS
        cluster.groups.touch(group, group.members.values())
