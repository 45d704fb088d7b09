"""Weathers of one kind: runs of the simulation in which what a rule forbids is always about to
happen. The schedules are those that SAFETY names for its rules; on the true code each keeps every
promise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from logboom.wire.base import Request
from logboom.wire.commands import RemoveBroker
from logboom.wire.errors import LogboomError
from logboom.wire.messages import AddNameServer, AnyMessage, Ok, Propose, RemoveNameServer
from tests.sim.faults.disks import DiskFaults
from tests.sim.faults.hand import Hand
from tests.sim.faults.networks import NetworkFaults
from tests.sim.faults.nodes import NodeFaults
from tests.sim.faults.weather import Faults
from tests.sim.scenario import Scenario
from tests.sim.world.moments import Moment
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

AT_ONCE: Final = (0.005, 0.05)
"""Seconds of a restart that is over before anybody has noticed."""
BEHIND_S: Final = 4.0
"""Seconds after which a follower that was cut off is out of every ISR, and comes back."""
APART_S: Final = 4.5
"""Seconds after which a leader that was cut off from all nodes has been replaced."""
WHOLE_PLOT_S: Final = 13.0
"""Seconds that the longest plot takes."""
WISH_S: Final = 2.0
"""Seconds that a leader's wish to add a follower is under way: less than a session."""
LONELY_S: Final = 5.0
"""Seconds after which a leader that hears no follower is the last of its ISR."""


