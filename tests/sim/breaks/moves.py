"""Rules of moves, broken on purpose: `tests.sim.broken` says who must notice."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from logboom.metadata.state import (
    broker_commands,
    elections,
    leadership_commands,
    mode_commands,
    move_commands,
)
from logboom.metadata.tables import replica_moves
from logboom.metadata.tables.cluster_state import ClusterState, Queue, needed_copies
from logboom.metadata.tables.replica_set import Ids, ReplicaSet, intern_replica_set
from logboom.nodes.log.log_state import LogState
from logboom.nodes.replica.replica_table import ReplicaTable
from logboom.nodes.replica_roles import ReplicaRoles
from logboom.wire.view import TopicConfig
from tests.sim.breaks.queues import Patch

if TYPE_CHECKING:
    from logboom.metadata.state.move_commands import MoveRefusal
    from logboom.nodes.replica.replica import Replica
    from logboom.nodes.turn import BrokerTurn
    from logboom.wire.view import TopicView


def who_is_added_may_be_elected(patch: Patch) -> None:
    """M1: a replica is eligible from the moment that it is added."""
    begin = replica_moves.begin_move

    def begun(
        s: ReplicaSet, target: Ids, need: int, alive: Collection[str], last: Collection[str] = ()
    ) -> ReplicaSet | str:
        after = begin(s, target, need, alive, last)
        if isinstance(after, str):
            return after
        return intern_replica_set(
            after.replicas,
            after.leader,
            after.isr,
            {*after.eligible, *after.adding} - set(after.isr),
            after.suspect,
            after.damaged,
            after.lost,
            after.adding,
            after.removing,
        )

    patch.setattr(move_commands, "begin_move", begun)


def moves_end_with_the_first(patch: Patch) -> None:
    """M2: a move ends as soon as one of its target is in sync."""
    finish = replica_moves.finish_move

    def finished(s: ReplicaSet, alive: Collection[str], last: Collection[str] = ()) -> ReplicaSet:
        there = [r for r in s.target if r in s.isr]
        leader = s.leader if s.leader in there else next((r for r in there if r in alive), None)
        if not s.moving or leader is None:
            return finish(s, alive, last)
        return intern_replica_set(s.target, leader, there)

    patch.setattr(elections, "finish_move", finished)


def moves_end_some_other_time(patch: Patch) -> None:
    """M2: the ISR change that brings in the last of the target does not end the move."""

    def unfinished(
        s: ReplicaSet, _alive: Collection[str], _last: Collection[str] = ()
    ) -> ReplicaSet:
        return s

    patch.setattr(elections, "finish_move", unfinished)
    patch.setattr(leadership_commands, "finish_move", unfinished)


def leaders_stay_outside(patch: Patch) -> None:
    """M2: a leader that is not in the target leads on when the move ends."""
    finish = replica_moves.finish_move

    def finished(s: ReplicaSet, alive: Collection[str], last: Collection[str] = ()) -> ReplicaSet:
        after = finish(s, alive, last)
        if after is s:
            return s
        return intern_replica_set(after.replicas, s.leader, after.isr)

    patch.setattr(elections, "finish_move", finished)


def who_is_added_is_needed(patch: Patch) -> None:
    """M3: the copies that are needed are counted with those that are being added."""

    def need(self: Queue) -> int:
        return needed_copies(self.topic.config, len(self.standing.replicas))

    patch.setattr(Queue, "need", property(need))


def who_leaves_is_not_needed(patch: Patch) -> None:
    """M3: the copies that are needed are those of the target already while a move is under way."""

    def need(self: Queue) -> int:
        return needed_copies(self.topic.config, len(self.standing.target))

    patch.setattr(Queue, "need", property(need))


def zones_are_not_counted(patch: Patch) -> None:
    """M3: a move may leave all replicas in one zone."""
    patch.setattr(move_commands, "_zones", lambda _cluster, _brokers: set())


def the_removed_are_needed(patch: Patch) -> None:
    """M3: who is eligible is decided by the copies that were needed with the removed broker."""
    give_up = replica_moves.give_up

    def given_up(
        s: ReplicaSet, broker: str, alive: Collection[str], _need: int
    ) -> tuple[ReplicaSet, bool] | None:
        return give_up(s, broker, alive, needed_copies(TopicConfig(), len(s.original)))

    patch.setattr(broker_commands, "give_up", given_up)


def a_lost_destination_is_not_made_up_for(patch: Patch) -> None:
    """M3: what was to be removed still goes, although a destination was removed with its broker."""
    give_up = replica_moves.give_up

    def given_up(
        s: ReplicaSet, broker: str, alive: Collection[str], need: int
    ) -> tuple[ReplicaSet, bool] | None:
        left = give_up(s, broker, alive, need)
        if left is None:
            return None
        after, may_lose = left
        going = [each for each in s.removing if each != broker]
        return (
            intern_replica_set(
                after.replicas,
                after.leader,
                after.isr,
                after.eligible,
                after.suspect,
                after.damaged,
                after.lost,
                after.adding,
                going if len(going) < len(after.replicas) else (),
            ),
            may_lose,
        )

    patch.setattr(broker_commands, "give_up", given_up)


def older_metadata_deletes(patch: Patch) -> None:
    """M4: a broker deletes what is not listed in metadata older than its registration."""
    patch.setattr(ReplicaRoles, "_may_follow", property(lambda _self: True))


def who_is_to_leave_deletes_at_once(patch: Patch) -> None:
    """M4: a broker deletes its replica while the move that takes it away is under way."""
    apply = vars(ReplicaRoles)["_apply_topic"]

    def applied(self: ReplicaRoles, topic: TopicView, part: range, turn: BrokerTurn) -> None:
        queues = [
            msgspec.structs.replace(
                view, replicas=[name for name in view.replicas if name not in view.removing]
            )
            for view in topic.queues
        ]
        apply(self, msgspec.structs.replace(topic, queues=queues), part, turn)

    patch.setattr(ReplicaRoles, "_apply_topic", applied)


def who_is_added_back_goes_on(patch: Patch) -> None:
    """M4: a replica that is added back within the grace keeps what it holds."""

    def delist(self: ReplicaRoles, replica: Replica, turn: BrokerTurn) -> None:
        vars(ReplicaRoles)["_none"](self, replica, turn)

    patch.setattr(ReplicaRoles, "_delist", delist)


def the_former_store_is_read(patch: Patch) -> None:
    """M4: a replica that begins anew reads what is left of the former one."""

    def create(self: ReplicaTable, topic_id: int, queue: int, topic: str) -> Replica:
        replica: Replica = vars(ReplicaTable)["_open"](self, topic_id, queue, LogState(), [], None)
        self.name(replica, topic)
        return replica

    patch.setattr(ReplicaTable, "create", create)


def adding_changes_no_epoch(patch: Patch) -> None:
    """M4: a replica is added within the leader's epoch, in which its former positions count."""
    place = ClusterState.place

    def placed(
        cluster: ClusterState,
        queue: Queue,
        after: ReplicaSet,
        *,
        anew: bool = False,
        lacks: bool | None = None,
    ) -> None:
        place(cluster, queue, after, anew=anew and not after.adding, lacks=lacks)

    patch.setattr(ClusterState, "place", placed)


