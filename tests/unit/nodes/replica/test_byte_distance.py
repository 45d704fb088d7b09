"""How far some bytes go in a queue."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

import pytest

from logboom.nodes.log.index_rows import block_at
from logboom.nodes.replica.byte_distance import UNKNOWN, offset_ahead
from logboom.wire.errors import InvalidRequest
from logboom.wire.messages import Offsets, OffsetsResult
from tests.unit.nodes.rig import Rig, batch, produce


def led(*sizes: tuple[int, int]) -> tuple[Rig, list[int]]:
    """A lone leader with batches of (messages, bytes of each); the bytes of each entry."""
    rig = Rig()
    rig.lead()
    client = rig.client("producer")
    lengths = []
    for count, size in sizes:
        made = batch(count, value=bytes(size))
        lengths.append(len(made))
        client.ask(produce(), [made])
        rig.settle()
        client.taken()
    return rig, lengths


def ahead(rig: Rig, offset: int, most: int) -> tuple[int, int]:
    return offset_ahead(rig.replica(), rig.storage, offset, most)


def test_small_messages_before_large_ones() -> None:
    rig, lengths = led(*[(1, 4)] * 100, *[(1, 50_000)] * 30)
    small, large = lengths[0], lengths[-1]
    assert ahead(rig, 0, 100 * small) == (100, 100 * small)
    assert ahead(rig, 0, 100 * small + 2 * large) == (102, 100 * small + 2 * large)
    assert ahead(rig, 100, 3 * large + 1)[0] == 103
    # At least one message, and never beyond the end.
    assert ahead(rig, 100, 1) == (101, large)
    assert ahead(rig, 0, 1 << 40) == (130, sum(lengths))
    assert ahead(rig, 130, 1) == (130, 0)


def test_a_batch_that_does_not_fit_is_divided() -> None:
    rig, (length,) = led((1_000, 100))
    stop, size = ahead(rig, 0, length // 4)
    assert stop == 250
    assert abs(size - length // 4) <= length // 1_000
    assert ahead(rig, 900, length) == (1_000, length // 10)
    assert ahead(rig, 900, length // 20 + 1)[0] == 950


def test_it_is_the_same_with_and_without_an_index() -> None:
    rng = random.Random(5)
    rig, lengths = led(*((1, rng.choice((10, 3_000, 40_000))) for _ in range(700)))
    for _ in range(20):
        rig.settle(1.0)
    replica = rig.replica()
    assert block_at(rig.storage, *replica.key, 0) is not None
    upto = [0, *accumulate(lengths)]
    for _ in range(60):
        begin, most = rng.randrange(700), rng.randrange(1, 8_000_000)
        stop, size = ahead(rig, begin, most)
        assert size == upto[stop] - upto[begin]
        assert stop == begin + 1 or size <= most
        assert stop == 700 or upto[stop + 1] - upto[begin] > most


def test_it_is_answered_beside_the_offsets() -> None:
    rig, lengths = led((3, 100), (2, 100))
    client = rig.client("reader")

    def asked(begins: Sequence[int] = (), max_bytes: int = 0) -> OffsetsResult:
        client.ask(Offsets(0, 1_000, "flights", [0], 0, [*begins], max_bytes))
        answer = client.answer()
        assert isinstance(answer, OffsetsResult)
        return answer

    assert asked().ahead == []
    assert asked([0], lengths[0]).ahead == [(3, lengths[0])]
    rig.replica().trimmed(3, rig.replica().size // 2)
    assert asked([0], 1).ahead == [UNKNOWN]
    for begins, most in (([0, 1], 5), ([0], 0)):
        with pytest.raises(InvalidRequest, match="name an offset for each queue"):
            asked(begins, most)


@pytest.mark.parametrize("gone", [1, 2])
def test_an_offset_that_is_gone_is_not_known(gone: int) -> None:
    rig, _ = led((1, 10), (1, 10), (1, 10))
    rig.replica().trimmed(gone, rig.replica().size // 2)
    assert ahead(rig, gone - 1, 100) == UNKNOWN
    assert ahead(rig, gone, 1)[0] == gone + 1
