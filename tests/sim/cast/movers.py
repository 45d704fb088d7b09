"""An operator who moves replicas and lets brokers come and go while faults strike, as a guest.

He moves queues to other replicas, one or two at a time, replaces targets, cancels, changes the number of
replicas, sets modes, adds brokers, drains some and removes them, and removes one that is dead. The
planner of the Raft leader drains and repairs, and so does he. Nodes are struck at the steps of moves. When the faults
have ended, every move must end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from logboom.wire.actor import Call
from logboom.wire.commands import (
    AlterTopic,
    AnyCommand,
    CommandResult,
    ElectLeader,
    RemoveBroker,
)
from logboom.wire.hello import Identity
from logboom.wire.operation_commands import (
    AlterSettings,
    CancelReassign,
    QueueMove,
    Reassign,
    SetBrokerMode,
)
from tests.sim.cast.wire_client import WireClient
from tests.sim.judges.move_watch import MoveWatch, Step
from tests.sim.world.world import CLUSTER_KEY

if TYPE_CHECKING:
    from logboom.metadata.tables.cluster_state import ClusterState, Queue
    from logboom.metadata.tables.replica_set import ReplicaSet
    from tests.sim.faults.disks import DiskFaults
    from tests.sim.faults.hand import Hand
    from tests.sim.world.world import World

NAME: Final = "mover-1"
GAPS_S: Final = (0.3, 0.6, 1.2)
"""Mean seconds between two acts; each seed has one of these."""
STRUCK: Final = (0.0, 0.1, 0.25, 0.5)
"""Part of the steps of moves at which a node is struck; each seed has one of these."""
AT_ONCE_S: Final = 0.15
"""Seconds after a step, at most, until the blow falls."""
LOOK_S: Final = 0.5
"""Seconds between two looks whether something has come true."""
PATIENCE_S: Final = 10.0
"""After so long he does without."""
LEAST_ACTIVE: Final = 3
MOST_BROKERS: Final = 6
MOST_REPLICAS: Final = 4
WEIGHTS: Final = {
    "move": 10,
    "cancel": 3,
    "replicas": 2,
    "mode": 2,
    "elect": 1,
    "join": 0.7,
    "depart": 0.8,
    "die": 0.8,
}


class Moves:
    """The operator, as a scenario's guest."""

    def __init__(
        self,
        world: World,
        endpoints: Sequence[str],
        rng: random.Random,
        hand: Hand,
        disks: DiskFaults,
    ) -> None:
        self._world = world
        self._rng = rng
        self._hand = hand
        self._disks = disks
        disks.only_of_the_dead = True
        self._gap_s = rng.choice(GAPS_S)
        self._struck = rng.choice(STRUCK)
        self._replace_after_s = rng.choice((0, 1.5, 3, 8))
        self._working = False
        self._resting = False
        self._waiting = 0
        """Proposals without an answer."""
        self._leaving: str | None = None
        """The broker that is to be removed."""
        self._client = WireClient(NAME, endpoints, random.Random(rng.random()))
        self._client.identity = Identity(NAME, cluster_key=CLUSTER_KEY)
        world.add(NAME, "client", {}, lambda: self._client)
        self.watch = MoveWatch(world)
        self.watch.on_step = self._step

    # -- a guest ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to act."""
        self._working = True
        values: dict[str, str | None] = {"replace_after_s": str(self._replace_after_s)}
        if self._rng.random() < 0.7:
            values["move_bytes_per_s"] = str(self._rng.choice((500, 2_000, 20_000)))
        if self._rng.random() < 0.3:
            values["balance_mode"] = "continuous"
        self._propose(AlterSettings("", values, 1))
        self._act()

    def rest(self) -> None:
        """Begin nothing new; what is under way comes to its end."""
        self._working = False
        self._resting = True
        self._propose(AlterSettings("", {"move_bytes_per_s": None, "replace_after_s": "2"}, 1))
        self._tidy()

    def settled(self) -> bool:
        """No move is under way, and nobody who is gone is registered any more."""
        return not self.why_not()

    def why_not(self) -> str:
        """What `settled` waits for."""
        cluster = self._world.newest_state()
        if cluster is None or self._leaving is not None or self._waiting:
            return f"leaving {self._leaving}, {self._waiting} proposals of {NAME}"
        moving = [
            f"{queue.topic.name}/{queue.index} {queue.standing.key()}"
            for queue in self._queues(cluster)
            if queue.standing.moving or len(queue.standing.replicas) != queue.topic.replicas
        ]
        gone = [name for name in cluster.brokers if self._world.machines[name].retired]
        return f"moving {moving}, gone {gone}" if moving or gone else ""

    def compare(self) -> None:
        """Nothing: the watch has judged every step."""
        self.watch.judge()

    # -- what he does -----------------------------------------------------------------------

    def _queues(self, cluster: ClusterState) -> list[Queue]:
        return [queue for topic in cluster.topics.values() for queue in topic.queues]

    def _active(self, cluster: ClusterState) -> list[str]:
        """Brokers that may get replicas, alive or not."""
        machines = self._world.machines
        return [
            name
            for name in sorted(cluster.brokers)
            if name not in cluster.modes and not machines[name].retired and not machines[name].idle
        ]

    def _act(self) -> None:
        if not self._working:
            return
        self._hand.later(self._rng.expovariate(1 / self._gap_s), self._act)
        cluster = self._world.newest_state()
        if cluster is None or not cluster.topics:
            return
        (act,) = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        match act:
            case "move":
                self._move(cluster)
            case "cancel":
                self._cancel(cluster)
            case "replicas":
                self._alter(cluster)
            case "mode":
                self._set_mode(cluster)
            case "elect":
                queue = self._rng.choice(self._queues(cluster))
                prefer = self._rng.choice([None, *queue.standing.isr])
                if queue.standing.leader is not None:
                    self._propose(ElectLeader(queue.topic.name, queue.index, prefer, 1))
            case "join":
                if len(self._world.nodes("broker")) < MOST_BROKERS:
                    name = self._world.join_broker()
                    self._world.trace.count("brokers added")
                    self._world.boot_later(name, self._rng.uniform(0, 0.5))
            case "depart":
                self._depart(cluster)
            case _:
                self._die(cluster)

    def _move(self, cluster: ClusterState) -> None:
        queues = self._queues(cluster)
        moves: list[QueueMove] = []
        for queue in self._rng.sample(queues, min(len(queues), self._rng.choice((1, 1, 1, 2, 3)))):
            target = self._target(cluster, queue.standing)
            version = queue.version if self._rng.random() < 0.5 else -1
            moves.append(QueueMove(queue.topic.id, queue.index, version, target))
        self._propose(Reassign(moves, 1, self._rng.random() < 0.2), self._moved)

    def _moved(self, result: CommandResult) -> None:
        for code in result.value if isinstance(result.value, list) else [result.code]:
            self._world.trace.count(f"reassign: {code or 'done'}")

    def _target(self, cluster: ClusterState, s: ReplicaSet) -> list[str]:
        """Other replicas in place of one, or two; another order; or any."""
        rng = self._rng
        others = [name for name in self._active(cluster) if name not in s.original]
        target = list(s.original)
        kind = rng.random()
        if kind < 0.75:
            changed = rng.choice((1, 1, 2))
            for place in rng.sample(range(len(target)), min(changed, len(target))):
                if others:
                    target[place] = others.pop(rng.randrange(len(others)))
        elif kind < 0.85:
            rng.shuffle(target)
        else:
            every = [*target, *others]
            target = rng.sample(every, rng.randint(1, min(MOST_REPLICAS, len(every))))
        return target

    def _cancel(self, cluster: ClusterState) -> None:
        queues = self._queues(cluster)
        moving = [queue for queue in queues if queue.standing.moving]
        chosen = self._rng.sample(moving, min(len(moving), self._rng.choice((1, 1, 3))))
        if chosen:
            self._propose(CancelReassign([(q.topic.id, q.index) for q in chosen], 1))

    def _alter(self, cluster: ClusterState) -> None:
        topic = self._rng.choice(_alterable(cluster))
        most = min(MOST_REPLICAS, len(self._active(cluster)))
        replicas = self._rng.randint(1, max(1, most))
        self._propose(AlterTopic(topic, None, None, 1, replicas))
        self._world.trace.count("numbers of replicas changed")

    def _set_mode(self, cluster: ClusterState) -> None:
        rng = self._rng
        modes = [name for name in sorted(cluster.modes) if name != self._leaving]
        active = self._active(cluster)
        if modes and (rng.random() < 0.6 or len(active) <= LEAST_ACTIVE):
            self._propose(SetBrokerMode(rng.choice(modes), "active", 1))
        elif len(active) > LEAST_ACTIVE:
            mode = rng.choice(("maintenance", "draining"))
            self._propose(SetBrokerMode(rng.choice(active), mode, 1))
            self._world.trace.count(f"brokers in {mode}")

    # -- who leaves -------------------------------------------------------------------------

    def _depart(self, cluster: ClusterState) -> None:
        """A broker is drained, stopped and removed."""
        active = self._active(cluster)
        if self._leaving is not None or len(active) <= LEAST_ACTIVE:
            return
        self._leaving = name = self._rng.choice(active)
        self._hand.note(name, "is to be drained and removed")
        self._propose(SetBrokerMode(name, "draining", 1))
        self._later(partial(self._drained, name, self._now + PATIENCE_S))

    def _drained(self, name: str, patience: float) -> None:
        cluster = self._world.newest_state()
        if cluster is not None and cluster.modes.get(name) == "drained":
            self._world.retire(name)
            self._world.trace.count("brokers drained and removed")
            self._remove(name, accept_loss=False)
        elif self._now > patience and not self._resting:
            self._world.trace.count("drains given up")
            self._leaving = None
            self._propose(SetBrokerMode(name, "active", 1))
        else:
            if cluster is not None and not self._waiting:
                self._repair(cluster, all_of_them=False)
                if cluster.modes.get(name) != "draining":
                    # An older wish for another mode was applied after this one.
                    self._propose(SetBrokerMode(name, "draining", 1))
                elif name in cluster.brokers and not cluster.brokers[name].queues:
                    self._propose(SetBrokerMode(name, "drained", 1))
            self._later(partial(self._drained, name, patience))

    def _remove(self, name: str, *, accept_loss: bool) -> None:
        """Ask until the broker is gone; it is not, for as long as the name servers hear of it."""

        def removed(result: CommandResult) -> None:
            if result.code in ("", "UNKNOWN_BROKER"):
                self._hand.note(name, f"was removed: {result.text}")
                self._leaving = None
            else:
                loss = accept_loss or self._resting
                self._later(partial(self._remove, name, accept_loss=loss))

        self._propose(RemoveBroker(name, accept_loss), removed)

    def _die(self, cluster: ClusterState) -> None:
        """The broker whose disk is bad is down for so long that all know it: then it comes back, or
        with an empty disk, or never."""
        name = self._world.bad_disk
        machine = self._world.machines[name]
        busy = machine.retired or machine.idle or machine.process is None
        if self._leaving is not None or busy or len(self._active(cluster)) <= LEAST_ACTIVE:
            return
        self._leaving = name
        machine.idle = True
        self._world.kill(name)
        self._later(partial(self._dead, name, self._now + PATIENCE_S), self._rng.uniform(3.5, 7.0))

    def _dead(self, name: str, patience: float) -> None:
        machine = self._world.machines[name]
        spared = self._disks.spared(name)
        if not spared and self._now < patience and not self._resting:
            self._later(partial(self._dead, name, patience))
            return
        fate = self._rng.random()
        if spared and fate < 0.6:
            self._world.retire(name)
            self._world.trace.count("dead brokers removed")
            self._remove(name, accept_loss=fate < 0.3)
            return
        if spared and fate < 0.8:
            self._world.replace_storage(machine)
            self._hand.note(name, "its disk was replaced by an empty one")
            self._hand.count("replaced disks")
        machine.idle = False
        self._leaving = None
        self._world.boot(name)

    # -- once the faults have ended ---------------------------------------------------------

    def _tidy(self) -> None:
        """As an operator does: all are active, and nothing waits for what cannot be."""
        cluster = self._world.newest_state()
        self._later(self._tidy, 2.0)
        if cluster is None or self._waiting:
            return
        for name in sorted(cluster.modes):
            if name != self._leaving:
                self._propose(SetBrokerMode(name, "active", 1))
        most = len(self._active(cluster))
        for topic in _alterable(cluster):
            if cluster.topics[topic].replicas > most:
                self._propose(AlterTopic(topic, None, None, 1, most))
        retired = [name for name in cluster.brokers if self._world.machines[name].retired]
        stuck = [
            (queue.topic.id, queue.index)
            for queue in self._queues(cluster)
            if not set(queue.standing.adding).isdisjoint(retired)
        ]
        if stuck:
            self._propose(CancelReassign(stuck, 1))
        self._repair(cluster, all_of_them=True)

    def _repair(self, cluster: ClusterState, *, all_of_them: bool) -> None:
        """Move replicas away from brokers that leave, as the planner does too, and with
        `all_of_them` bring queues to the numbers of replicas that their topics want."""
        machines = self._world.machines
        moves: list[QueueMove] = []
        for queue in self._queues(cluster):
            s, wanted = queue.standing, queue.topic.replicas
            leaving = [
                name
                for name in s.original
                if cluster.modes.get(name) in ("draining", "drained") or machines[name].retired
            ]
            other = len(s.original) != wanted
            if s.moving or s.leader is None or not (leaving or (all_of_them and other)):
                continue
            stay = sorted(
                (name for name in s.original if name not in leaving),
                key=lambda name: name not in s.isr,
            )
            free = [
                name
                for name in self._active(cluster)
                if name in cluster.alive - cluster.full and name not in s.original
            ]
            self._rng.shuffle(free)
            copies = wanted if all_of_them else len(s.original)
            target = [*stay, *free][:copies]
            if target and target != list(s.original):
                moves.append(QueueMove(queue.topic.id, queue.index, queue.version, target))
        if moves:
            self._propose(Reassign(moves, 1, force=True), self._moved)

    # -- blows ------------------------------------------------------------------------------

    def _step(self, step: Step, s: ReplicaSet) -> None:
        """A move has come to a step: maybe one who takes part dies of it."""
        if self._hand.over or self._rng.random() >= self._struck:
            return
        rng = self._rng
        parts: dict[str, Sequence[str]] = {
            "leader": [s.leader] if s.leader is not None else [],
            "destination": s.adding,
            "source": s.removing,
            "raft leader": [self._world.observer.raft_leader or ""],
        }
        part = rng.choice([part for part, names in parts.items() if names])
        victim = rng.choice(parts[part])
        if victim not in self._world.machines:
            return

        def blow() -> None:
            if self._hand.down(victim):
                self._world.trace.count(f"struck when a move {step}: {part}")

        self._hand.later(rng.uniform(0, AT_ONCE_S), blow)

    # -- small things -----------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return self._world.scheduler.now

    def _later(self, action: Callable[[], None], seconds: float = LOOK_S) -> None:
        """In so many seconds, whether the faults have ended or not."""
        self._world.scheduler.after(seconds, action)

    def _propose(
        self, command: AnyCommand, done: Callable[[CommandResult], None] = lambda _result: None
    ) -> None:
        self._waiting += 1

        def decided(result: CommandResult) -> None:
            self._waiting -= 1
            self._world.trace.count("acts of the operator")
            done(result)

        process = self._world.machines[NAME].process
        assert process is not None
        process.deliver(Call(partial(self._client.propose, command, decided)))


def _alterable(cluster: ClusterState) -> list[str]:
    """Topics but those of groups, which nobody alters."""
    return [name for name in sorted(cluster.topics) if not name.startswith("%")]
