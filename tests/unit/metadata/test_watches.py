"""Held watches: what many strangers together may keep waiting is bounded."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from logboom.metadata.watch import watch_handler
from logboom.metadata.watch.held_watches import (
    MAX_HOLDS,
    MAX_NAME_BYTES,
    MAX_NAME_BYTES_OF_CONNECTION,
    MAX_OF_CONNECTION,
    MAX_OF_USER,
    MOST_ASKED,
    Change,
    HeldWatch,
    HeldWatches,
)
from logboom.metadata.watch.watch_handler import TURN_ANSWERS
from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_rules import AccessRule, AccessView, RoleView, UserView
from logboom.wire.actor import Instant, PeerAddress, Received, Send
from logboom.wire.frames import decode, encode
from logboom.wire.messages import EncodedWatchResult, Hello, Watch, WatchResult
from logboom.wire.sight import Sight
from logboom.wire.view import View
from tests.unit.metadata.name_servers import Group
from tests.unit.wire.work import longest_ms, without_garbage_of_others

ME = PeerAddress("main", b"me")
MOST_MS: Final = 10.0


def peer(number: int) -> PeerAddress:
    """One of many connections."""
    return PeerAddress("main", b"peer %d" % number)


def test_one_watch_that_is_sent_again_and_again_leaves_no_weight_behind() -> None:
    watches = HeldWatches()
    for number in range(10_000):
        assert watches.add(HeldWatch(ME, 1, 1, frozenset({"a"}), 60.0 + number))
    assert len(watches) == 1
    assert len(watches._deadlines) < 200  # noqa: SLF001 - the weight is inside
    assert len(watches.take_due(60.0 + 9_999)) == 1


def test_short_names_count_as_what_they_take() -> None:
    watches = HeldWatches()

    def held(number: int) -> HeldWatch:
        names = frozenset(f"{name:x}" for name in range(5_000))
        return HeldWatch(ME, number, 1, names, 60.0)

    tracemalloc.start()
    try:
        count = 0
        while watches.add(held(count)):
            count += 1
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.2 * MAX_NAME_BYTES_OF_CONNECTION
    # The same one sent again takes no more.
    assert watches.add(held(0))
    watches.forget([ME])
    assert all(watches.add(held(number)) for number in range(count))


def test_the_memory_of_names_is_bounded_whatever_their_length() -> None:
    watches = HeldWatches()
    beside = HeldWatch(ME, 0, 1, frozenset({"x"}), 60.0).name_bytes - 1
    length = MAX_NAME_BYTES // 32 - beside
    topic, group = "x" * length, "y" * length
    holds = [
        HeldWatch(peer(number), 1, 1, frozenset({topic}), 60.0, frozenset({group}))
        for number in range(17)
    ]
    assert [watches.add(hold) for hold in holds] == [True] * 16 + [False]
    assert watches.add(holds[0])
    assert watches.follow(Change(2, {topic}, ())) == []
    assert len(watches.take_woken()) == 16
    assert all(watches.add(hold) for hold in holds[:16])
    assert not watches.add(HeldWatch(ME, 9, 1, frozenset({"a"}), 60.0))


def test_names_beyond_ascii_count_as_wide_as_they_are_held() -> None:
    watches = HeldWatches()
    name = "\N{ROCKET}" + "x" * (MAX_NAME_BYTES_OF_CONNECTION // 8)
    holds = [HeldWatch(ME, number, 1, frozenset({name}), 60.0) for number in range(2)]
    assert [watches.add(hold) for hold in holds] == [True, False]


def test_a_connection_and_a_user_leave_room_for_others() -> None:
    watches = HeldWatches()

    def held(connection: int, number: int, user: str = "") -> HeldWatch:
        return HeldWatch(peer(connection), number, 1, None, 60.0, user=user)

    assert all(watches.add(held(0, number)) for number in range(MAX_OF_CONNECTION))
    assert not watches.add(held(0, MAX_OF_CONNECTION))
    assert not watches.make_ready(held(0, MAX_OF_CONNECTION))
    connections = MAX_OF_USER // MAX_OF_CONNECTION + 1
    mallory = [
        watches.add(held(1 + connection, number, "mallory"))
        for connection in range(connections)
        for number in range(MAX_OF_CONNECTION)
    ]
    assert mallory.count(True) == MAX_OF_USER
    assert watches.add(held(1_000, 1, "alice"))
    watches.forget([peer(number) for number in range(1_001)])
    assert watches.add(held(1, 1, "mallory"))
    assert len(watches) == 1


@pytest.mark.parametrize("changed", [1, MOST_ASKED, 1_000])
@pytest.mark.parametrize("learns", [True, False])
def test_what_has_changed_is_compared_with_very_many_watches_in_slices(
    changed: int, learns: bool
) -> None:
    """They are of 1,000 users with many rules, and each names all that changes."""
    topics = frozenset(f"topic-{number}" for number in range(changed))
    rules = [AccessRule(True, "describe", "topic", f"other-{number}-*") for number in range(500)]
    rules += [AccessRule(True, "describe", "topic", "topic-*")] if learns else []
    users = [UserView(f"user-{n}", [], ["team"], version=1) for n in range(1_000)]

    def begin() -> Callable[[], bool]:
        book = AccessBook()
        book.update(AccessView(True, users, [RoleView("team", rules)]), 1)
        watches = HeldWatches()
        for number in range(MAX_HOLDS):
            sight = Sight(lambda: book, users[number % 1_000].name)
            if not watches.add(HeldWatch(peer(number), 1, 1, topics, 60.0, sight=sight)):
                break
        held, woken = len(watches), 0
        assert held > 500
        assert watches.follow(Change(2, topics, ())) == []

        def step() -> bool:
            nonlocal woken
            found = watches.take_woken()
            for hold in found:
                watches.make_ready(hold)
            woken += len(found)
            if watches.compares:
                return True
            assert woken == (held if learns or changed > MOST_ASKED else 0)
            return False

        return step

    with without_garbage_of_others():
        assert longest_ms(begin, MOST_MS) <= MOST_MS


def test_an_encoded_answer_is_the_answer() -> None:
    view = View(7, True, "c", [], [], [], [], [], "name-1")
    encoded = EncodedWatchResult(3, msgspec.Raw(msgspec.msgpack.encode(view)))
    assert encode(encoded) == encode(WatchResult(3, view))
    assert decode(encode(encoded)) == WatchResult(3, view)


def test_a_turn_answers_some_of_many_watches_and_builds_equal_views_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Group()
    core = group.core(group.leader())
    group.run(1.0)
    addresses = [peer(number) for number in range(2 * TURN_ANSWERS + 5)]
    now = Instant(group.scheduler.now, 0)
    hello = Hello(1, 1, 1, "crowd", "client", 1, b"", b"")
    core.handle([Received(each, encode(hello)) for each in addresses], now)
    ask = encode(Watch(2, 60_000, -1, None, 50_000))
    built: list[None] = []

    def view(*args: object, **named: object) -> View:
        built.append(None)
        return View(1, True, "cluster", [], [], [], [], [], None)

    monkeypatch.setattr(watch_handler, "view_since", view)
    turns = []
    effects = core.handle([Received(each, ask) for each in addresses], now)
    while found := answers(effects.sends):
        turns.append(len(found))
        assert len({bytes(send.frames[0]) for send in found}) == 1
        if core.deadline() != float("-inf"):
            break
        effects = core.handle([], now)
    assert turns == [TURN_ANSWERS, TURN_ANSWERS, 5]
    assert len(built) == len(turns)


def answers(sends: list[Send]) -> list[Send]:
    """The answers to watches among what is sent."""
    return [send for send in sends if isinstance(decode(send.frames), WatchResult)]
