"""Processes that end, or stop for a while."""

from __future__ import annotations

import random

from tests.chaos.catalogue import Struck, beyond_leases, fault
from tests.chaos.rig import Rig


def _down(rig: Rig, names: list[str], lasts: float) -> Struck:
    rig.kill(names)
    return Struck(" ".join(names), lasts, lambda: rig.start(names))


def _paused(rig: Rig, name: str, lasts: float) -> Struck:
    rig.cluster.pause(name)
    return Struck(name, lasts, lambda: rig.cluster.resume(name))


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
    return _down(rig, [rig.raft_leader()], rng.uniform(0.1, 6.0))


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
    return _paused(rig, rig.leader(rng), beyond_leases(rng))


@fault()
def pause_raft_leader(rig: Rig, rng: random.Random) -> Struck:
    """SIGSTOP the raft leader beyond all leases."""
    return _paused(rig, rig.raft_leader(), beyond_leases(rng))
