"""How far some bytes go in a queue."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

import pytest

from logboom.nodes.log.index_rows import block_at
from logboom.nodes.replica import byte_distance
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


@pytest.mark.parametrize(
    ("limit", "value"), [("LOOKUP_ENTRIES", 10), ("LOOKUP_BYTES", 10 * 104), ("LOOKUP_BLOCKS", 1)]
)
def test_one_question_looks_at_so_much_and_answers_that_far(
    limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, lengths = led(*[(1, 4)] * 700)
    for _ in range(20):
        rig.settle(1.0)
    monkeypatch.setattr(byte_distance, limit, value)
    stop, size = ahead(rig, 5, 1 << 40)
    assert 15 <= stop < 700
    assert size == sum(lengths[5:stop])
    while stop < 700:
        before, stop = stop, ahead(rig, stop, 1 << 40)[0]
        assert stop > before


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

    def asked(begin: int = -1, max_bytes: int = 0, queues: Sequence[int] = (0,)) -> OffsetsResult:
        client.ask(Offsets(0, 1_000, "flights", [*queues], 0, begin, max_bytes))
        answer = client.answer()
        assert isinstance(answer, OffsetsResult)
        return answer

    assert asked().ahead == UNKNOWN
    assert asked(0, lengths[0]).ahead == (3, lengths[0])
    rig.replica().trimmed(3, rig.replica().size // 2)
    assert asked(0, 1).ahead == UNKNOWN
    for most, queues in ((5, [0, 0]), (0, [0])):
        with pytest.raises(InvalidRequest, match="name one queue"):
            asked(0, most, queues)


@pytest.mark.parametrize("gone", [1, 2])
def test_an_offset_that_is_gone_is_not_known(gone: int) -> None:
    rig, _ = led((1, 10), (1, 10), (1, 10))
    rig.replica().trimmed(gone, rig.replica().size // 2)
    assert ahead(rig, gone - 1, 100) == UNKNOWN
    assert ahead(rig, gone, 1)[0] == gone + 1
