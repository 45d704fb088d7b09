"""The rules of groups, G1 to G5 and R13 for coordinators, taken out of the real code one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from logboom.client.groups.assigned_queue import AssignedQueue
from logboom.client.groups.poll_timer import PollTimer
from logboom.client.groups.reconciler import Reconciler
from logboom.client.groups.trials import Trial
from logboom.metadata.allocate import allocate_topics
from logboom.metadata.groups import group_targets
from logboom.metadata.groups import offset_commands as group_offset_commands
from logboom.metadata.groups.offset_commands import release_queues
from logboom.metadata.groups.target_commands import set_target
from logboom.metadata.state import state_machine
from logboom.nodes.groups.commit_batcher import CommitBatcher
from logboom.nodes.groups.member_sessions import CoordinatedGroup, MemberSession, MemberSessions
from logboom.nodes.requests.pull_handler import PullHandler
from logboom.wire.group_commands import ReleaseQueues, SetTarget
from logboom.wire.owner_proofs import OwnerProver
from tests.sim.breaks.queues import Patch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logboom.metadata.tables.cluster_state import ClusterState
    from logboom.metadata.tables.command_outcome import CommandOutcome
    from logboom.metadata.tables.consumer_groups import (
        ConsumerGroup,
        ConsumerGroupMember,
        GroupTopic,
    )
    from logboom.nodes.groups.commit_batcher import Codes
    from logboom.nodes.turn import BrokerTurn
    from logboom.wire.actor import PeerAddress
    from logboom.wire.group_commands import QueueCommit
    from logboom.wire.group_routes import KnownGroup
    from logboom.wire.group_view import QueueKey
    from logboom.wire.messages import Pull


def releases_do_not_commit(patch: Patch) -> None:
    """G1: a release gives the queue away, and its last commit is a separate command that is
    lost."""

    def release(cluster: ClusterState, command: ReleaseQueues) -> CommandOutcome:
        bare = [msgspec.structs.replace(r, offset=0, ranges=b"") for r in command.releases]
        return release_queues(cluster, msgspec.structs.replace(command, releases=bare))

    patch.setitem(vars(state_machine)["_HANDLERS"], ReleaseQueues, release)


def queues_are_given_at_once(patch: Patch) -> None:
    """G1: a queue goes to its target without waiting for its owner."""

    def give(cluster: ClusterState, command: SetTarget) -> CommandOutcome:
        outcome = set_target(cluster, command)
        group = cluster.groups.by_name.get(command.group)
        if group is None or outcome.code:
            return outcome
        for topic in group.topics.values():
            for queue, target in enumerate(topic.targets):
                if topic.owners[queue] is not target:
                    cluster.groups.free(group, topic, queue)
                    cluster.groups.give(group, topic, queue)
        return outcome

    patch.setitem(vars(state_machine)["_HANDLERS"], SetTarget, give)


def commits_are_answered_at_once(patch: Patch) -> None:
    """G1: a commit is answered before its result is in the log."""
    add = CommitBatcher.add

    def hasty(
        self: CommitBatcher,
        group: str,
        coordinator_epoch: int,
        member: str,
        epoch: int,
        queues: Sequence[QueueCommit],
        decided: Codes,
        turn: BrokerTurn,
    ) -> None:
        decided([""] * len(queues), turn)
        add(self, group, coordinator_epoch, member, epoch, queues, lambda _c, _t: None, turn)

    patch.setattr(CommitBatcher, "add", hasty)


def drains_never_end(patch: Patch) -> None:
    """G2: a member may take any time to give a queue away."""

    def due(coordinated: CoordinatedGroup, session: MemberSession) -> float:
        return session.heard + coordinated.config.session_ms / 1000

    patch.setattr(MemberSessions, "_deadline_of", staticmethod(due))


def commits_go_beyond_the_end(patch: Patch) -> None:
    """G3: a commit is accepted whatever end its member has seen."""
    commit = group_offset_commands.commit

    def anywhere(group: ConsumerGroup, member: ConsumerGroupMember, last: QueueCommit) -> str:
        seen = max(last.seen_end, last.offset)
        return commit(group, member, msgspec.structs.replace(last, seen_end=seen))

    patch.setattr(group_offset_commands, "commit", anywhere)


def commits_go_back(patch: Patch) -> None:
    """G3: the last commit counts, even if it is lower."""
    commit = group_offset_commands.commit

    def last_wins(group: ConsumerGroup, member: ConsumerGroupMember, last: QueueCommit) -> str:
        topic = group.topics.get(last.topic_id)
        code = commit(group, member, last)
        if not code and topic is not None:
            topic.committed[last.queue] = last.offset
        return code

    patch.setattr(group_offset_commands, "commit", last_wins)


def owners_need_no_proof(patch: Patch) -> None:
    """G7: an owner epoch that may be real is kept, whoever says it."""

    def may_be(self: PullHandler, _address: PeerAddress, message: Pull, _key: QueueKey) -> bool:
        return message.owner_epoch <= self._routes.version

    patch.setattr(PullHandler, "_owns", may_be)


def owner_proofs_are_anybodys(patch: Patch) -> None:
    """G7: a proof counts whoever shows it."""
    prove = vars(OwnerProver)["_mac"].__func__

    def of_nobody(
        key: bytes, _user: str, group: str, topic_id: int, queue: int, epoch: int
    ) -> bytes:
        made: bytes = prove(key, "", group, topic_id, queue, epoch)
        return made

    patch.setattr(OwnerProver, "_mac", staticmethod(of_nobody))


def who_asks_for_nothing_stays(patch: Patch) -> None:
    """G4: a member keeps its queues, however long its program does not poll."""
    patch.setattr(PollTimer, "over", lambda _self, _now: False)


def new_coordinators_grant_nothing(patch: Patch) -> None:
    """R13: a new coordinator counts the silence before it took over."""
    begin = MemberSessions.begin

    def strict(self: MemberSessions, known: KnownGroup, now: float) -> None:
        begin(self, known, now - known.head.config.session_ms / 1000)

    patch.setattr(MemberSessions, "begin", strict)


def the_silence_is_the_members(patch: Patch) -> None:
    """R13: a coordinator that was paused, or had no lease, expires members that it could not
    hear."""
    patch.setattr(MemberSessions, "grant", lambda _self, _now: None)


def strategies_deal_the_retries(patch: Patch) -> None:
    """G5: a group's retry queue is allocated by its strategy, and by_config does not know it."""
    ours = group_targets.allocate_retries

    def by_strategy(
        cluster: ClusterState, group: ConsumerGroup, retries: GroupTopic, found: dict[QueueKey, str]
    ) -> None:
        if group.config.strategy != "by_config":
            ours(cluster, group, retries, found)

    patch.setattr(group_targets, "allocate_retries", by_strategy)


def all_topics_are_dealt_together(patch: Patch) -> None:
    """G5: the queues of all topics are allocated as if they were one topic's."""

    def together(
        strategy: str, topics: list[list[QueueKey]], members: list[str], **options: Any
    ) -> dict[str, list[QueueKey]]:
        every = [queue for queues in topics for queue in queues]
        return allocate_topics(strategy, [every], members, **options)

    patch.setattr(group_targets, "allocate_topics", together)


def ends_are_not_counted(patch: Patch) -> None:
    """G6: a queue whose owner ended without leaving continues as if it had left."""
    patch.setattr(Reconciler, "trial", lambda _self, _owned, **_: None)


def steps_are_not_small(patch: Patch) -> None:
    """G6: after the first message of such a queue, messages are handed out as usual."""
    patch.setattr(Trial, "step", lambda _self, _offset, _now: False)


def messages_are_tried_together(patch: Patch) -> None:
    """G6: the first messages of several such queues are tried at once, and all are counted."""
    patch.setattr(AssignedQueue, "tried_until", lambda _self: 0.0)
