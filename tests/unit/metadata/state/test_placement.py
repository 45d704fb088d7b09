"""Placement: every wish of `placement`, for whatever brokers there are."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from logboom.metadata.state.placement import Candidate, count_hosts, place_replicas
from logboom.wire.names import MAX_QUEUES
from tests.unit.metadata.state.states import three_brokers
from tests.unit.wire.work import cost_ms, without_garbage_of_others

TURN_MS: Final = 10.0
"""Processor time that one request may take of a node's turn."""


def brokers(zones: list[str], held: list[int] | None = None) -> list[Candidate]:
    counts = held or [0] * len(zones)
    return [
        Candidate(f"b{n}", zone, held=counts[n], preferred=counts[n])
        for n, zone in enumerate(zones)
    ]


clusters = st.lists(st.sampled_from("xyz"), min_size=1, max_size=7)


@given(clusters, st.integers(1, 40), st.data())
def test_replicas_are_distinct_and_in_as_many_zones_as_there_are(
    zones: list[str], queues: int, data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, len(zones)))
    zone_of = {f"b{n}": zone for n, zone in enumerate(zones)}
    for placed in place_replicas(brokers(zones), queues, replicas):
        assert len(set(placed)) == replicas
        assert len({zone_of[b] for b in placed}) == min(replicas, len(set(zones)))


@given(clusters, st.integers(1, 40), st.data())
def test_leaders_of_a_topic_are_spread_evenly_whatever_brokers_hold_already(
    zones: list[str], queues: int, data: st.DataObject
) -> None:
    held = data.draw(st.lists(st.integers(0, 50), min_size=len(zones), max_size=len(zones)))
    leaders = Counter(placed[0] for placed in place_replicas(brokers(zones, held), queues, 1))
    counts = [leaders[f"b{n}"] for n in range(len(zones))]
    assert max(counts) - min(counts) <= 1


@given(st.lists(st.sampled_from(["", "h1", "h2", "h3"]), min_size=1, max_size=8), st.data())
def test_no_two_replicas_are_on_one_host(hosts: list[str], data: st.DataObject) -> None:
    zones = data.draw(st.lists(st.sampled_from("xyz"), min_size=len(hosts), max_size=len(hosts)))
    candidates = [
        Candidate(f"b{n}", zone, host=host)
        for n, (zone, host) in enumerate(zip(zones, hosts, strict=True))
    ]
    # A broker that names no host has one alone.
    host_of = {each.id: each.host or each.id for each in candidates}
    assert count_hosts(hosts) == len(set(host_of.values()))
    queues, replicas = data.draw(st.integers(1, 40)), data.draw(st.integers(1, count_hosts(hosts)))
    placements = place_replicas(candidates, queues, replicas)
    for placed in placements:
        assert len({host_of[broker] for broker in placed}) == len(placed) == replicas
    leaders = Counter(placed[0] for placed in placements)
    counts = [leaders[each.id] for each in candidates]
    assert max(counts) - min(counts) <= 1, "all brokers of a host lead as much as any other"


@given(st.integers(1, 7), st.integers(1, 40), st.data())
def test_replicas_are_spread_evenly_within_one_zone(
    size: int, queues: int, data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, size))
    held = Counter(
        b for placed in place_replicas(brokers(["x"] * size), queues, replicas) for b in placed
    )
    counts = [held[f"b{n}"] for n in range(size)]
    # Even leaders come first: with 5 brokers, 35 queues and 2 replicas one holds 15, another 13.
    assert max(counts) - min(counts) <= 2


def test_the_load_of_a_dead_leader_is_shared() -> None:
    placed = place_replicas(brokers(["x"] * 3), 12, 3)
    seconds = Counter((p[0], p[1]) for p in placed)
    assert set(seconds.values()) == {2}, "each of the six pairs leads and follows twice"


def test_many_small_topics_are_spread_too() -> None:
    leaders: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for _ in range(30):
        candidates = [Candidate(b, "", leaders[b], held[b]) for b in "abc"]
        for placed in place_replicas(candidates, 1, 2):
            leaders[placed[0]] += 1
            held.update(placed)
    assert set(leaders.values()) == {10}
    assert set(held.values()) == {20}


def test_placement_does_not_depend_on_the_order_of_brokers() -> None:
    there = brokers(["x", "y", "x", "z"])
    back = brokers(["x", "y", "x", "z"])[::-1]
    assert place_replicas(there, 9, 3) == place_replicas(back, 9, 3)


def test_a_topic_of_very_many_queues_is_created_in_one_turn() -> None:
    tables, numbers = three_brokers(), count()
    with without_garbage_of_others():
        spent = cost_ms(lambda: tables.create(f"t{next(numbers)}", queues=MAX_QUEUES), TURN_MS)
    assert spent <= TURN_MS
