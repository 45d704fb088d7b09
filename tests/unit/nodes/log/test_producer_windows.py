"""Producer windows: what is a duplicate, what is next, and what a cut leaves (Q9)."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.nodes.log.keys import Position
from logboom.nodes.log.producer_windows import WINDOW, BatchMetadata, ProducerWindows
from logboom.wire.batch import validate_batch
from logboom.wire.errors import DataDamaged, ProducerError
from logboom.wire.head import BatchHead
from logboom.wire.user_marks import id_of_user
from tests.thorough import examples
from tests.unit.nodes.rig import batch


def head(sequence: int, count: int = 1, epoch: int = 0, producer: int = 9) -> BatchHead:
    """The head of a batch fresh from its producer."""
    return validate_batch(batch(count, producer, epoch, sequence), stamped=False)


def filled(batches: int, hw: int = 0) -> ProducerWindows:
    """Batches of one message at offsets and sequences 0, 1, …"""
    windows = ProducerWindows()
    for at in range(batches):
        windows.add(head(at), Position(at), at, Position(hw))
    return windows


def test_the_first_batch_of_a_producer_has_sequence_zero() -> None:
    assert ProducerWindows().find(head(0)) is None
    with pytest.raises(ProducerError) as caught:
        ProducerWindows().find(head(4))
    assert caught.value.code == "OUT_OF_ORDER_SEQUENCE"


def test_a_duplicate_finds_its_original_and_another_size_does_not() -> None:
    windows = filled(3)
    original = windows.find(head(1))
    assert original is not None
    assert original.offset == 1
    with pytest.raises(ProducerError):
        windows.find(head(1, count=2))


def test_a_newer_producer_epoch_begins_at_zero_and_fences_the_older() -> None:
    windows = filled(3)
    with pytest.raises(ProducerError):
        windows.find(head(3, epoch=1))
    assert windows.find(head(0, epoch=1)) is None
    windows.add(head(0, epoch=1), Position(3), 3, Position(0))
    with pytest.raises(ProducerError) as caught:
        windows.find(head(3))
    assert caught.value.code == "FENCED_PRODUCER"


def test_a_cut_of_a_newer_epoch_restores_the_older() -> None:
    windows = filled(3)
    windows.add(head(0, epoch=1), Position(3), 3, Position(0))
    windows.cut(Position(3))
    assert windows.find(head(3)) is None


def test_nothing_is_evicted_while_fewer_than_five_newer_lie_below_the_hw() -> None:
    windows = filled(40, hw=0)
    assert windows.find(head(0)) is not None
    windows.add(head(40), Position(40), 40, Position(40))
    assert windows.find(head(40 - WINDOW)) is not None
    with pytest.raises(ProducerError):
        windows.find(head(1))


def test_sequences_wrap() -> None:
    windows = ProducerWindows()
    last = 0x7FFFFFFF
    # As if two thousand million messages had gone before.
    windows.load(msgspec.msgpack.encode({9: [BatchMetadata(0, last - 1, 1, 0, 0)]}))
    assert windows.find(head(last, count=2)) is None
    windows.add(head(last, count=2), Position(1), 1, Position(0))
    assert windows.find(head(1)) is None


def test_expiry_forgets_only_those_that_wrote_nothing_since() -> None:
    windows = filled(3)
    windows.add(head(0, producer=8), Position(3), 100, Position(0))
    assert windows.idle(50) == {9: Position(2)}
    windows.expire([9, 8], before=Position(3))
    assert len(windows) == 1
    assert windows.find(head(0)) is None


def test_only_what_lies_below_the_hw_is_written_down() -> None:
    windows = filled(9)
    other = ProducerWindows()
    other.load(windows.encode(Position(7)))
    assert other.find(head(7)) is None
    assert other.find(head(6)) is not None
    with pytest.raises(DataDamaged):
        other.load(b"\xc1")


def test_the_producers_of_a_user_are_those_with_its_ids_and_a_window() -> None:
    ids = [id_of_user("ann", number) for number in range(4)]
    windows = filled(1)
    for at, producer in enumerate([*ids, id_of_user("bob", 0)], 1):
        windows.add(head(0, producer=producer), Position(at), at, Position(at))
        windows.add(head(1, producer=ids[0]), Position(at), at, Position(at))
    windows.expire(ids[:2], before=Position(5))
    assert [*windows.of_user("ann")] == [ids[0], *ids[2:]]
    windows.cut(Position(4))
    again = ProducerWindows()
    again.load(windows.encode(Position(5)))
    for each in (windows, again):
        assert [*each.of_user("ann")] == [ids[0], ids[2]]
        assert [*each.of_user("bob")] == []
        assert len(each) == 3
    assert [*filled(1).of_user("ann")] == []


@dataclass
class Model:
    """A log of one producer's batches in plain words."""

    log: list[tuple[int, int]] = field(default_factory=list)
    """(sequence, count), each at the offset that is the sum of the counts before."""
    hw: int = 0

    @property
    def end(self) -> int:
        """Behind the last message."""
        return sum(count for _, count in self.log)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 3)),
            st.tuples(st.just("again"), st.integers(1, WINDOW)),
            st.tuples(st.just("hw"), st.integers(0, 12)),
            st.tuples(st.just("cut"), st.integers(0, 12)),
        ),
        max_size=60,
    )
)
def test_windows_agree_with_a_log_that_forgets_nothing(steps: list[tuple[str, int]]) -> None:
    model, windows = Model(), ProducerWindows()
    for kind, number in steps:
        if kind == "send":
            sequence = model.end
            assert windows.find(head(sequence, number)) is None
            windows.add(head(sequence, number), Position(sequence), 0, Position(model.hw))
            model.log.append((sequence, number))
        elif kind == "again" and len(model.log) >= number:
            sequence, count = model.log[-number]
            original = windows.find(head(sequence, count))
            assert original is not None
            assert original.offset == sequence
        elif kind == "hw":
            model.hw = max(model.hw, min(model.end, number))
        elif kind == "cut":
            while model.log and model.log[-1][0] >= max(model.hw, number):
                model.log.pop()
            windows.cut(Position(model.end))
