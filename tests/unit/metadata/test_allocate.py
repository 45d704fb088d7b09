"""Allocation: RocketMQ's vectors, what every strategy keeps, and what is refused how."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.metadata.allocate import (
    DEFAULT,
    STRATEGIES,
    InvalidAllocation,
    allocate,
    owners,
)
from logboom.wire.errors import InvalidRequest

names = st.lists(st.text("abc-0", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)
numbers = st.lists(st.integers(0, 99), min_size=1, max_size=40, unique=True)

OWNING_ALL = [name for name in STRATEGIES if name not in {"by_config", "machine_room"}]
EVEN = ["averagely", "averagely_by_circle", "sticky"]


def clients(count: int) -> list[str]:
    return [f"client-{n}" for n in range(count)]


def lists(strategy: str, queues: int, members: int, **options: Any) -> list[list[int]]:
    """Queues 0..n-1 of each member in the members' order."""
    return list(allocate(strategy, range(queues), clients(members), **options).values())


def room_of(value: int | str) -> str:
    """Two rooms: a member's by its last letter, a queue's by being odd."""
    return "east" if (value if isinstance(value, int) else ord(value[-1])) % 2 else "west"


OPTIONS: dict[str, dict[str, Any]] = {
    "by_config": {"config": {}},
    "machine_room": {"rooms": ["east"], "room_of": room_of},
    "machine_room_nearby": {"room_of": room_of},
    "sticky": {"previous": {"a": [1, 2, 3], "b": [50], "gone": [4, 5, 6]}},
}
"""What a strategy needs, to run it on `names` and `numbers`."""


# The vectors


@pytest.mark.parametrize(
    ("queues", "members", "expected"),
    [
        (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (6, 2, [[0, 1, 2], [3, 4, 5]]),
        (2, 4, [[0], [1], [], []]),
        (4, 4, [[0], [1], [2], [3]]),
        (5, 1, [[0, 1, 2, 3, 4]]),
    ],
)
def test_averagely(queues: int, members: int, expected: list[list[int]]) -> None:
    assert lists("averagely", queues, members) == expected


@given(st.integers(1, 60), st.integers(1, 60))
def test_averagely_is_the_formula_of_the_reference(queues: int, members: int) -> None:
    rest = queues % members
    for rank, own in enumerate(lists("averagely", queues, members)):
        more = rest > 0 and rank < rest
        size = 1 if queues <= members else queues // members + more
        start = rank * size + (0 if more else rest)
        assert own == list(range(start, start + max(0, min(size, queues - start))))


def test_averagely_by_circle() -> None:
    assert lists("averagely_by_circle", 10, 4) == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]


def test_by_config_gives_what_is_written_even_twice() -> None:
    everything = [0, 1, 2, 3]
    assert lists("by_config", 4, 2, config=everything) == [everything, everything]
    written = {"client-0": [3, 1], "client-1": [1]}
    assert lists("by_config", 4, 3, config=written) == [[3, 1], [1], []]


def test_machine_room() -> None:
    options = {"rooms": {"room1"}, "room_of": lambda queue: "room1" if queue < 5 else "room2"}
    assert lists("machine_room", 10, 2, **options) == [[0, 1, 4], [2, 3]]
    options["rooms"] = ["room2", "room1"]
    assert lists("machine_room", 10, 2, **options) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    options["rooms"] = ["room3"]
    assert lists("machine_room", 10, 2, **options) == [[], []]


def test_an_unknown_member_has_nothing() -> None:
    assert "stranger" not in allocate("averagely_by_circle", range(10), clients(4))


def test_by_members_own_order_queues_of_any_kind() -> None:
    assert allocate("averagely", [("t", 1), ("s", 9), ("t", 0)], ["b", "B", "a10", "a9"]) == {
        "B": [("s", 9)],
        "a10": [("t", 0)],
        "a9": [("t", 1)],
        "b": [],
    }
    unhashable = [["t", 1], ["t", 0]]
    for strategy in OWNING_ALL:
        found = allocate(
            strategy, unhashable, ["a"], room_of=lambda _: "east", previous={"a": [["t", 0]]}
        )
        assert found == {"a": [["t", 0], ["t", 1]]}


