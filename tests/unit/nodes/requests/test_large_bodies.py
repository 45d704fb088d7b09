"""Large bodies that requests need are opened over several turns: none lasts, and each is answered."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from logboom.nodes.body_worker import opening_beside
from logboom.nodes.opened_bytes import BEGUN_S, MAX_BEGUN, TURN_STEPS, BegunBodies, OpenedBytes
from logboom.wire.actor import Effects, Received
from logboom.wire.base import WireMessage
from logboom.wire.batch import encode_batch, peek
from logboom.wire.compression import STEP_BYTES
from logboom.wire.errors import DamagedBatch, Unavailable
from logboom.wire.messages import OffsetForTime
from tests.unit.nodes.rig import Peer, Rig, produce
from tests.unit.wire.slow_blocks import slow_batch
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
SIZE: Final = (8 << 20) - 1_000
"""Bytes that a batch opens to."""


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others(), opening_beside():
        yield


def text(size: int) -> bytes:
    """Text that is slow to decompress."""
    return bytes(random.Random(1).choices(b"abcdefgh", k=size))


def large_zstd(size: int = SIZE) -> bytes:
    """Keys that matter behind values of half of the body."""
    whole, each = text(size), size // 8
    parts = [whole[at : at + each] for at in range(0, 8 * each, each)]
    return encode_batch(parts[:4], parts[4:], None, None, [1, 2, 3, 4], now_ms=1, codec="zstd")


BATCHES: Final[dict[str, Callable[[], bytes]]] = {
    "sequences of LZ4": lambda: slow_batch(SIZE),
    "text of Zstandard": large_zstd,
}


def arriving(peer: Peer, message: WireMessage, batches: Sequence[bytes]) -> list[Received]:
    """What arrives when a peer sends a request with batches."""
    out = Effects()
    peer.session.request(message, batches, None, peer.rig.mono + 60, out, peer.rig.mono)
    return [Received(peer.address, send.frames, principal=peer.principal) for send in out.sends]


def asking_again(
    rig: Rig, peers: list[Peer], message: Callable[[], WireMessage], batches: Sequence[bytes]
) -> Callable[[], bool]:
    """Turns in which all peers ask at once, those again that were told to, until all have an answer."""
    left = list(peers)
    gc.collect()
    gc.freeze()

    def turn() -> bool:
        rig.turn(*(event for peer in left for event in arriving(peer, message(), batches)))
        for peer in list(left):
            (reply,) = peer.taken()
            if reply.error is None:
                left.remove(peer)
            else:
                assert reply.error.code == "BUSY"
        return bool(left)

    return turn


def several(rig: Rig, count: int = 3) -> list[Peer]:
    """Clients."""
    return [rig.client(f"c{number}") for number in range(count)]


@pytest.mark.parametrize("case", BATCHES)
def test_no_turn_lasts_that_looks_for_large_messages(case: str) -> None:
    batch = BATCHES[case]()

    def begin() -> Callable[[], bool]:
        rig = Rig()
        rig.lead()
        return asking_again(rig, several(rig, 2), produce, [batch])

    assert longest_ms(begin, MOST_MS) <= MOST_MS


@pytest.mark.parametrize("case", BATCHES)
def test_no_turn_lasts_that_looks_for_a_time(case: str) -> None:
    batch = BATCHES[case]()
    rig = Rig()
    rig.lead()
    sender = rig.client("sender")
    for _ in iter(asking_again(rig, [sender], produce, [batch]), False):
        pass

    def begin() -> Callable[[], bool]:
        return asking_again(
            rig, several(rig), lambda: OffsetForTime(0, 30_000, "flights", 0, 2), []
        )

    assert longest_ms(begin, MOST_MS) <= MOST_MS


# ── what is kept of them ────────────────────────────────────────────────────────────────────────

LARGE: Final = large_zstd(3 * TURN_STEPS * STEP_BYTES // 2)
OTHER: Final = large_zstd(3 * TURN_STEPS * STEP_BYTES // 2 + 64)


def opened(
    begun: BegunBodies, batch: bytes = LARGE, peer: str = "peer", now: float = 0.0
) -> bytes | None:
    """The body as one turn opens it; None: ask again."""
    try:
        return bytes(OpenedBytes(begun, now).begin(peer).open(peek(batch), batch))
    except Unavailable:
        return None


def test_a_body_is_opened_in_several_turns() -> None:
    begun, turns = BegunBodies(), 1
    while (found := opened(begun)) is None:
        turns += 1
    assert 2 <= turns <= 4
    assert len(found) == peek(LARGE).plain_length
    assert opened(begun) is None  # Nothing of it was kept.


def test_another_body_of_a_peer_waits_for_the_first_but_not_for_ever() -> None:
    begun = BegunBodies()
    assert opened(begun) is None
    assert opened(begun, OTHER) is None
    assert opened(begun) is not None
    assert opened(begun) is None
    assert opened(begun, OTHER, now=BEGUN_S) is None
    assert opened(begun, OTHER, now=BEGUN_S) is not None


def test_bodies_that_are_kept_are_few() -> None:
    begun = BegunBodies()
    for number in range(MAX_BEGUN + 1):
        assert opened(begun, peer=f"peer {number}") is None
    for number in range(MAX_BEGUN):
        assert opened(begun, peer=f"peer {number}") is not None
    last = f"peer {MAX_BEGUN}"
    assert opened(begun, peer=last) is None
    assert opened(begun, peer=last) is not None


def test_all_of_a_turn_share_its_steps_and_small_bodies_need_none() -> None:
    small = encode_batch([text(STEP_BYTES // 2)], now_ms=1, codec="zstd")
    turn = OpenedBytes()
    with pytest.raises(Unavailable):
        turn.begin("one").open(peek(LARGE), LARGE)
    with pytest.raises(Unavailable):
        turn.begin("two").open(peek(OTHER), OTHER)
    assert opened(turn.begun, OTHER, "two") is None
    assert len(turn.begin("one").open(peek(small), small)) == peek(small).plain_length


def test_damage_is_told_and_nothing_is_kept_of_it() -> None:
    begun, head = BegunBodies(), peek(LARGE)
    torn = LARGE[:-1000] + bytes(1000)
    assert opened(begun, torn) is None
    with pytest.raises(DamagedBatch):
        opened(begun, torn)
    assert peek(torn) == head
    assert opened(begun) is None
    assert opened(begun) is not None
