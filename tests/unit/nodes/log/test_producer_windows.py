"""Producer windows: what is a duplicate, what is next, and what a cut leaves (Q9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.nodes.log import producer_windows
from logboom.nodes.log.keys import Position
from logboom.nodes.log.producer_windows import WINDOW, BatchMetadata, ProducerWindows
from logboom.wire.batch import validate_batch
from logboom.wire.errors import DataDamaged, ProducerError
from logboom.wire.head import BatchHead
from logboom.wire.user_marks import id_of_user
from tests.thorough import examples
from tests.unit.nodes.rig import batch
from tests.unit.wire.work import cost_ms, longest_ms, without_garbage_of_others

MOST_MS = 10.0


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
    windows.load(msgspec.msgpack.encode({9: [BatchMetadata(0, last - 1, 1, 0, 0)]}), Position(1))
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
    other.load(windows.encode(Position(7)), Position(7))
    assert other.find(head(7)) is None
    assert other.find(head(6)) is not None
    with pytest.raises(DataDamaged):
        other.load(b"\xc1", Position(7))


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
    again.load(windows.encode(Position(5)), Position(5))
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


class Replicas:
    """Batches of three producers in a log, and what windows must hold of them."""

    def __init__(self) -> None:
        self.windows = ProducerWindows()
        self.model: dict[int, list[BatchMetadata]] = {}
        self.end = 0
        self.hw = 0

    def send(self, producer: int) -> None:
        window = self.model.setdefault(producer, [])
        sequence = window[-1].sequence + 1 if window else 0
        sent = head(sequence, producer=producer)
        self.windows.add(sent, Position(self.end), 0, Position(self.hw))
        window.append(BatchMetadata(0, sequence, 1, self.end, 0))
        while len(window) > WINDOW and window[WINDOW].offset < self.hw:
            del window[0]
        self.end += 1

    def cut(self, end: int) -> None:
        self.end, self.hw = min(self.end, end), min(self.hw, end)
        self.windows.cut(Position(end))
        for producer, window in [*self.model.items()]:
            self.model[producer] = [each for each in window if each.offset < end]
            if not self.model[producer]:
                del self.model[producer]

    def expire(self, producer: int) -> None:
        self.windows.expire([producer], Position(self.hw))
        window = self.model.get(producer)
        if window and window[-1].offset < self.hw:
            del self.model[producer]

    def encoded(self) -> dict[int, list[BatchMetadata]]:
        """What is written, as a reader has it."""
        stored = self.windows.encode(Position(self.hw))
        return msgspec.msgpack.decode(stored, type=dict[int, list[BatchMetadata]])

    def expected(self) -> dict[int, list[BatchMetadata]]:
        below = {p: [w for w in window if w.offset < self.hw] for p, window in self.model.items()}
        return {producer: kept[-WINDOW:] for producer, kept in below.items() if kept}

    def load(self, stored: bytes) -> None:
        """Begin with what another replica has sent, which may be further than this one's HW."""
        self.windows.load(stored, Position(self.hw))
        self.model = msgspec.msgpack.decode(stored, type=dict[int, list[BatchMetadata]])
        self.end = max(self.end, self.hw)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.integers(0, 3),
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(7, 9)),
            st.tuples(st.just("hw"), st.integers(0, 20)),
            st.tuples(st.just("encode"), st.just(0)),
            st.tuples(st.just("cut"), st.integers(0, 20)),
            st.tuples(st.just("expire"), st.integers(7, 9)),
            st.tuples(st.just("load"), st.integers(0, 20)),
        ),
        max_size=60,
    ),
)
def test_what_is_written_is_what_the_windows_hold_below_the_hw(
    most: int, steps: list[tuple[str, int]]
) -> None:
    replicas = Replicas()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_windows, "MAX_CHANGED", most)
        for kind, number in steps:
            if kind == "send":
                replicas.send(number)
            elif kind == "hw":
                replicas.hw = max(replicas.hw, min(replicas.end, number))
            elif kind == "cut":
                replicas.cut(number)
            elif kind == "expire":
                replicas.expire(number)
            elif kind == "load":
                stored = replicas.windows.encode(Position(replicas.hw))
                replicas.hw = min(replicas.hw, number)
                replicas.load(stored)
            else:
                assert replicas.encoded() == replicas.expected()
        assert replicas.encoded() == replicas.expected()


def many(producers: int) -> ProducerWindows:
    """Full windows of so many producers, whose batches are below 5 times their number."""
    windows = ProducerWindows()
    first = head(0)
    for sequence in range(WINDOW):
        for number in range(producers):
            sent = msgspec.structs.replace(first, producer_id=number, base_sequence=sequence)
            at = Position(sequence * producers + number)
            windows.add(sent, at, 0, at)
    return windows


def test_the_windows_of_many_producers_make_no_turn_last() -> None:
    windows = many(10_000)
    ends, epochs = count(WINDOW * 10_000), count(1)

    def begin() -> Callable[[], bool]:
        sent = head(0, epoch=next(epochs))
        for number in range(10_000):
            again = msgspec.structs.replace(sent, producer_id=number)
            end = Position(next(ends))
            windows.add(again, end, 0, end)

        def step() -> bool:
            windows.encode(Position(next(ends)))
            return False

        return step

    with without_garbage_of_others():
        assert longest_ms(begin, MOST_MS) <= MOST_MS
        assert cost_ms(lambda: windows.cut(Position(next(ends))), MOST_MS) <= MOST_MS
        assert cost_ms(lambda: windows.idle(0) | windows.ahead(0), MOST_MS) <= MOST_MS
