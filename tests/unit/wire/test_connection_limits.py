"""How many connections an address may have and open, and when a node accepts none at all."""

import pytest

from logboom.wire.connection_limits import (
    ADMITTED,
    FORGOTTEN_EVERY_S,
    HANDSHAKE_OVER_S,
    ConnectionBook,
    ConnectionLimits,
    DescriptorGate,
    UnheardConnections,
    is_exempt,
    refusal_text,
)

STRANGER = "10.0.0.9"


def book(per_address: int = 10, per_s: int = 5) -> ConnectionBook:
    return ConnectionBook(ConnectionLimits(per_address, per_s))


def test_an_address_has_so_many_and_no_more() -> None:
    found = book()
    assert [found.opened(n, STRANGER, 0) for n in range(12)] == [None] * 10 + ["connections"] * 2
    assert len(found) == 10
    assert found.opened(12, "10.0.0.8", 0) is None
    found.closed(3)
    assert found.opened(3, STRANGER, 1) is None
    assert found.opened(13, STRANGER, 1) == "connections"


def test_a_connection_that_was_refused_leaves_nothing() -> None:
    found = book(1)
    found.opened(1, STRANGER, 0)
    assert found.opened(2, STRANGER, 0) == "connections"
    found.closed(2)
    assert found.opened(2, STRANGER, 0) == "connections"


def test_a_descriptor_that_comes_again_ends_the_connection_before() -> None:
    found = book(2)
    assert {found.opened(7, STRANGER, at) for at in range(5)} == {None}
    assert len(found) == 1


def test_who_comes_and_goes_is_slowed_down() -> None:
    found = book(10, 5)
    opened = 0
    for at in range(1_000):
        if found.opened(at, STRANGER, at / 100) is None:
            opened += 1
            found.closed(at)
    # A burst of 10, and 5 a second in 10 seconds.
    assert 55 <= opened <= 61
    assert found.opened(1, STRANGER, 100) is None


def comes_and_goes(found: ConnectionBook, now: float) -> str | None:
    refused = found.opened(1, STRANGER, now)
    found.closed(1)
    return refused


def test_who_has_used_up_the_burst_waits_for_a_whole_connection() -> None:
    found = book(2, 1)
    assert [comes_and_goes(found, 0) for _ in range(3)] == [None, None, "rate"]
    assert comes_and_goes(found, 0.5) == "rate"
    assert [comes_and_goes(found, 1) for _ in range(2)] == [None, "rate"]


def test_the_burst_does_not_grow_while_nothing_is_opened() -> None:
    found = book(2, 1)
    assert found.opened(0, STRANGER, 0) is None
    assert [comes_and_goes(found, 1_000) for _ in range(3)] == [None, None, "rate"]


def test_zero_is_no_limit() -> None:
    found = book(0)
    assert {found.opened(n, STRANGER, 0) for n in range(5_000)} == {None}


def test_loopback_has_no_limit() -> None:
    found = book(1)
    assert {found.opened(n, "127.0.0.1", 0) for n in range(500)} == {None}
    assert is_exempt("127.8.0.1")
    assert is_exempt("::1")
    assert is_exempt("::ffff:127.0.0.1")
    assert not is_exempt("10.0.0.1")
    assert not is_exempt("::ffff:10.0.0.1")
    assert not is_exempt("what")


def test_addresses_without_connections_are_forgotten() -> None:
    found = book()
    for n in range(100):
        found.opened(n, f"10.0.1.{n}", 0)
        if n:
            found.closed(n)
    found.opened(1, STRANGER, 2 * FORGOTTEN_EVERY_S)
    assert found.callers == 2
    assert found.opened(0, STRANGER, 2 * FORGOTTEN_EVERY_S) is None


def test_the_gate_shuts_late_and_opens_later() -> None:
    gate, seen = DescriptorGate(), list[tuple[int, bool]]()
    for used in (0, 89, 90, 99, 100, 80, 79, 85, 89, 90):
        if gate.follow(used, 100):
            seen.append((used, gate.is_open))
    assert seen == [(90, False), (79, True), (90, False)]


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("connections", "max_connections_per_address"),
        ("rate", "5 a second"),
        ("descriptors", "LimitNOFILE"),
    ],
)
def test_the_remedy_is_named(reason: str, word: str) -> None:
    # The literal type is of no use to a parametrized test.
    assert word in refusal_text(reason, ConnectionLimits(10, 5))  # type: ignore[arg-type]  # see above


def unheard(count: int = ADMITTED + 3) -> UnheardConnections:
    found = UnheardConnections()
    assert [found.opened(n, 0) for n in range(count)] == [n < ADMITTED for n in range(count)]
    return found


def test_as_many_unheard_connections_are_admitted_as_there_is_room_for() -> None:
    found = unheard()
    assert found.admit(1) == []
    assert not found.closed(0)
    assert found.admit(1) == [ADMITTED]
    assert found.admit(1) == []
    assert not found.opened(0, 1)


def test_a_connection_that_was_heard_needs_no_room() -> None:
    found = unheard()
    assert found.closed(ADMITTED + 1)
    assert ADMITTED + 1 not in found
    assert found.admit(1) == []
    found.closed(3)
    found.closed(4)
    assert found.admit(1) == [ADMITTED, ADMITTED + 2]


def test_who_is_there_after_the_handshake_is_admitted() -> None:
    found = unheard()
    assert not found.opened(100, 1)
    assert found.admit(HANDSHAKE_OVER_S - 0.1) == []
    assert found.admit(HANDSHAKE_OVER_S) == [*range(ADMITTED, ADMITTED + 3), 100]
    assert 0 not in found
    assert found.opened(101, HANDSHAKE_OVER_S)


def test_a_descriptor_that_comes_again_is_another_connection() -> None:
    found = unheard(ADMITTED)
    assert {found.opened(5, at) for at in range(50)} == {True}
    assert not found.opened(ADMITTED, 50)