def cancels_leave_anybody(patch: Patch) -> None:
    """M5: a move is cancelled although none, or too few, of the others are in sync."""

    def cancelled(
        s: ReplicaSet, _need: int, _alive: Collection[str], _last: Collection[str] = ()
    ) -> ReplicaSet:
        isr = [r for r in s.isr if r in s.original]
        leader = s.leader if s.leader in isr else None
        return intern_replica_set(s.original, leader, isr, s.eligible, s.suspect, s.damaged, s.lost)

    patch.setattr(move_commands, "cancel_move", cancelled)


def who_is_drained_leads_on(patch: Patch) -> None:
    """M6: a broker that is not active keeps its leaderships."""

    def kept(s: ReplicaSet, *_rest: object) -> ReplicaSet:
        return s

    patch.setattr(elections, "hand_over", kept)
    patch.setattr(mode_commands, "hand_over", kept)


def who_is_drained_gets_replicas(patch: Patch) -> None:
    """M6: a move may add a broker that is not active."""
    refuse = vars(move_commands)["_refuse_target"]

    def refused(
        cluster: ClusterState, queue: Queue, target: Ids, *, force: bool
    ) -> MoveRefusal | None:
        modes, cluster.modes = cluster.modes, {}
        refusal: MoveRefusal | None = refuse(cluster, queue, target, force=force)
        cluster.modes = modes
        return refusal

    patch.setattr(move_commands, "_refuse_target", refused)
