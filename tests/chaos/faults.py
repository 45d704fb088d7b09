"""The catalogue of faults: what each does to a `Rig`, and how it is mended."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.chaos.links import CLIENT, part
from tests.chaos.rig import SMALL, Rig


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that is in force."""

    whom: str
    """What it was done to, in words."""
    lasts: float
    """Seconds until it is mended."""
    mend: Callable[[], None]


Strike: TypeAlias = Callable[[Rig, random.Random], Struck]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    name: str
    strike: Strike
    served: bool = True
    """Whether every queue is to be served while it is in force (after a fail-over), and not only
    once it is mended."""
    combines: bool = True
    """Whether another may strike at the same time."""


FAULTS: Final[dict[str, Fault]] = {}


def fault(*, served: bool = True, combines: bool = True) -> Callable[[Strike], Strike]:
    """Enter a function into the catalogue under its name."""

    def enter(strike: Strike) -> Strike:
        name = str(getattr(strike, "__name__", strike)).replace("_", "-")
        FAULTS[name] = Fault(name, strike, served, combines)
        return strike

    return enter


def _down(rig: Rig, names: list[str], lasts: float) -> Struck:
    rig.kill(names)
    return Struck(" ".join(names), lasts, lambda: rig.start(names))


def _paused(rig: Rig, name: str, lasts: float) -> Struck:
    rig.cluster.pause(name)
    return Struck(name, lasts, lambda: rig.cluster.resume(name))


def _beyond_leases(rng: random.Random) -> float:
    return rng.uniform(3.5, 7.0)


# -- processes ----------------------------------------------------------------------------------


@fault()
def kill_leader(rig: Rig, rng: random.Random) -> Struck:
    """kill -9 a broker that leads."""
    return _down(rig, [rig.leader(rng)], rng.uniform(0.1, 6.0))


@fault()
def kill_follower(rig: Rig, rng: random.Random) -> Struck:
    """kill -9 a broker that follows."""
    leader = rig.leader(rng)
    followers = [name for name in rig.brokers if name != leader]
    return _down(rig, [rng.choice(followers)], rng.uniform(0.1, 6.0))


@fault()
def kill_raft_leader(rig: Rig, rng: random.Random) -> Struck:
    """kill -9 the name server that leads."""
    return _down(rig, [rig.cluster.raft_leader()], rng.uniform(0.1, 6.0))


@fault(served=False)
def kill_two_brokers(rig: Rig, rng: random.Random) -> Struck:
    """kill -9 a majority of the brokers: acks=all must stop, and go on."""
    return _down(rig, rng.sample(rig.brokers, 2), rng.uniform(0.5, 5.0))


@fault(served=False)
def kill_all(rig: Rig, rng: random.Random) -> Struck:
    """kill -9 every node."""
    names = list(rig.cluster.nodes)
    rng.shuffle(names)
    return _down(rig, names, rng.uniform(0.1, 2.0))


@fault()
def pause_leader(rig: Rig, rng: random.Random) -> Struck:
    """SIGSTOP a leader beyond its lease: it wakes up believing that it still leads."""
    return _paused(rig, rig.leader(rng), _beyond_leases(rng))


@fault()
def pause_raft_leader(rig: Rig, rng: random.Random) -> Struck:
    """SIGSTOP the raft leader beyond all leases."""
    return _paused(rig, rig.cluster.raft_leader(), _beyond_leases(rng))


# -- links --------------------------------------------------------------------------------------


def _cut(rig: Rig, one: list[str], other: list[str], lasts: float) -> Struck:
    part(rig.links, one, other)
    return Struck(f"{' '.join(one)} | {' '.join(other)}", lasts, rig.links.heal)


@fault()
def cut_leader(rig: Rig, rng: random.Random) -> Struck:
    """A leader is cut off from everybody."""
    leader = rig.leader(rng)
    return _cut(rig, [leader], rig.others(leader), _beyond_leases(rng))


@fault()
def cut_raft_leader(rig: Rig, rng: random.Random) -> Struck:
    """The raft leader is cut off from everybody."""
    leader = rig.cluster.raft_leader()
    return _cut(rig, [leader], rig.others(leader), _beyond_leases(rng))


@fault()
def cut_leader_from_name_servers(rig: Rig, rng: random.Random) -> Struck:
    """A leader keeps its clients and followers and loses the name servers: its lease ends."""
    return _cut(rig, [rig.leader(rng)], rig.servers, _beyond_leases(rng))


@fault()
def cut_two_brokers_apart(rig: Rig, rng: random.Random) -> Struck:
    """Two brokers do not reach each other; everybody else reaches both."""
    one, other = rng.sample(rig.brokers, 2)
    return _cut(rig, [one], [other], _beyond_leases(rng))


@fault()
def cut_one_way(rig: Rig, rng: random.Random) -> Struck:
    """What a leader sends to the other nodes does not arrive; it hears them all."""
    leader = rig.leader(rng)
    for name in rig.cluster.nodes:
        if name != leader:
            rig.links.cut(leader, name)
    return Struck(f"{leader} to all nodes", _beyond_leases(rng), rig.links.heal)


