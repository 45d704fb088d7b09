"""What moves when members and queues come and go: sticky and consistent hash."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.metadata.allocate import allocate, owners
from logboom.metadata.allocation.inputs import hash_of
from logboom.wire.hashing import murmur3

if TYPE_CHECKING:
    from collections.abc import Mapping

Given = dict[int, str]
"""Queue → the member that has it."""

MEMBERS = "abcdefgh"


def held(owner: Mapping[int, str]) -> dict[str, list[int]]:
    """Member → its queues."""
    found: dict[str, list[int]] = {}
    for queue, member in owner.items():
        found.setdefault(member, []).append(queue)
    return found


def moved(before: Mapping[int, str], after: Mapping[int, str]) -> set[int]:
    """Queues that had an owner and have another now."""
    return {queue for queue in before.keys() & after.keys() if before[queue] != after[queue]}


def fewest_moves(before: Mapping[int, str], queues: list[int], members: list[str]) -> int:
    """By trying every even allocation there is."""
    best = len(queues)
    for chosen in product(members, repeat=len(queues)):
        sizes = [chosen.count(member) for member in members]
        if max(sizes) - min(sizes) <= 1:
            best = min(best, len(moved(before, dict(zip(queues, chosen, strict=True)))))
    return best


# Sticky


@given(
    before=st.dictionaries(st.integers(0, 7), st.sampled_from("abcd"), max_size=7),
    queues=st.lists(st.integers(0, 7), min_size=1, max_size=6, unique=True),
    members=st.lists(st.sampled_from("abce"), min_size=1, max_size=3, unique=True),
)
def test_sticky_moves_as_few_as_any_even_allocation(
    before: Given, queues: list[int], members: list[str]
) -> None:
    after = owners(allocate("sticky", queues, members, previous=held(before)))
    assert len(moved(before, after)) == fewest_moves(before, queues, members)


@given(
    before=st.dictionaries(st.integers(0, 60), st.sampled_from(MEMBERS)),
    queues=st.lists(st.integers(0, 60), min_size=1, unique=True),
    members=st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True),
)
def test_sticky_is_even_and_rests_there(
    before: Given, queues: list[int], members: list[str]
) -> None:
    after = allocate("sticky", queues, members, previous=held(before))
    sizes = [len(own) for own in after.values()]
    assert sorted(owners(after)) == sorted(queues)
    assert max(sizes) - min(sizes) <= 1
    assert allocate("sticky", queues, members, previous=after) == after
    for member in members:  # to give away and to receive at once would be for nothing
        had = {queue for queue in queues if before.get(queue) == member}
        others = {q for q in after[member] if before.get(q) in set(members) - {member}}
        assert not (others and had - set(after[member]))


@pytest.mark.parametrize(("queues", "members"), [(20, 10), (10, 20), (101, 7), (1_000, 90)])
def test_a_join_and_a_leave_move_only_what_they_must(queues: int, members: int) -> None:
    group = [f"client-{n:02}" for n in range(members)]
    before = allocate("sticky", range(queues), group)
    joined = allocate("sticky", range(queues), [*group, "a-newcomer"], previous=before)
    shifted = moved(owners(before), owners(joined))
    assert shifted == set(joined["a-newcomer"])
    assert len(shifted) == queues // (members + 1)
    left = allocate("sticky", range(queues), group[1:], previous=before)
    assert moved(owners(before), owners(left)) == set(before[group[0]])


def test_new_queues_move_no_old_ones() -> None:
    before = allocate("sticky", range(10), list("abcd"))
    grown = allocate("sticky", range(17), list("abcd"), previous=before)
    assert moved(owners(before), owners(grown)) == set()


def test_of_those_who_are_over_the_one_with_least_to_drain_keeps_all() -> None:
    before = {"a": [0, 1, 2, 3], "b": [4, 5, 6], "c": []}
    after = allocate("sticky", range(7), list("abc"), previous=before)
    assert after["b"] == [4, 5, 6]
    assert [len(own) for own in after.values()] == [2, 3, 2]


def test_a_queue_of_a_member_that_is_gone_may_be_claimed_again() -> None:
    previous = {"a": [0, 1], "gone": [0, 1, 2, 3], "b": [9]}
    assert allocate("sticky", range(4), ["a", "b"], previous=previous) == {"a": [0, 1], "b": [2, 3]}


def test_the_first_allocation_spreads_each_topic() -> None:
    queues = [(topic, number) for topic in "stu" for number in range(4)]
    for own in allocate("sticky", queues, list("abcd")).values():
        assert [topic for topic, _ in own] == ["s", "t", "u"]


def test_a_newcomer_gets_queues_of_many_topics() -> None:
    queues = [(topic, number) for topic in range(10) for number in range(10)]
    before = allocate("sticky", queues, list(MEMBERS))
    after = allocate("sticky", queues, [*MEMBERS, "i"], previous=before)
    assert len({topic for topic, _ in after["i"]}) >= 5


# Consistent hash


@given(
    queues=st.lists(st.integers(0, 999), min_size=1, max_size=60, unique=True),
    members=st.lists(st.text("abc", min_size=1), min_size=2, max_size=12, unique=True),
    virtual_nodes=st.integers(1, 12),
)
def test_only_the_queues_of_who_goes_move(
    queues: list[int], members: list[str], virtual_nodes: int
) -> None:
    whole = owners(allocate("consistent_hash", queues, members, virtual_nodes=virtual_nodes))
    gone, *rest = members
    without = owners(allocate("consistent_hash", queues, rest, virtual_nodes=virtual_nodes))
    # Read backwards it is the join: queues move to nobody but the newcomer.
    assert moved(whole, without) == {queue for queue in queues if whole[queue] == gone}


@pytest.mark.parametrize(("queues", "members"), [(20, 10), (10, 20)])
def test_the_references_sizes_with_three_virtual_nodes(queues: int, members: int) -> None:
    group = [f"CID_PREFIX{n}" for n in range(members)]
    found = allocate("consistent_hash", range(queues), group, virtual_nodes=3)
    assert sorted(owners(found)) == list(range(queues))
    assert list(found) == sorted(group)


def test_a_queue_belongs_to_the_first_point_at_or_after_its_hash() -> None:
    group = list("abc")
    points = {murmur3(f"{member}-{n}".encode()): member for member in group for n in range(3)}
    # A queue of a point's own name stands exactly on it; those of the top wrap to the lowest.
    queues = [*map(str, range(400)), *(f"{member}-{n}" for member in group for n in range(3))]
    assert any(murmur3(queue.encode()) > max(points) for queue in queues)
    found = owners(allocate("consistent_hash", queues, group, virtual_nodes=3))
    for queue in queues:
        after = [point for point in points if point >= murmur3(queue.encode())]
        assert found[queue] == points[min(after or points)]


def test_where_points_coincide_the_smaller_member_has_the_queue_and_then_the_other() -> None:
    first, second = "m26136", "m45319"  # found by trying names
    assert murmur3(f"{first}-0".encode()) == murmur3(f"{second}-0".encode())
    both = allocate("consistent_hash", range(50), [second, first, "x"], virtual_nodes=1)
    alone = allocate("consistent_hash", range(50), [second, "x"], virtual_nodes=1)
    assert both[second] == []
    assert both[first] == alone[second] != []


def test_a_thousand_virtual_nodes_are_nearly_even() -> None:
    found = allocate("consistent_hash", range(10_000), list("abcde"), virtual_nodes=1_000)
    assert all(1_700 < len(own) < 2_300 for own in found.values())


def test_a_queue_is_hashed_by_its_bytes_its_text_or_its_repr() -> None:
    assert hash_of(b"key1") == hash_of("key1") == murmur3(b"key1") == 462881061
    assert hash_of((3, 7)) == murmur3(b"(3, 7)")
