"""Looks at every change of a queue's replicas as name servers apply it, and at what brokers delete.

It knows the rules of moves (SAFETY M1 to M6) as they are written down, and none of the functions that
keep them: it sees a replica set before and after, and the command that brought the change about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables.cluster_state import ClusterState, Queue, needed_copies
from logboom.nodes.replica_roles import ReplicaRoles
from logboom.wire.commands import AlterIsr, ElectLeader, RemoveBroker
from logboom.wire.operation_commands import CancelReassign, Reassign
from tests.sim.world.trace import BrokenProperty

if TYPE_CHECKING:
    import pytest

    from logboom.metadata.raft.log_commands import LogEntry
    from logboom.metadata.tables.command_outcome import CommandOutcome
    from logboom.metadata.tables.replica_set import ReplicaSet
    from logboom.nodes.replica.replica import Replica
    from logboom.nodes.turn import BrokerTurn
    from logboom.wire.base import Command
    from tests.sim.world.world import World

Step: TypeAlias = Literal["began", "joined", "ended", "cancelled"]
FORMED: Final = "a replica set is well formed"
COUNTED: Final = "who is added counts for nothing before it is in sync"
LEAVES: Final = "replicas leave once all of the target are in sync"
ENDS: Final = "a move ends with the last of its target"
COPIES: Final = "moves leave as many copies as are needed"
ZONES: Final = "moves leave as many zones as there were"
MODES: Final = "who is not active gets and leads nothing where another can"
DELETED: Final = "nobody deletes what counts"
RESETS: Final = "who is added back begins in a new epoch"


def _sound(s: ReplicaSet, names: Iterable[str]) -> set[str]:
    return set(names) - {*s.suspect, *s.damaged, *s.lost}


class MoveWatch:
    """What the nodes of one world did about moves."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._command: Command | None = None
        self._touched: dict[Queue, int] = {}
        self._seen = -1
        """Newest version that a name server has reached."""
        self._broken: BrokenProperty | None = None
        self.on_step: Callable[[Step, ReplicaSet], None] = lambda _step, _standing: None
        """Called with a step of a move, and the replica set at that step or just before its end."""
        self._steps: list[tuple[Queue, Step, ReplicaSet]] = []

    def look_on(self, patch: pytest.MonkeyPatch) -> None:
        """Follow all changes from now on."""
        apply = vars(StateMachine)["_apply"]
        place, add_queue, drop = (
            ClusterState.place,
            ClusterState.add_queue,
            vars(ReplicaRoles)["_drop"],
        )

        def applied(state: StateMachine, entry: LogEntry, *words: Any) -> CommandOutcome:
            self._command, self._touched, self._steps = entry.command, {}, []
            outcome: CommandOutcome = apply(state, entry, *words)
            self._ended(state.cluster)
            self._command = None
            return outcome

        def placed(
            cluster: ClusterState,
            queue: Queue,
            after: ReplicaSet,
            *,
            anew: bool = False,
            lacks: bool | None = None,
        ) -> None:
            before, epoch = queue.standing, queue.epoch
            place(cluster, queue, after, anew=anew, lacks=lacks)
            self._touched.setdefault(queue, epoch)
            if after is not before:
                self._placed(cluster, queue, before, after)

        def added(cluster: ClusterState, queue: Queue) -> None:
            add_queue(cluster, queue)
            if self._command is not None:
                self._receive(cluster, queue, queue.standing.replicas)

        def dropped(roles: ReplicaRoles, replica: Replica, turn: BrokerTurn) -> None:
            self._dropped(vars(roles)["_me"], replica)
            drop(roles, replica, turn)

        patch.setattr(StateMachine, "_apply", applied)
        patch.setattr(ClusterState, "place", placed)
        patch.setattr(ClusterState, "add_queue", added)
        patch.setattr(ReplicaRoles, "_drop", dropped)
        self._world.on_name_server_turn = self.judge

    def judge(self) -> None:
        """Raises `BrokenProperty` if a command broke a rule: not within it, where errors are taken."""
        if self._broken is not None:
            raise self._broken

    def _break(self, name: str, queue: Queue, detail: str) -> None:
        if self._broken is None:
            what = type(self._command).__name__
            self._broken = BrokenProperty(
                name, f"{queue.topic.name}/{queue.index} by {what}: {detail}"
            )

    # -- one change of one queue ------------------------------------------------------------

    def _placed(
        self, cluster: ClusterState, queue: Queue, before: ReplicaSet, after: ReplicaSet
    ) -> None:
        command, told = self._command, f"{before.key()} became {after.key()}"
        replicas = set(after.replicas)
        if not (
            after.isr
            and set(after.isr) <= replicas
            and set(after.eligible) <= replicas - set(after.isr)
            and (after.leader is None or after.leader in after.isr)
            and {*after.adding, *after.removing} <= replicas
            and not set(after.adding) & set(after.removing)
            and after.target
            and after.original
        ):
            self._break(FORMED, queue, told)
        if isinstance(command, RemoveBroker):
            # With accepted loss anything that is left may lead.
            return
        self._count(queue, before, after, told)
        gone = set(before.original) - replicas
        if gone and not (replicas <= set(after.isr) and _sound(after, replicas) == replicas):
            self._break(LEAVES, queue, told)
        if isinstance(command, Reassign | CancelReassign) and not gone:
            need = needed_copies(queue.topic.config, len(before.original))
            had = _sound(before, (*before.isr, *before.eligible))
            has = _sound(after, (*after.isr, *after.eligible))
            if len(has) < min(need, len(had)):
                self._break(COPIES, queue, told)
        if isinstance(command, Reassign):
            self._receive(cluster, queue, replicas - set(before.replicas))
            zones = {cluster.brokers[name].zone for name in before.original}
            left = {cluster.brokers[name].zone for name in after.target}
            if not command.force and len(left) < min(len(zones), len(after.target)):
                self._break(ZONES, queue, told)
        elif replicas - set(before.replicas):
            self._break(FORMED, queue, told)
        self._note(queue, before, after)

    def _count(self, queue: Queue, before: ReplicaSet, after: ReplicaSet, told: str) -> None:
        """Who is new among those that hold everything was asked for by the leader, or is the best of
        the suspects (Q13)."""
        new = {*after.isr, *after.eligible} - {*before.isr, *before.eligible}
        command = self._command
        if isinstance(command, AlterIsr):
            asked = [change for change in command.changes if change.queue == queue.index]
            new -= {
                name
                for change in asked
                if change.topic_id == queue.topic.id
                for name, _ in change.isr
            }
        elif not isinstance(command, ElectLeader):
            new -= set(before.suspect) - set(before.uncounted)
        if new:
            self._break(COUNTED, queue, told)

    def _receive(self, cluster: ClusterState, queue: Queue, names: Iterable[str]) -> None:
        for name in sorted(names):
            if name in cluster.modes or name not in cluster.alive:
                mode = cluster.modes.get(name, "active")
                self._break(MODES, queue, f"{name} gets a replica, {mode}, alive: {cluster.alive}")

    def _note(self, queue: Queue, before: ReplicaSet, after: ReplicaSet) -> None:
        """Remember the step that this is, for those who strike at it."""
        if set(after.adding) - set(before.adding):
            self._steps.append((queue, "began", after))
        elif set(after.adding) & (set(after.isr) - set(before.isr)):
            self._steps.append((queue, "joined", after))
        if before.moving and not after.moving:
            cancelled = isinstance(self._command, CancelReassign)
            self._steps.append((queue, "cancelled" if cancelled else "ended", before))

    # -- the end of a command ---------------------------------------------------------------

    def _ended(self, cluster: ClusterState) -> None:
        for queue, epoch in self._touched.items():
            if cluster.topics_by_id.get(queue.topic.id) is not queue.topic:
                continue
            s = queue.standing
            target = set(s.target)
            could = s.leader in cluster.alive if s.leader in target else target & cluster.alive
            if s.moving and could and target <= set(s.isr) and _sound(s, target) == target:
                self._break(ENDS, queue, f"{s.key()} goes on")
            began = any(of is queue and step == "began" for of, step, _ in self._steps)
            if began and s.leader is not None and queue.epoch == epoch:
                self._break(RESETS, queue, f"{s.key()} in epoch {epoch}")
        for topic in cluster.topics.values() if cluster.modes else ():
            for queue in topic.queues:
                s = queue.standing
                if s.leader not in cluster.modes:
                    continue
                better = _sound(s, s.isr) & cluster.alive - cluster.full - cluster.modes.keys()
                if better:
                    self._break(MODES, queue, f"{s.leader} leads, not {sorted(better)}")
        if cluster.version > self._seen:
            self._seen = cluster.version
            for _, step, standing in self._steps:
                self._world.trace.count(f"moves {step}")
                self.on_step(step, standing)

    # -- brokers ----------------------------------------------------------------------------

    def _dropped(self, broker: str, replica: Replica) -> None:
        """A broker deletes a replica: none that the newest state counts on."""
        standing = self._world.standings.get(replica.key)
        self._world.trace.count("replicas deleted")
        if standing is None or broker in standing.lost:
            return
        if broker in standing.isr or broker in standing.eligible:
            raise BrokenProperty(
                DELETED,
                f"{broker} deletes {replica.topic}/{replica.queue}, which is {standing.key()}",
            )
