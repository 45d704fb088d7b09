"""The rules Q1 to Q9 taken out of the real code, one by one: each function breaks one of them.

They replace a method or a function for as long as the patch lives. `broken.py` has the table: who
must notice, by which promise, within how many seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from logboom.metadata.state import broker_commands, elections, leadership_commands
from logboom.metadata.tables import replica_set
from logboom.metadata.tables.cluster_state import BrokerRegistration as KnownBroker
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.nodes import replica_roles
from logboom.nodes.log.keys import Position
from logboom.nodes.log.producer_windows import ProducerWindows
from logboom.nodes.replica import leadership, replica
from logboom.nodes.replication import replicate_handler
from logboom.nodes.replication.replica_fetcher import ReplicaFetcher, ReplicaFetchers
from logboom.nodes.replication.replicate_handler import FetchSession, ReplicateHandler, SessionQueue
from logboom.nodes.requests import produce_handler, pull_handler
from logboom.wire.actor import PeerAddress, Synced
from logboom.wire.batch import validate_batch
from tests.sim.world.process import Process

if TYPE_CHECKING:
    from logboom.nodes.log.keys import Position as At
    from logboom.nodes.log.storage import WriteSet
    from logboom.nodes.log.tail_cache import TailCache
    from logboom.nodes.replica.leadership import Leadership, PendingProduce
    from logboom.nodes.replica.replica import Replica
    from logboom.nodes.turn import BrokerTurn
    from logboom.wire.messages import Acks, FollowerPosition, Pull, QueueAnswer

Patch: TypeAlias = pytest.MonkeyPatch


def acks_before_the_sync(patch: Patch) -> None:
    """Q1: a broker gets `Synced` for writes that are only in memory."""

    def done(self: Process, token: int, _mark: int) -> None:
        if self.running:
            vars(self)["_syncing"] = False
            self.deliver(Synced(token))

    patch.setattr(Process, "_sync_done", done)


def a_leader_counts_itself_alone(patch: Patch) -> None:
    """Q1: the HW is the leader's synced end, whatever the followers have."""

    def high_watermark(_self: Leadership, synced: At) -> At:
        return synced

    patch.setattr(leadership.Leadership, "high_watermark", high_watermark)


def the_leaders_disk_does_not_count(patch: Patch) -> None:
    """Q1: the HW is the followers' smallest synced end, whatever the leader has."""
    counted = leadership.Leadership.high_watermark

    def high_watermark(self: Leadership, synced: At) -> At | None:
        return counted(self, synced if self.isr == (self.me,) else Position(1 << 60))

    patch.setattr(leadership.Leadership, "high_watermark", high_watermark)


def leads_by_old_metadata(patch: Patch) -> None:
    """Q2: a new process acts on leaderships that were given before its start."""
    patch.setattr(replica_roles.ReplicaRoles, "_may_lead", property(lambda self: not self.closed))


def a_start_ends_no_leadership(patch: Patch) -> None:
    """Q2: registering leaves leaderships and their epochs as they were."""

    def restart(
        cluster: ClusterState,
        broker: KnownBroker,
        change: broker_commands.Change,
        _former: str,
        *,
        suspect: bool,
    ) -> None:
        del suspect
        for queue in broker.queues:
            after = change(queue.standing, queue.need)
            if after.leader is None:
                after = elections.elected(cluster, queue, after)
            cluster.place(queue, after)

    patch.setattr(broker_commands, "_restart", restart)


def another_store_changes_nothing(patch: Patch) -> None:
    """Q3: a broker that comes back with an empty disk stays in its ISRs."""

    def stay(s: replica_set.ReplicaSet, _need: int, broker: str) -> replica_set.ReplicaSet:
        return s

    patch.setattr(broker_commands, "_lose_store", stay)


def positions_count_uncompared(patch: Patch) -> None:
    """Q4: a follower's position counts although its history differs, and it is truncated only
    then."""
    compare = vars(ReplicateHandler)["_compare"]

    def counted(
        self: ReplicateHandler, follower: FetchSession, fetch: SessionQueue, turn: BrokerTurn
    ) -> None:
        compare(self, follower, fetch, turn)
        asked = fetch.asked
        known = vars(self)["_queues"].replicas.get((asked.topic_id, asked.queue))
        led = known.leading if known is not None else None
        if led is not None and asked.leader_epoch == led.epoch:
            at = Position(asked.offset, asked.side)
            led.report(follower.broker, follower.instance_epoch, at, known.end, turn.mono)
            vars(self)["_on_position"](known, follower.broker)

    patch.setattr(ReplicateHandler, "_compare", counted)


def nothing_is_ever_cut(patch: Patch) -> None:
    """Q4: a position counts as equal if the leader's log reaches it, whatever the epochs."""
    difference = replicate_handler.compare_position

    def none(known: Replica, asked: FollowerPosition) -> QueueAnswer | None:
        at = Position(asked.offset, asked.side)
        if known.start <= at.offset and at <= known.end:
            return None
        return difference(known, asked)

    patch.setattr(replicate_handler, "compare_position", none)


def late_answers_count(patch: Patch) -> None:
    """Q5, half of it: the answer to a request that was given up is still taken."""

    def forget(_self: ReplicaFetchers, fetcher: ReplicaFetcher) -> None:
        fetcher.asked = None

    patch.setattr(ReplicaFetchers, "_abandon", forget)


