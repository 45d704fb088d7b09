"""Links that carry nothing, one way only, late, or into the void."""

from __future__ import annotations

import random

from tests.chaos.catalogue import Struck, beyond_leases, fault
from tests.chaos.links import CLIENT, ProxyLinks, part
from tests.chaos.outages import BAR_S
from tests.chaos.rig import Rig


def _cut(rig: Rig, one: list[str], other: list[str], lasts: float) -> Struck:
    part(rig.links, one, other)
    return Struck(f"{' '.join(one)} | {' '.join(other)}", lasts, rig.links.heal)


@fault()
def cut_leader(rig: Rig, rng: random.Random) -> Struck:
    """A leader is cut off from everybody."""
    leader = rig.leader(rng)
    return _cut(rig, [leader], rig.others(leader), beyond_leases(rng))


@fault()
def cut_raft_leader(rig: Rig, rng: random.Random) -> Struck:
    """The raft leader is cut off from everybody."""
    leader = rig.raft_leader()
    return _cut(rig, [leader], rig.others(leader), beyond_leases(rng))


@fault()
def cut_leader_from_name_servers(rig: Rig, rng: random.Random) -> Struck:
    """A leader keeps its clients and followers and loses the name servers: its lease ends."""
    return _cut(rig, [rig.leader(rng)], rig.servers, beyond_leases(rng))


@fault()
def cut_leader_from_nodes(rig: Rig, rng: random.Random) -> Struck:
    """A leader keeps its clients and loses all nodes: it is not told that it was replaced.

    For longer than a queue may be without service: so it does not help to wait for the end.
    """
    leader = rig.leader(rng)
    nodes = [name for name in rig.cluster.nodes if name != leader]
    return _cut(rig, [leader], nodes, BAR_S + 1.0)


@fault()
def cut_two_brokers_apart(rig: Rig, rng: random.Random) -> Struck:
    """Two brokers do not reach each other; everybody else reaches both."""
    one, other = rng.sample(rig.brokers, 2)
    return _cut(rig, [one], [other], beyond_leases(rng))


@fault()
def cut_one_way(rig: Rig, rng: random.Random) -> Struck:
    """What a leader sends to the other nodes does not arrive; it hears them all."""
    leader = rig.leader(rng)
    for name in rig.cluster.nodes:
        if name != leader:
            rig.links.cut(leader, name)
    return Struck(f"{leader} to all nodes", beyond_leases(rng), rig.links.heal)


@fault(stops_nobody=True)
def raft_outage(rig: Rig, rng: random.Random) -> Struck:
    """The name servers do not reach each other: no broker outage (Q11).

    So long that who stops only when its lease is over (2 s) stands still for most of it.
    """
    for server in rig.servers:
        part(rig.links, [server], [other for other in rig.servers if other != server])
    return Struck("name servers apart", rng.uniform(7.0, 11.0), rig.links.heal)


@fault(needs=ProxyLinks.kind)
def half_open(rig: Rig, rng: random.Random) -> Struck:
    """Connections end on one side only: the dialler goes on sending into the void."""
    links = rig.links
    assert isinstance(links, ProxyLinks)
    leader = rig.leader(rng)
    pairs = [(CLIENT, leader), *((b, leader) for b in rig.brokers if b != leader)]
    pairs += [(leader, server) for server in rig.servers]
    chosen = rng.sample(pairs, 3)
    torn = sum(links.half_open(*pair) for pair in chosen)
    whom = ", ".join(f"{a} to {b}" for a, b in chosen)
    return Struck(f"{whom} ({torn} connections)", beyond_leases(rng), rig.links.heal)


@fault(needs=ProxyLinks.kind)
def half_open_followers(rig: Rig, rng: random.Random) -> Struck:
    """No follower of a leader reaches it any more, and none is told; everybody else does.

    For longer than a queue may be without service: so it does not help to wait for the end.
    """
    links = rig.links
    assert isinstance(links, ProxyLinks)
    leader = rig.leader(rng)
    torn = sum(links.half_open(name, leader) for name in rig.brokers if name != leader)
    return Struck(f"{leader} ({torn} connections)", BAR_S + 1.0, rig.links.heal)


@fault(needs=ProxyLinks.kind)
def slow_links(rig: Rig, rng: random.Random) -> Struck:
    """Everything to and from one broker takes long."""
    links = rig.links
    assert isinstance(links, ProxyLinks)
    name, delay = rng.choice(rig.brokers), rng.uniform(0.05, 0.3)
    for other in rig.others(name):
        links.slow(name, other, delay)
        links.slow(other, name, delay)
    return Struck(f"{name}, {delay * 1000:.0f} ms", rng.uniform(3.0, 8.0), rig.links.heal)