@fault()
def raft_outage(rig: Rig, rng: random.Random) -> Struck:
    """The name servers do not reach each other: no broker outage (DESIGN §6)."""
    for server in rig.servers:
        part(rig.links, [server], [other for other in rig.servers if other != server])
    return Struck("name servers apart", rng.uniform(4.0, 10.0), rig.links.heal)


@fault()
def half_open(rig: Rig, rng: random.Random) -> Struck:
    """Connections end on one side only: the dialler goes on sending into the void."""
    leader = rig.leader(rng)
    pairs = [(CLIENT, leader), *((b, leader) for b in rig.brokers if b != leader)]
    pairs += [(leader, server) for server in rig.servers]
    chosen = rng.sample(pairs, 3)
    torn = sum(rig.links.half_open(*pair) for pair in chosen)
    whom = ", ".join(f"{a} to {b}" for a, b in chosen)
    return Struck(f"{whom} ({torn} connections)", _beyond_leases(rng), rig.links.heal)


@fault()
def slow_links(rig: Rig, rng: random.Random) -> Struck:
    """Everything to and from one broker takes long."""
    name, delay = rng.choice(rig.brokers), rng.uniform(0.05, 0.3)
    for other in rig.others(name):
        rig.links.slow(name, other, delay)
        rig.links.slow(other, name, delay)
    return Struck(f"{name}, {delay * 1000:.0f} ms", rng.uniform(3.0, 8.0), rig.links.heal)


# -- machines -----------------------------------------------------------------------------------


@fault()
def clocks_apart(rig: Rig, rng: random.Random) -> Struck:
    """Wall clocks jump, some ahead, some back, by seconds to days."""
    names = rng.sample(rig.cluster.nodes, rng.randint(1, 4))
    ahead = {name: rng.choice([-1, 1]) * 10 ** rng.uniform(0, 5.4) for name in names}
    for name, seconds in ahead.items():
        rig.machine.set_clock(name, seconds)

    def mend() -> None:
        for name in names:
            rig.machine.set_clock(name, 0.0)

    whom = ", ".join(f"{name} {seconds:+.0f} s" for name, seconds in ahead.items())
    return Struck(whom, rng.uniform(2.0, 6.0), mend)


def _lights_out(rig: Rig, names: list[str], rng: random.Random) -> Struck:
    rig.kill(names)
    # Half of the times all of it goes, else a random beginning of each file's end stays.
    torn = rng if rng.random() < 0.5 else None
    lost = sum(rig.machine.cut_power(name, torn) for name in names)
    whom = f"{' '.join(names)}: {lost} bytes lost"
    return Struck(whom, rng.uniform(0.1, 3.0), lambda: rig.start(names))


@fault(combines=False)
def power_cut_leader(rig: Rig, rng: random.Random) -> Struck:
    """A leader loses what it had not synced."""
    return _lights_out(rig, [rig.leader(rng)], rng)


@fault(served=False, combines=False)
def power_cut_all(rig: Rig, rng: random.Random) -> Struck:
    """Every node dies within a moment and loses what it had not synced."""
    names = list(rig.cluster.nodes)
    rng.shuffle(names)
    return _lights_out(rig, names, rng)


@fault(served=False, combines=False)
def disk_full(rig: Rig, rng: random.Random) -> Struck:
    """The disk of one broker fills up, below its reserve or to the last byte."""
    how = rig.disk.fill(wholly=rng.random() < 0.5)
    return Struck(f"{SMALL}, {how}", rng.uniform(2.0, 5.0), rig.disk.empty)


@fault(combines=False)
def flipped_bytes(rig: Rig, rng: random.Random) -> Struck:
    """A broker stops, some bytes of its files change, it starts again."""
    name = rng.choice(rig.brokers)
    if rng.random() < 0.5:
        rig.kill([name])
    else:
        rig.take_down(name)
    files = [
        path
        for path in sorted((rig.folder / name / "data" / "db").iterdir())
        if path.suffix in {".blob", ".sst", ".log"} and path.stat().st_size > 1_000
    ]
    changed = rng.choice(files)
    with changed.open("r+b") as file:
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(changed.stat().st_size)
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ (1 << rng.randrange(8))]))

    def mend() -> None:
        rig.start([name])
        rig.wait_scrubbed()

    return Struck(f"{name}, {changed.name}", 0.2, mend)


# -- operators ----------------------------------------------------------------------------------


def _nothing() -> None:
    """For what is over once it has struck."""


@fault(combines=False)
def rolling_restart(rig: Rig, rng: random.Random) -> Struck:
    """Every node in turn, in good order."""
    names = [*rig.servers, *rig.brokers]
    rng.shuffle(names)
    for name in names:
        rig.restart(name)
        rig.wait_whole()
    return Struck(" ".join(names), 0.0, _nothing)


@fault(combines=False)
def rolling_upgrade(rig: Rig, rng: random.Random) -> Struck:
    """Every node in turn becomes the next version, or goes back to this one."""
    there = not rig.next_version
    names = [*rig.servers, *rig.brokers]
    rng.shuffle(names)
    for name in names:
        if there:
            rig.next_version.add(name)
        else:
            rig.next_version.discard(name)
        rig.restart(name)
        rig.wait_whole()
    return Struck("to protocol + 1" if there else "back to this protocol", 0.0, _nothing)
