"""Holds: exact deadlines, and only the waiters of one key are woken."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.nodes.requests.held_shares import IN_ALL, OF_CONNECTION, OF_USER, Bound, HeldShares
from logboom.nodes.requests.holds import Hold, Holds
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.errors import Unavailable
from logboom.wire.frames import memory_of
from logboom.wire.messages import Ping, Pull, Watch
from tests.thorough import examples

ME = PeerAddress("main", b"me")
INFINITE = float("inf")


def test_nothing_waits() -> None:
    holds: Holds[int, Ping] = Holds()
    assert len(holds) == 0
    assert holds.deadline() == INFINITE
    assert holds.take(1) == []
    assert holds.expired(1e9) == []


def test_a_wake_takes_all_of_one_key_in_order_and_no_others() -> None:
    holds: Holds[int, Ping] = Holds()
    for number in range(1_000):
        holds.add(number % 2, number, Hold(ME, Ping(number), 50.0 + number))
    assert [hold.message.id for hold in holds.take(1)] == list(range(1, 1_000, 2))
    assert len(holds) == 500
    assert holds.deadline() == 50.0


def test_a_deadline_is_exact() -> None:
    holds: Holds[int, Ping] = Holds()
    holds.add(1, 1, Hold(ME, Ping(1), 10.0))
    holds.add(1, 2, Hold(ME, Ping(2), 10.5))
    assert holds.deadline() == 10.0
    assert holds.expired(9.999_999) == []
    assert [hold.message.id for _, hold in holds.expired(10.0)] == [1]
    assert holds.deadline() == 10.5


def test_a_request_sent_again_replaces_its_older_self() -> None:
    holds: Holds[int, Ping] = Holds()
    holds.add(1, 7, Hold(ME, Ping(1), 10.0))
    holds.add(1, 7, Hold(ME, Ping(2), 20.0))
    assert len(holds) == 1
    assert holds.expired(15.0) == []
    assert [hold.message.id for _, hold in holds.expired(20.0)] == [2]


def test_woken_holds_leave_no_weight_behind() -> None:
    holds: Holds[int, Ping] = Holds()
    for number in range(100_000):
        holds.add(1, number, Hold(ME, Ping(0), 1e6 + number))
        holds.take(1)
    assert len(holds._deadlines) < 1_000  # noqa: SLF001 - the weight is inside


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 3), st.integers(0, 9), st.integers(1, 60)),
            st.tuples(st.just("take"), st.integers(0, 3), st.just(0), st.just(0)),
            st.tuples(st.just("wait"), st.just(0), st.just(0), st.integers(0, 20)),
        ),
        max_size=120,
    )
)
def test_as_a_plain_table_would(steps: list[tuple[str, int, int, int]]) -> None:
    holds: Holds[int, Ping] = Holds()
    plain: dict[tuple[int, int], float] = {}
    now = 0.0
    for kind, key, number, span in steps:
        if kind == "add":
            plain[key, number] = now + span
            holds.add(key, number, Hold(ME, Ping(number), now + span))
        elif kind == "take":
            taken = {hold.message.id for hold in holds.take(key)}
            assert taken == {n for k, n in plain if k == key}
            plain = {place: due for place, due in plain.items() if place[0] != key}
        else:
            now += span
            expired = {(key, hold.message.id) for key, hold in holds.expired(now)}
            assert expired == {place for place, due in plain.items() if due <= now}
            plain = {place: due for place, due in plain.items() if due > now}
        assert len(holds) == len(plain)
        assert holds.held_bytes == 7 * len(plain)
        assert holds.deadline() == min(plain.values(), default=INFINITE)


def waiting(number: int, peer: str, message: Ping | Watch | None = None) -> Hold[Any]:
    """A hold of one of many connections."""
    return Hold(PeerAddress("main", peer.encode()), message or Ping(number), 10.0)


def test_what_waits_is_bounded_in_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    # Counting a hundred thousand takes its time.
    monkeypatch.setattr("logboom.nodes.requests.held_shares.IN_ALL", Bound(1_000, 1_000_000))
    holds: Holds[int, Ping] = Holds()
    for number in range(1_000):
        holds.add(number % 7, number, holds.checked(waiting(number, f"peer {number % 11}")))
    with pytest.raises(Unavailable) as caught:
        holds.checked(waiting(1, "another"))
    assert caught.value.code == "BUSY"
    holds.take(3)
    holds.checked(waiting(1, "another"))


def test_what_waits_is_bounded_in_bytes() -> None:
    holds: Holds[int, Watch] = Holds()
    names = ["x" * 127] * 16_000
    most = IN_ALL.size // memory_of(Watch(1, 1_000, 1, names, 1_000)) + 1
    for number in range(most):
        message = Watch(number, 1_000, 1, names, 1_000)
        holds.add(1, number, holds.checked(waiting(number, f"peer {number}", message)))
    with pytest.raises(Unavailable, match="ask again"):
        holds.checked(waiting(0, "another"))
    assert len(holds.expired(10.0)) == most
    assert holds.held_bytes == 0
    holds.checked(waiting(0, "another"))


def test_short_tags_count_as_what_they_take() -> None:
    holds: Holds[int, Pull] = Holds()

    def tagged(number: int) -> Hold[Pull]:
        tags = [f"{tag:02x}" for tag in range(256)]
        message = Pull(number, 1_000, "t", 0, 0, 1, 1_000, tags=tags)
        return Hold(PeerAddress("main", b"greedy"), message, 10.0)

    tracemalloc.start()
    try:
        with contextlib.suppress(Unavailable):
            for number in range(2_000):
                holds.add(1, number, holds.checked(tagged(number)))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 * OF_CONNECTION.size < taken < 1.2 * OF_CONNECTION.size


def test_a_connection_has_a_share_and_leaves_room_for_others() -> None:
    holds: Holds[int, Ping] = Holds()
    for number in range(OF_CONNECTION.requests):
        holds.add(1, number, holds.checked(waiting(number, "greedy")))
    with pytest.raises(Unavailable, match="of this connection wait") as caught:
        holds.checked(waiting(0, "greedy"))
    assert caught.value.code == "BUSY"
    holds.checked(waiting(0, "modest"))
    holds.take_first(1, 1)
    holds.checked(waiting(0, "greedy"))


def test_a_user_has_a_share_whatever_connections_it_opens() -> None:
    sessions = {}
    for number in range(100):
        user = "mallory" if number % 2 else "alice"
        address = PeerAddress("main", f"peer {number}".encode())
        sessions[address] = PeerSession(
            address, f"client {number}", "client", 0, 1, 0.0, principal=f"{user}/key#1"
        )
    holds: Holds[int, Watch] = Holds(HeldShares(sessions.get))
    message = Watch(1, 1_000, 1, ["x" * 127] * 8_000, 1_000)
    fits = OF_USER.size // memory_of(message)
    for number in range(1, 2 * fits, 2):
        holds.add(1, number, holds.checked(waiting(number, f"peer {number}", message)))
    with pytest.raises(Unavailable, match="of this user wait"):
        holds.checked(waiting(99, "peer 99", message))
    holds.checked(waiting(0, "peer 0", message))
    sessions.clear()  # Their sessions end before their requests do.
    holds.take(1)
    assert holds.held_bytes == 0


def test_not_all_that_expire_or_wake_are_taken_at_once() -> None:
    holds: Holds[int, Ping] = Holds()
    for number in range(10):
        holds.add(1, number, waiting(number, "peer"))
    assert [hold.message.id for hold in holds.take_first(1, 3)] == [0, 1, 2]
    assert [hold.message.id for _, hold in holds.expired(10.0, 3)] == [3, 4, 5]
    assert holds.deadline() == 10.0
    assert holds.count_of(1) == 4
    assert len(holds.take_first(1, 9)) == 4
    assert len(holds) == holds.held_bytes == 0