def anything_is_appended(patch: Patch) -> None:
    """Q5, the other half: an entry is appended wherever the log ends."""

    def append(self: Replica, entry: bytes, writes: WriteSet, cache: TailCache) -> None:
        head = validate_batch(entry)
        side = self.end.side + 1 if head.is_control else 0
        after = Position(self.end.offset + head.count, side)
        vars(replica.Replica)["_append"](self, entry, head, after, writes, cache)

    patch.setattr(replica.Replica, "append_entry", append)


def late_answers_are_appended(patch: Patch) -> None:
    """Q5: the answer to an abandoned request is appended, wherever the log ends now."""
    late_answers_count(patch)
    anything_is_appended(patch)


def who_is_asked_for_does_not_count(patch: Patch) -> None:
    """Q6: a follower counts for the HW only once its addition to the ISR is known to be
    committed."""

    def none(change: leadership.PendingIsrChange, _added: Sequence[str], version: int) -> None:
        change.added, change.version, change.resolved_at = (), version, None

    patch.setattr(leadership.PendingIsrChange, "__init__", none)


def older_processes_join(patch: Patch) -> None:
    """Q6: an ISR change may name an instance epoch that has ended."""

    def find(cluster: ClusterState, broker_id: str, _epoch: int) -> KnownBroker | None:
        return cluster.brokers.get(broker_id)

    patch.setattr(leadership_commands, "find_registration", find)


def one_copy_is_enough(patch: Patch) -> None:
    """Q7: the HW moves however small the ISR is."""
    patch.setattr(leadership, "required_in_sync", lambda _config, _replicas: 1)


def nobody_stays_eligible(patch: Patch) -> None:
    """Q7: a replica that leaves a small ISR is no longer eligible."""
    set_isr = replica_set.set_isr

    def forget(s: replica_set.ReplicaSet, isr: Sequence[str], _need: int) -> replica_set.ReplicaSet:
        return set_isr(s, isr, 0)

    patch.setattr(replica_set, "set_isr", forget)
    patch.setattr(leadership_commands, "set_isr", forget)


def beyond_the_hw_is_illegal(patch: Patch) -> None:
    """Q8: a pull beyond the HW that the node knows is corrected to that HW."""
    serve = vars(pull_handler.PullHandler)["_serve"]

    def corrected(
        self: pull_handler.PullHandler,
        address: PeerAddress,
        message: Pull,
        known: Replica,
        turn: BrokerTurn,
    ) -> bool:
        if message.offset > known.hw.offset:
            answer = vars(pull_handler.PullHandler)["_answer"]
            answer(address, message, known, "OFFSET_ILLEGAL", known.hw.offset, turn)
            return True
        done: bool = serve(self, address, message, known, turn)
        return done

    patch.setattr(pull_handler.PullHandler, "_serve", corrected)


def ends_told_too_early(patch: Patch) -> None:
    """Q8: a new leader answers its HW as the end before it has reached its end at election."""
    ended = vars(pull_handler.PullHandler)["_ended"]

    def early(self: pull_handler.PullHandler, *asked: object) -> Replica:
        with pytest.MonkeyPatch.context() as now:
            for led in vars(self)["_queues"].replicas.values():
                if led.leading is not None:
                    now.setattr(led.leading, "election_end", Position(0))
            found: Replica = ended(self, *asked)
        return found

    patch.setattr(pull_handler.PullHandler, "_ended", early)


def followers_hear_no_hw(patch: Patch) -> None:
    """Q8: a move of the HW wakes no held REPLICATE."""
    patch.setattr(ReplicateHandler, "hw_moved", lambda _self, _replica, _now: None)


def what_has_no_room_is_forgotten(patch: Patch) -> None:
    """Q8: a queue that had no room in an answer is not answered until it has something new."""
    told = vars(ReplicateHandler)["_told"]

    def forget(self: ReplicateHandler, follower: FetchSession, answer: QueueAnswer) -> None:
        told(self, follower, answer)
        follower.news.pop((answer.topic_id, answer.queue), None)

    patch.setattr(ReplicateHandler, "_told", forget)


def the_hw_is_enough_to_join(patch: Patch) -> None:
    """Q6: a follower that has reached the HW joins, however far behind it is."""
    may_join = leadership.Leadership.may_join

    def hasty(
        self: Leadership, broker: str, hw: At, end: At, now: float, _s: float, *rest: Any
    ) -> bool:
        return may_join(self, broker, hw, end, now, float("inf"), *rest)

    patch.setattr(leadership.Leadership, "may_join", hasty)


def producers_without_windows(patch: Patch) -> None:
    """Q9: no batch is remembered, so a retry is appended again."""
    patch.setattr(ProducerWindows, "find", lambda _self, _head: None)


def duplicates_answered_at_once(patch: Patch) -> None:
    """Q9: a duplicate is answered although its original is not as safe as requested."""
    wait = vars(produce_handler.ProduceHandler)["wait"]

    def answered(
        self: produce_handler.ProduceHandler,
        known: Replica,
        led: Leadership,
        waiting: PendingProduce,
        acks: Acks,
        turn: BrokerTurn,
    ) -> None:
        if waiting.number and waiting.after < known.end:
            vars(produce_handler)["_answer"](waiting, turn)
        else:
            wait(self, known, led, waiting, acks, turn)

    patch.setattr(produce_handler.ProduceHandler, "wait", answered)
