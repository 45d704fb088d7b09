"""Pulls that a turn had no time for: bounded work, and whoever got least goes first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logboom.nodes.requests.postponed_pulls import MOST_FOR_PEER, PostponedPull, PostponedPulls
from logboom.nodes.requests.pull_handler import MAX_UNSENT_BYTES
from logboom.wire.actor import Effects, PeerAddress, Received
from logboom.wire.errors import Unavailable
from logboom.wire.messages import Pulled
from tests.unit.nodes.rig import Peer, Rig, batch, produce, pull
from tests.unit.wire.work import longest_ms, without_garbage_of_others


def peer(name: str) -> PeerAddress:
    return PeerAddress("main", name.encode())


def waiting(name: str, number: int = 1) -> PostponedPull:
    message = pull(0)
    message.id = number
    return PostponedPull(peer(name), message, 30.0)


def serve(postponed: PostponedPulls, size: int) -> tuple[bytes, int]:
    taken = postponed.take()
    postponed.done(taken.address, size)
    return taken.address.routing_id, taken.message.id


def test_who_got_least_goes_first_and_each_in_its_own_order() -> None:
    postponed = PostponedPulls()
    for number in (1, 2, 3):
        postponed.add(waiting("greedy", number))
    assert serve(postponed, 100) == (b"greedy", 1)
    postponed.add(waiting("modest", 1))
    postponed.add(waiting("modest", 2))
    assert [serve(postponed, 60) for _ in range(4)] == [
        (b"modest", 1),
        (b"modest", 2),
        (b"greedy", 2),
        (b"greedy", 3),
    ]
    assert len(postponed) == 0


def test_what_waits_is_bounded_for_each_peer() -> None:
    postponed = PostponedPulls()
    assert all(postponed.add(waiting("greedy")) for _ in range(MOST_FOR_PEER))
    assert not postponed.add(waiting("greedy"))
    assert postponed.add(waiting("modest"))
    assert len(postponed) == MOST_FOR_PEER + 1


def test_what_was_got_counts_no_more_once_nobody_waits() -> None:
    postponed = PostponedPulls()
    postponed.add(waiting("greedy"))
    serve(postponed, 1_000)
    postponed.add(waiting("greedy"))
    postponed.add(waiting("modest"))
    assert serve(postponed, 1) == (b"greedy", 1)


# ── at the broker ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A leader of three batches whose turns have room for one of them."""
    monkeypatch.setattr("logboom.nodes.requests.pull_handler.TURN_BYTES", 1)
    rig = Rig()
    rig.lead()
    producer = rig.client("producer")
    for _ in range(3):
        producer.ask(produce(), [batch(2)])
    return rig


def wish(who: Peer, offset: int, unsent_bytes: int = 0, most: int = 1) -> Received:
    """A pull of one batch, or of `most` bytes, as it comes to the broker."""
    out = Effects()
    mono = who.rig.mono
    who.session.request(pull(offset, max_bytes=most), (), None, mono + 60, out, mono)
    (send,) = out.sends
    return Received(who.address, send.frames, unsent_bytes)


def got(who: Peer) -> list[int]:
    """Where the answers to a peer end, since the last look."""
    replies = who.taken()
    assert all(reply.error is None for reply in replies)
    return [reply.message.next_offset for reply in replies if isinstance(reply.message, Pulled)]


def test_a_turn_reads_no_more_than_its_share_and_the_rest_follows(rig: Rig) -> None:
    greedy, modest = rig.client("greedy"), rig.client("modest")
    rig.turn(wish(greedy, 0), wish(greedy, 2), wish(greedy, 4), wish(modest, 0))
    # What was answered at once counts for nobody; then each gets one before anybody's second.
    assert (got(greedy), got(modest)) == ([2], [])
    assert rig.broker.deadline() == float("-inf")
    rig.turn()
    assert (got(greedy), got(modest)) == ([4], [])
    rig.turn()
    assert (got(greedy), got(modest)) == ([], [2])
    rig.turn()
    assert (got(greedy), got(modest)) == ([6], [])
    assert rig.broker.deadline() != float("-inf")


def test_a_postponed_pull_that_nobody_waits_for_is_not_read(rig: Rig) -> None:
    client = rig.client("client")
    rig.turn(wish(client, 0), wish(client, 2))
    assert got(client) == [2]
    rig.mono += 31.0
    counters = rig.broker.stats.counters
    read = counters["pulled_batches"]
    rig.turn()
    assert counters["pulled_batches"] == read
    assert rig.broker.deadline() != float("-inf")


def test_nothing_is_read_for_a_peer_that_takes_nothing(rig: Rig) -> None:
    client = rig.client("never reads")
    counters = rig.broker.stats.counters
    read = counters["pulled_batches"]
    rig.turn(wish(client, 0, MAX_UNSENT_BYTES))
    with pytest.raises(Unavailable, match="read them") as refused:
        client.answer()
    assert (refused.value.code, counters["pulled_batches"]) == ("BUSY", read)


def test_pulls_of_small_batches_make_no_turn_last() -> None:
    rig = Rig()
    rig.lead()
    rig.fill(10_000)
    rig.replica().raise_hw(rig.replica().end)
    readers = [rig.client(f"reader-{number}") for number in range(4)]

    def begin() -> Callable[[], bool]:
        wishes = [wish(reader, 0, most=1 << 30) for reader in readers]
        waiting = {*range(len(readers))}

        def step() -> bool:
            rig.turn(*wishes)
            wishes.clear()
            waiting.difference_update([number for number in waiting if readers[number].taken()])
            return bool(waiting)

        return step

    with without_garbage_of_others():
        assert longest_ms(begin, 10.0) <= 10.0