class Plots(Hand):
    """Everything an attack is made of."""

    def __init__(self, world: World, rng: random.Random) -> None:
        super().__init__(world, rng)
        self.nodes = NodeFaults(self)
        self.network = NetworkFaults(self)
        self.disks = DiskFaults(self, rot=False)
        self.lost = False
        """Whether a disk was lost for good."""
        self._busy_until = 0.0

    def happened(self, moment: Moment, who: str) -> None:
        """A moment has come: an attack lets none pass."""
        act = self._armed.get(moment)
        if act is not None and not self.over:
            self.disarm(moment)
            self.later(0.0, lambda: act(who))

    def choose_disk(self) -> None:
        """The disk that may lose what it had synced is none that holds the only copy."""
        alone = self._alone()
        bad = self.rng.choice([name for name in self.names("broker") if name not in alone])
        vars(self.disks)["_bad"] = self.world.bad_disk = bad

    def _alone(self) -> set[str]:
        """Brokers that hold a copy that is the only one."""
        topics = self.world.observer.topics.values()
        return {q.replicas[0] for t in topics for q in t.queues if len(q.replicas) == 1}

    def leader(self) -> str:
        """A broker that leads, and holds no copy that is the only one."""
        alone = self._alone()
        topics = self.world.observer.topics.values()
        led = [q.leader for t in topics for q in t.queues if q.leader not in alone]
        return self.rng.choice([name for name in led if name is not None] or self.names("broker"))

    def brokers_but(self, name: str) -> list[str]:
        """All other brokers."""
        return [broker for broker in self.names("broker") if broker != name]

    # -- what they do -----------------------------------------------------------------------

    def strangers_change_members(self) -> None:
        """A client without the cluster key adds name servers, and removes name servers and brokers."""
        victim = self.rng.choice(self.names("name-server"))
        invented = AddNameServer(0, 3_000, INVENTED, f"{INVENTED}:7701", f"{INVENTED}:7721")
        broker = Propose(
            0, 3_000, "stranger", 0, RemoveBroker(self.rng.choice(self.names("broker")))
        )
        message: Request = self.rng.choice((invented, RemoveNameServer(0, 3_000, victim), broker))

        def answered(answer: AnyMessage | None, _error: LogboomError | None) -> None:
            if answer is not None:
                raise BrokenProperty("members change with the cluster key only", f"{message}")

        self.world.intrude(message, answered)

    def invent_a_member(self) -> None:
        """An operator mistypes the endpoint of a new name server."""
        message = AddNameServer(0, 3_000, INVENTED, f"{INVENTED}:7701", f"{INVENTED}:7721")

        def answered(answer: AnyMessage | None, _error: LogboomError | None) -> None:
            if answer is not None:
                raise BrokenProperty("a new name server answers before it counts", f"{message}")

        self.world.operate(message, answered)

    def replace_name_server(self) -> None:
        """One is lost, or taken out of service, and replaced."""
        self.nodes.replace_name_server()

    def empty_a_member(self) -> None:
        """A name server was added. Half of the others lag, and what the added one has helped to
        commit is on the other half; these go down, and the added one comes back with an empty
        folder. (One in a run.)"""
        if self.lost:
            return
        self.lost = True
        founders = self.names("name-server")
        new = self.world.join_name_server().id
        self.world.boot(new)
        self._ask(
            AddNameServer(0, 3_000, new, f"{new}:7701", f"{new}:7721"),
            lambda: self._ask(
                RemoveNameServer(0, 3_000, founders[0]), lambda: self._lag(new, founders)
            ),
        )

    def _ask(self, message: Request, done: Callable[[], None]) -> None:
        """Have an operator ask until it is done, unless all is over by then."""

        def answered(answer: AnyMessage | None, _error: LogboomError | None) -> None:
            if isinstance(answer, Ok):
                done()
            else:
                self.later(0.3, lambda: self._ask(message, done))

        self.world.operate(msgspec.structs.replace(message), answered)

    def _lag(self, new: str, founders: list[str]) -> None:
        """Go on once the added one is in the group in place of the first founder."""
        first, *others = founders
        self.world.retire(first)
        lagging, whole = others[: len(others) // 2], others[len(others) // 2 :]
        self.network.part(lagging, [new, *whole], seconds=LAG_S)

        def wipe() -> None:
            for name in whole:
                self.down(name, LAG_S)
            if self.world.machines[new].process is not None:
                self.world.kill(new)
            self.world.lose_journal(new)
            self.world.boot(new)

        # Brokers register again meanwhile: there is something to be forgotten.
        self.later(0.5, self.crash)
        self.later(LAG_S - 0.2, wipe)

    def restart_unseen(self) -> None:
        """A leader loses what its followers have copied and is back at once; the name servers are
        choosing their own leader, so that its registration takes a while."""

        def copied(leader: str) -> None:
            raft_leader = self.world.observer.raft_leader
            if raft_leader in self.names("name-server"):
                self.down(raft_leader, self.rng.uniform(0.5, 3.0))
            self.down(leader, self.rng.uniform(*AT_ONCE))

        self.await_moment("copied", copied)

    def come_back_empty(self) -> None:
        """A follower comes back with an empty disk; soon those that have the data are gone."""
        if self.disks.replace_disk():
            bad = self.world.bad_disk
            self.later(self.rng.uniform(0.5, 4.5), lambda: self._all_but(bad))

    def come_back_suspect(self) -> None:
        """A broker comes back without the newest of its log; soon the others are gone."""
        if self.disks.damage_log():
            bad = self.world.bad_disk
            self.later(self.rng.uniform(0.5, 4.5), lambda: self._all_but(bad))

    def _all_but(self, name: str, seconds: tuple[float, float] = (1.0, 6.0)) -> None:
        for other in self.brokers_but(name):
            self.down(other, self.rng.uniform(*seconds))

    def part_histories(self) -> None:
        """A leader alone goes on writing while the only other replica leads; it comes back, hears
        late that it must cut, and dies as soon as it is to be added again."""
        pair = self.world.observer.topics["pair"].queues[0]
        old = pair.leader
        if old is None or set(pair.isr) != set(pair.replicas) or not self._begins():
            return
        self.network.part([old], self.others([old, *self._clients()]), seconds=APART_S)

        def asked(who: str) -> None:
            if who not in pair.replicas or who == old:
                self.await_moment("isr asked", asked)
            else:
                self.down(old, self.rng.uniform(2.0, 4.0))

        ways = [(other, old) for other in self.brokers_but(old)]
        lags = self.world.network.lags
        self.later(APART_S - 0.05, lambda: self.await_moment("isr asked", asked))
        self.later(APART_S - 0.05, lambda: lags.update(dict.fromkeys(ways, 0.3)))
        self.later(APART_S + 3.0, lambda: [lags.pop(way, None) for way in ways])

    def _begins(self) -> bool:
        """Whether no longer plot is under way; this one is from now on."""
        now = self.world.scheduler.now
        if now < self._busy_until:
            return False
        self._busy_until = now + WHOLE_PLOT_S
        return True

    def _clients(self) -> list[str]:
        return [m.name for m in self.world.machines.values() if m.kind == "client"]

    def answer_late(self) -> None:
        """What brokers say to each other takes a while, and leaderships move meanwhile, so that
        requests are given up whose answers are under way."""
        if not self._begins():
            return
        brokers = self.names("broker")
        lags = self.world.network.lags
        ways = [(one, other) for one in brokers for other in brokers if one != other]
        lags.update((way, self.rng.uniform(0.05, 0.6)) for way in ways)
        for seconds in (0.5, 5.0):
            self.later(seconds, self.crash)
        self.later(WHOLE_PLOT_S, lambda: [lags.pop(way, None) for way in ways])

    def send_again(self) -> None:
        """Connections of clients break while followers are behind: what is under way is sent
        twice before it is safe once."""
        follower = self.rng.choice(self.brokers_but(self.leader()))
        self.network.part([follower], self.brokers_but(follower), seconds=2.0)
        for seconds in (0.3, 0.6, 0.9, 1.2, 1.5, 1.8):
            self.later(seconds, self._break_clients)

    def _break_clients(self) -> None:
        for client in self._clients():
            for broker in self.names("broker"):
                self.world.network.break_between(client, broker)

    def flip_bits(self) -> None:
        """Bits of one disk flip; all other nodes are well."""
        self.disks.flip_bits()

    def lose_growth(self) -> None:
        """A follower falls behind and is added again; its leader does not hear that it was, loses
        it once more and goes on without it; then all but the added one are gone."""
        if not self._begins():
            return
        leader = self.leader()
        topics = self.world.observer.topics.values()
        led = [queue for topic in topics for queue in topic.queues if queue.leader == leader]
        added = self.rng.choice([name for queue in led for name in queue.replicas])
        if added == leader:
            added = self.rng.choice(self.brokers_but(leader))
        self.network.part([added], self.brokers_but(added), seconds=BEHIND_S)

        def asked(who: str) -> None:
            if who != leader:
                self.await_moment("isr asked", asked)
                return
            self.network.part(self.names("name-server"), [leader], both=False, seconds=6.0)
            self.network.part([leader], [added], seconds=8.0)
            self.later(self.rng.uniform(0.5, 2.0), lambda: self._all_but(added, (4.0, 6.0)))

        # What is asked before is the shrink.
        self.later(BEHIND_S - 0.05, lambda: self.await_moment("isr asked", asked))

    def lose_before_growth(self) -> None:
        """A follower is to be added, but the wish is long under way; meanwhile its disk is lost
        and it registers anew. Then all but the added one are gone. (One disk in a run.)"""
        if self.lost:
            return
        self.lost = True
        added = self.world.bad_disk
        others = self.brokers_but(added)
        ways = [(broker, name) for broker in others for name in self.names("name-server")]
        lags = self.world.network.lags
        self.network.part([added], others, seconds=BEHIND_S)
        self.later(BEHIND_S - 0.05, lambda: lags.update(dict.fromkeys(ways, WISH_S)))

        def lose() -> None:
            self._empty(added, 0.02)
            self.network.part([added], others, seconds=9.0)

        self.later(BEHIND_S + 0.5, lose)
        self.later(BEHIND_S + WISH_S + 0.5, lambda: self._all_but(added, (4.0, 6.0)))
        self.later(BEHIND_S + WISH_S + 0.6, lambda: [lags.pop(way, None) for way in ways])

    def lose_the_last(self) -> None:
        """A leader is left alone in its ISR, and then its disk is lost. (One disk in a run.)"""
        if self.lost:
            return
        self.lost = True
        leader = self.leader()
        self.world.bad_disk = leader
        self.network.part([leader], self.brokers_but(leader), seconds=LONELY_S + 1.0)
        self.later(LONELY_S, lambda: self._empty(leader, 1.0))

    def _empty(self, name: str, seconds: float) -> None:
        self.down(name, seconds)
        machine = self.world.machines[name]
        if machine.process is None:
            self.world.replace_storage(machine)
            self.count("replaced disks")

    def fail_syncs(self) -> None:
        """An fsync fails and soon after the power does."""
        if self.disks.fail_sync():
            self.later(self.rng.uniform(0.2, 1.0), self.nodes.blackout)

    def slow_down(self) -> None:
        """The only other replica of a queue hears its leader late, and is heard late: where an
        answer holds little it cannot keep up."""
        pair = self.world.observer.topics["pair"].queues[0]
        leader = pair.leader
        if leader is None or not self._begins():
            return
        (follower,) = [name for name in pair.replicas if name != leader]
        lags = self.world.network.lags
        ways = [(leader, follower), (follower, leader)]
        lags.update((way, self.rng.uniform(0.2, 0.5)) for way in ways)
        self.later(WHOLE_PLOT_S - 1.0, lambda: [lags.pop(way, None) for way in ways])

    def forget_a_leader(self) -> None:
        """A leader is cut off from all but the clients, and others take over."""
        leader = self.leader()
        nodes = [name for name in self.names() if name != leader]
        self.network.part([leader], nodes, seconds=self.rng.uniform(4.0, 8.0))

    def sleep_long(self) -> None:
        """A leader stands still for longer than its lease."""
        self.nodes.freeze(self.leader())

    def crash(self) -> None:
        """Somebody dies."""
        self.down(self.victim("broker").name)


LAG_S: Final = 6.0
"""Seconds that some name servers are cut off from the others, and then these are down."""
INVENTED: Final = "name-99"
"""A name server that nobody has started."""

Plot: TypeAlias = Callable[[Plots], None]
MIXES: Final[Mapping[str, Mapping[Plot, float]]] = {
    "crashes": {Plots.crash: 2, Plots.sleep_long: 1},
    "empty member": {Plots.empty_a_member: 1},
    "restart unseen": {Plots.restart_unseen: 1},
    "empty disk": {Plots.come_back_empty: 2, Plots.crash: 1},
    "suspect": {Plots.come_back_suspect: 2, Plots.crash: 1},
    "two histories": {Plots.part_histories: 1},
    "late answers": {Plots.answer_late: 1},
    "sent again": {Plots.send_again: 1},
    "flipped bits": {Plots.flip_bits: 1},
    "lost growth": {Plots.lose_growth: 1},
    "late growth": {Plots.lose_before_growth: 1},
    "last one": {Plots.lose_the_last: 1},
    "forgotten leader": {Plots.forget_a_leader: 2, Plots.sleep_long: 1},
    "failed sync": {Plots.fail_syncs: 1},
    "slow follower": {Plots.slow_down: 1},
    "strangers": {
        Plots.strangers_change_members: 3,
        Plots.invent_a_member: 3,
        Plots.replace_name_server: 1,
        Plots.crash: 1,
    },
}
"""Name of an attack → its plots, and how often each is begun."""
RATE: Final = 15
"""Batches sent per second at least."""
GAP_S: Final = 1.5
"""Seconds between two plots, on average."""


class Attack(Faults):
    """The faults of a run that is attacked in one way."""

    def __init__(self, world: World, rng: random.Random, mix: str) -> None:
        super().__init__(world, rng)
        self._plots = Plots(world, rng)
        self._mix = MIXES[mix]
        self._dice = rng

    def begin(self) -> None:
        """Let the first plot begin."""
        self._plots.choose_disk()
        self._world.on_moment = self._plots.happened
        self._plots.later(0.5, self._next)

    def end(self) -> None:
        """No more plots: heal all."""
        self._plots.end()
        self._plots.disks.end()
        super().end()

    def settled(self) -> bool:
        """Nothing of an attack goes on behind its end."""
        return True

    def _next(self) -> None:
        (plot,) = self._dice.choices(list(self._mix), list(self._mix.values()))
        plot(self._plots)
        self._plots.strike("attack")
        self._plots.later(self._dice.expovariate(1 / GAP_S), self._next)


def attacked(seed: int, mix: str) -> Scenario:
    """A run of the simulation under one attack."""
    scenario = Scenario(seed, rot=mix == "flipped bits")
    # What is under way is what can be lost.
    vars(scenario)["_rate"] = max(RATE, vars(scenario)["_rate"])
    rng = random.Random(f"attack of {seed}")
    scenario.faults = Attack(scenario.world, rng, mix)
    scenario.options = f' --attack "{mix}"'
    return scenario
