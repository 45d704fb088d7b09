"""Which connections an HTTP listener keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.http_connections import HttpBounds, HttpConnections, within_descriptors

WAIT_S = 10.0


def opened(total: int, per_address: int, addresses: str) -> HttpConnections:
    """Connections 0, 1, … of these addresses, one a second."""
    made = HttpConnections(HttpBounds(total, per_address), WAIT_S)
    for number, address in enumerate(addresses):
        exempt = address == "p"
        assert made.opened(number, address, float(number), is_exempt=exempt) is None
    return made


def test_the_longest_waiting_of_the_same_address_gives_way() -> None:
    connections = opened(10, 3, "abaa")
    connections.served(0)
    assert connections.opened(9, "a", 9.0) == 2
    assert connections.opened(10, "b", 9.0) is None
    assert len(connections) == 5


def test_without_room_the_address_with_the_most_gives_way() -> None:
    connections = opened(5, 4, "abbba")
    assert connections.opened(9, "c", 9.0) == 1
    connections.served(3)
    connections.served(2)
    assert connections.opened(10, "d", 9.0) == 0


def test_who_is_served_gives_way_to_nobody() -> None:
    connections = opened(3, 2, "aab")
    for number in range(3):
        connections.served(number)
    assert connections.opened(9, "a", 9.0) == 9
    assert connections.opened(9, "c", 9.0) == 9
    connections.waits(1, 9.0)
    assert connections.opened(9, "c", 9.0) == 1


def test_a_proxy_has_no_bound_of_its_own() -> None:
    connections = opened(4, 1, "ppp")
    assert connections.opened(9, "p", 9.0, is_exempt=True) is None
    assert connections.opened(10, "p", 9.0, is_exempt=True) == 0


def test_who_waits_too_long_is_late() -> None:
    connections = opened(9, 0, "abc")
    assert connections.late(WAIT_S - 1) == []
    assert connections.late(WAIT_S) == [0]
    connections.served(0)
    assert connections.late(WAIT_S + 1.0) == [1]
    # A second look at the same waiting changes nothing; a part of an answer that was taken does.
    connections.waits(1, WAIT_S)
    assert connections.late(WAIT_S + 1.0) == [1]
    connections.took(1, WAIT_S)
    assert connections.late(WAIT_S + 1.0) == []
    connections.waits(0, WAIT_S)
    assert connections.late(2 * WAIT_S + 2.0) == [1, 2, 0]


def test_a_process_with_few_descriptors_has_fewer() -> None:
    assert within_descriptors(HttpBounds(1_000, 100), 1_024) == (512, 100)
    assert within_descriptors(HttpBounds(1_000, 100), 64) == (32, 32)
    assert within_descriptors(HttpBounds(1_000, 100), 1) == (1, 1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["open", "serve", "wait", "close"]),
            st.integers(0, 9),
            st.sampled_from("abc"),
        ),
        max_size=60,
    )
)
def test_the_bounds_hold_whatever_happens(steps: list[tuple[str, int, str]]) -> None:
    connections = HttpConnections(HttpBounds(4, 2), WAIT_S)
    held: dict[int, str] = {}
    served: set[int] = set()
    for now, (what, number, address) in enumerate(steps):
        if what == "open" and number not in held:
            leaving = connections.opened(number, address, now)
            if leaving == number:
                continue
            assert leaving not in served
            if leaving is not None:
                del held[leaving]
            held[number] = address
        elif what == "serve":
            connections.served(number)
            served |= {number} & held.keys()
        elif what == "wait":
            connections.waits(number, now)
            served.discard(number)
        elif what == "close":
            connections.closed(number)
            held.pop(number, None)
        served &= held.keys()
        assert len(connections) == len(held) <= 4
        assert all([*held.values()].count(each) <= 2 for each in held.values())
        assert set(connections.late(1e9)) == held.keys() - served
