"""What moves when members and queues come and go: sticky and consistent hash."""

from __future__ import annotations

import math
import random
from itertools import product
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.metadata.allocate import allocate, allocate_topics, owners
from logboom.metadata.allocation.inputs import hash_of
from logboom.wire.hashing import murmur3

if TYPE_CHECKING:
    from collections.abc import Mapping

Given = dict[int, str]
"""Queue → the member that has it."""

MEMBERS = "abcdefgh"
Q = TypeVar("Q", int, tuple[int, int])


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


def test_a_newcomer_gets_queues_of_every_topic() -> None:
    topics = [[(topic, number) for number in range(10)] for topic in range(10)]
    before = allocate_topics("sticky", topics, list(MEMBERS))
    after = allocate_topics("sticky", topics, [*MEMBERS, "i"], previous=before)
    assert {topic for topic, _ in after["i"]} == set(range(10))


def test_a_join_of_a_group_with_many_small_topics_moves_only_what_the_newcomer_gets() -> None:
    for queues in (1, 2, 3, 5):
        topics = [[(topic, number) for number in range(queues)] for topic in range(12)]
        allocation = allocate_topics("sticky", topics, ["a"])
        for count in range(2, 9):
            group = list(MEMBERS[:count])
            before, allocation = (
                allocation,
                allocate_topics("sticky", topics, group, previous=allocation),
            )
            sizes = [len(own) for own in allocation.values()]
            assert max(sizes) - min(sizes) <= 1
            assert moved_keys(before, allocation) == set(allocation[group[-1]])


def moved_keys(before: Mapping[str, list[Q]], after: Mapping[str, list[Q]]) -> set[Q]:
    """Queues that had an owner and have another now."""
    had, has = owners(before), owners(after)
    return {queue for queue in had.keys() & has.keys() if had[queue] != has[queue]}


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    steps=st.lists(
        st.sets(st.sampled_from(MEMBERS), min_size=1, max_size=6), min_size=2, max_size=5
    ),
)
def test_sticky_is_even_in_each_topic_and_in_all_and_rests_there(
    counts: list[int], steps: list[set[str]]
) -> None:
    topics = [[(topic, number) for number in range(count)] for topic, count in enumerate(counts)]
    allocation: dict[str, list[tuple[int, int]]] = {}
    for members in steps:
        before = {member: own for member, own in allocation.items() if member in members}
        allocation = allocate_topics("sticky", topics, members, previous=allocation)
        assert sorted(owners(allocation)) == [queue for queues in topics for queue in queues]
        sizes = [len(own) for own in allocation.values()]
        assert max(sizes) - min(sizes) <= 1
        for topic, count in enumerate(counts):
            of = [sum(each == topic for each, _ in own) for own in allocation.values()]
            assert max(of) - min(of) <= 1
            assert sum(of) == count
        # Nobody gives away and takes of the same topic.
        for member, own in before.items():
            lost = {topic for topic, _ in set(own) - set(allocation[member])}
            won = {topic for topic, _ in set(allocation[member]) - set(own)}
            assert not lost & won
        again = allocate_topics("sticky", topics, members, previous=allocation)
        assert again == allocation


# Consistent hash