# What all keep


@pytest.mark.parametrize("strategy", OWNING_ALL)
@given(queues=numbers, members=names)
def test_every_queue_is_owned_once(strategy: str, queues: list[int], members: list[str]) -> None:
    found = allocate(strategy, queues, members, **OPTIONS.get(strategy, {}))
    assert list(found) == sorted(members)
    assert sorted(queue for own in found.values() for queue in own) == sorted(queues)
    assert all(own == sorted(own) for own in found.values())


@pytest.mark.parametrize("strategy", EVEN)
@given(queues=numbers, members=names)
def test_sizes_differ_by_at_most_one(strategy: str, queues: list[int], members: list[str]) -> None:
    found = allocate(strategy, queues, members, **OPTIONS.get(strategy, {}))
    sizes = [len(own) for own in found.values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(queues=numbers, members=names, seed=st.integers(0, 1 << 30))
def test_the_order_of_what_is_named_does_not_matter(
    strategy: str, queues: list[int], members: list[str], seed: int
) -> None:
    options = OPTIONS.get(strategy, {})
    first = allocate(strategy, queues, members, **options)
    rng = random.Random(seed)
    mixed = dict(options)
    if "previous" in mixed:
        turned = {m: own[::-1] for m, own in reversed(mixed["previous"].items())}
        mixed["previous"] = turned
    again = allocate(
        strategy, rng.sample(queues, len(queues)), rng.sample(members, len(members)), **mixed
    )
    assert list(again.items()) == list(first.items())


def test_iterators_are_read_once_and_arguments_left_alone() -> None:
    queues, members = [3, 1, 2], ["b", "a"]
    previous = {"a": [3, 2, 1]}
    config = {"a": [3, 1]}
    for strategy in STRATEGIES:
        options = OPTIONS.get(strategy, {}) | {"previous": previous, "config": config}
        fixed = allocate(strategy, queues, members, **options)
        assert allocate(strategy, iter(queues), iter(members), **options) == fixed
        for own in fixed.values():
            own.clear()
    assert (queues, members) == ([3, 1, 2], ["b", "a"])
    assert (previous, config) == ({"a": [3, 2, 1]}, {"a": [3, 1]})


def test_one_list_of_by_config_is_not_shared_by_the_members() -> None:
    found = allocate("by_config", [1, 2], ["a", "b"], config=iter([1, 2]))
    found["a"].clear()
    assert found["b"] == [1, 2]


# Rooms


@given(
    queues=st.dictionaries(st.integers(0, 99), st.sampled_from("uvwxyz"), min_size=1, max_size=30),
    members=st.dictionaries(st.text("abc", min_size=1), st.sampled_from("uvwxyz"), min_size=1),
)
def test_nearby_stays_in_the_room_and_spreads_deserted_rooms(
    queues: dict[int, str], members: dict[str, str]
) -> None:
    room: dict[Any, str] = {**queues, **members}
    found = allocate("machine_room_nearby", queues, members, room_of=room.__getitem__)
    inhabited = set(members.values())
    for member, own in found.items():
        assert {room[q] for q in own} & inhabited <= {members[member]}
    for name in inhabited:
        neighbours = [m for m in members if members[m] == name]
        sizes = [sum(room[q] == name for q in found[m]) for m in neighbours]
        assert max(sizes) - min(sizes) <= 1
    deserted = [sum(room[q] not in inhabited for q in own) for own in found.values()]
    assert max(deserted) - min(deserted) <= 1


@given(queues=numbers, members=names)
def test_machine_room_owns_its_rooms_and_nothing_else(
    queues: list[int], members: list[str]
) -> None:
    found = allocate("machine_room", queues, members, rooms=["east"], room_of=room_of)
    assert sorted(q for own in found.values() for q in own) == sorted(q for q in queues if q % 2)
    sizes = [len(own) for own in found.values()]
    assert max(sizes) - min(sizes) <= 1


# Owners, the other way round


def test_owners() -> None:
    assert owners({"a": [2, 0], "b": [1], "c": []}) == {0: "a", 1: "b", 2: "a"}
    with pytest.raises(InvalidAllocation, match="queue 1 is given to 'a' and to 'b'"):
        owners(allocate("by_config", [1], ["a", "b"], config=[1]))


# What is refused


@pytest.mark.parametrize(
    ("strategy", "queues", "members", "options", "text"),
    [
        ("avg", [1], ["a"], {}, "no strategy 'avg': choose from averagely, .*sticky"),
        ("", [1], ["a"], {}, "no strategy ''"),
        *[(name, [], ["a"], OPTIONS.get(name, {}), "no queues") for name in STRATEGIES],
        *[(name, [1], [], OPTIONS.get(name, {}), "no members") for name in STRATEGIES],
        *[(name, [1, 2, 1], ["a"], {}, "queue 1 comes twice") for name in STRATEGIES],
        *[(name, [1], ["b", "a", "b"], {}, "member 'b' comes twice") for name in STRATEGIES],
        ("averagely", [1, "x"], ["a"], {}, "cannot be sorted"),
        ("by_config", [1], ["a"], {}, "needs config="),
        ("by_config", [1], ["a"], {"config": {"c": [], "b": [1]}}, "member 'b'"),
        ("by_config", [1], ["a"], {"config": {"a": [1, 2]}}, "'a' queue 2, which does not exist"),
        ("by_config", [1], ["a"], {"config": {"a": ["x"]}}, "'a' queue 'x', which does not"),
        ("by_config", [1], ["a"], {"config": {"a": [1, 1]}}, "'a' queue 1 twice"),
        ("by_config", [1], ["a"], {"config": [0]}, "'a' queue 0, which does not exist"),
        ("machine_room", [1], ["a"], {"room_of": room_of}, "needs rooms="),
        ("machine_room", [1], ["a"], {"rooms": "east", "room_of": room_of}, "needs rooms="),
        ("machine_room", [1], ["a"], {"rooms": ["east"]}, "machine_room needs room_of="),
        ("machine_room_nearby", [1], ["a"], {}, "machine_room_nearby needs room_of="),
        (
            "machine_room",
            [1],
            ["a"],
            {"rooms": [""], "room_of": lambda _: ""},
            "queue 1 has no room",
        ),
        (
            "machine_room_nearby",
            [1],
            ["a"],
            {"room_of": {"a": "east"}.get},
            "queue 1 has no room",
        ),
        (
            "machine_room_nearby",
            [1],
            ["a"],
            {"room_of": {1: "east"}.get},
            "member 'a' has no room",
        ),
        ("consistent_hash", [1], ["a"], {"virtual_nodes": 0}, "virtual_nodes is 0, choose 1 to"),
        ("consistent_hash", [1], ["a"], {"virtual_nodes": 1001}, "virtual_nodes is 1001"),
        (
            "sticky",
            [1],
            ["a", "b"],
            {"previous": {"b": [1], "a": [1]}},
            "previous gives queue 1 to 'a' and to 'b'",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    strategy: str, queues: list[Any], members: list[str], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidAllocation, match=text) as caught:
        allocate(strategy, queues, members, **options)
    assert isinstance(caught.value, InvalidRequest)
    assert isinstance(caught.value, ValueError)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert "\n" not in str(caught.value)


def test_the_default_is_a_strategy_and_needs_no_option() -> None:
    assert DEFAULT in STRATEGIES
    assert allocate(DEFAULT, range(5), ["b", "a"]) == {"a": [0, 2, 4], "b": [1, 3]}