@given(
    queues=st.lists(st.integers(0, 999), min_size=1, max_size=80, unique=True),
    members=st.lists(st.text("abc", min_size=1), min_size=1, max_size=12, unique=True),
    virtual_nodes=st.integers(1, 30),
)
def test_loads_are_bounded_and_nobody_idles_beside_two(
    queues: list[int], members: list[str], virtual_nodes: int
) -> None:
    found = allocate("consistent_hash", queues, members, virtual_nodes=virtual_nodes)
    assert sorted(owners(found)) == sorted(queues)
    sizes = [len(own) for own in found.values()]
    mean = len(queues) / len(members)
    assert max(sizes) <= math.floor(1.25 * mean) + 1
    assert min(sizes) >= min(1, len(queues) // len(members))


def test_of_64_queues_none_of_eight_members_has_half_as_many_again() -> None:
    rng = random.Random(5)
    for _ in range(100):
        group = [f"member-{rng.getrandbits(40):x}" for _ in range(8)]
        topic = rng.randrange(1000)
        found = allocate("consistent_hash", [(topic, number) for number in range(64)], group)
        assert max(len(own) for own in found.values()) < 1.5 * 8


def test_a_join_moves_few_and_mostly_to_the_newcomer() -> None:
    rng = random.Random(6)
    shifted = taken = 0
    for _ in range(50):
        group = [f"member-{rng.getrandbits(40):x}" for _ in range(8)]
        before = owners(allocate("consistent_hash", range(64), group))
        after = owners(allocate("consistent_hash", range(64), [*group, "newcomer"]))
        shifted += len(moved(before, after))
        taken += sum(member == "newcomer" for member in after.values())
    assert shifted / 50 < 2 * 64 / 9, "all that is even and remembers nothing moves more"
    assert taken / shifted > 0.6


@pytest.mark.parametrize(
    ("queues", "members", "virtual_nodes"),
    [(600, 200, 100), (64, 16, 100), (20, 10, 3), (10, 20, 3)],
)
def test_a_member_that_goes_takes_few_queues_of_others_along(
    queues: int, members: int, virtual_nodes: int
) -> None:
    rng = random.Random(8)
    shifted = own = 0
    for _ in range(30):
        group = [f"member-{rng.getrandbits(40):x}" for _ in range(members)]
        both = (group, group[1:])
        before, after = (
            allocate("consistent_hash", range(queues), some, virtual_nodes=virtual_nodes)
            for some in both
        )
        # Read backwards it is the join of a member.
        shifted += len(moved(owners(before), owners(after)))
        own += len(before[group[0]])
    assert shifted <= 2 * own
    assert own <= 1.5 * 30 * queues / members


def test_with_room_for_all_only_the_queues_of_who_goes_move() -> None:
    rng = random.Random(7)
    roomy = 0
    for _ in range(60):
        group = [f"member-{rng.getrandbits(40):x}" for _ in range(4)]
        whole = allocate("consistent_hash", range(100), group)
        without = allocate("consistent_hash", range(100), group[1:])
        if any(max(map(len, found.values())) > 125 // len(found) for found in (whole, without)):
            continue
        roomy += 1
        # Read backwards it is the join: queues move to nobody but the newcomer.
        assert moved(owners(whole), owners(without)) == set(whole[group[0]])
    assert roomy >= 10


@pytest.mark.parametrize(("queues", "members"), [(20, 10), (10, 20)])
def test_the_references_sizes_with_three_virtual_nodes(queues: int, members: int) -> None:
    group = [f"CID_PREFIX{n}" for n in range(members)]
    found = allocate("consistent_hash", range(queues), group, virtual_nodes=3)
    assert sorted(owners(found)) == list(range(queues))
    assert list(found) == sorted(group)


def test_a_queue_belongs_to_the_first_point_at_or_after_its_hash_that_has_room() -> None:
    group = list("abc")
    points = {murmur3(f"{member}-{n}".encode()): member for member in group for n in range(3)}
    # A queue of a point's own name stands exactly on it; those of the top wrap to the lowest.
    queues = [*map(str, range(400)), *(f"{member}-{n}" for member in group for n in range(3))]
    assert any(murmur3(queue.encode()) > max(points) for queue in queues)
    found = owners(allocate("consistent_hash", queues, group, virtual_nodes=3))
    room = dict.fromkeys(group, len(queues) * 5 // 12 + 1)
    for hashed, queue in sorted((murmur3(queue.encode()), queue) for queue in queues):
        order = sorted(points, key=lambda point: (point < hashed, point))
        owner = next(points[point] for point in order if room[points[point]])
        room[owner] -= 1
        assert found[queue] == owner


def test_where_points_coincide_the_smaller_member_has_the_queue_and_then_the_other() -> None:
    first, second = "m26136", "m45319"  # found by trying names
    assert murmur3(f"{first}-0".encode()) == murmur3(f"{second}-0".encode())
    for queue in range(50):
        both = allocate("consistent_hash", [queue], [second, first, "x"], virtual_nodes=1)
        alone = allocate("consistent_hash", [queue], [second, "x"], virtual_nodes=1)
        assert both[second] == []
        assert both[first] == alone[second]


def test_a_thousand_virtual_nodes_are_nearly_even() -> None:
    found = allocate("consistent_hash", range(10_000), list("abcde"), virtual_nodes=1_000)
    assert all(1_700 < len(own) < 2_300 for own in found.values())


def test_a_queue_is_hashed_by_its_bytes_its_text_or_its_repr() -> None:
    assert hash_of(b"key1") == hash_of("key1") == murmur3(b"key1") == 462881061
    assert hash_of((3, 7)) == murmur3(b"(3, 7)")
