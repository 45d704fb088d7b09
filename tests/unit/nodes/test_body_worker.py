"""Large LZ4 bodies are opened in another thread: the loop never waits long, and nothing is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor

import lz4.block
import pytest

from logboom.nodes.body_worker import opening_beside
from logboom.wire.compression import STEP_BYTES, Codec, compress, decompress_steps
from logboom.wire.errors import DamagedBatch
from tests.unit.wire.test_opening_steps import finish

PLAIN = bytes(range(256)) * (STEP_BYTES // 256 + 1)
STORED = compress(Codec.LZ4, PLAIN)
Steps = Generator[None, None, memoryview]


class Library:
    """The library, whose calls wait for the test."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """The threads that they are made in."""
        self.go_on = threading.Event()
        self._decompress: Callable[..., bytes] = lz4.block.decompress

    def decompress(self, stored: bytes, uncompressed_size: int) -> bytes:
        """Open a block, as soon as it may."""
        self.calls.append(threading.current_thread().name)
        assert self.go_on.wait(30)
        return self._decompress(stored, uncompressed_size=uncompressed_size)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    found = Library()
    monkeypatch.setattr(lz4.block, "decompress", found.decompress)
    yield found
    found.go_on.set()


def opening(stored: bytes = STORED, length: int = len(PLAIN)) -> Steps:
    """The steps of opening a body."""
    return decompress_steps(Codec.LZ4, stored, length)


def ours() -> list[str]:
    """The threads that open bodies."""
    return [each.name for each in threading.enumerate() if each.name.startswith("logboom-bodies")]


def test_a_step_ends_although_the_body_is_not_open(library: Library) -> None:
    with opening_beside():
        steps = opening()
        for _ in range(10):
            assert next(steps, 0) is None
        library.go_on.set()
        assert finish(steps) == PLAIN
    assert len(library.calls) == 1
    assert library.calls[0].startswith("logboom-bodies")
    assert ours() == []


def test_bodies_of_several_readers_share_a_thread(library: Library) -> None:
    with opening_beside():
        several = [opening() for _ in range(5)]
        for steps in several:
            assert next(steps, 0) is None
        assert len(ours()) == 1
        library.go_on.set()
        assert [finish(steps) == PLAIN for steps in several] == [True] * 5
    assert len(set(library.calls)) == 1


def test_what_nobody_waits_for_any_more_is_not_opened(library: Library) -> None:
    with opening_beside():
        first = opening()
        assert next(first, 0) is None
        for _ in range(5):
            assert next(opening(), 0) is None
        library.go_on.set()
        assert finish(first) == PLAIN
    assert len(library.calls) == 1


def test_a_body_may_be_finished_after_the_end(library: Library) -> None:
    with opening_beside():
        steps = opening()
        assert next(steps, 0) is None
        library.go_on.set()
    assert ours() == []
    assert finish(steps) == PLAIN


@pytest.mark.parametrize(
    ("stored", "length"), [(STORED[:-1], len(PLAIN)), (STORED, len(PLAIN) + 1), (b"", len(PLAIN))]
)
def test_damage_is_raised_as_at_once(stored: bytes, length: int) -> None:
    with pytest.raises(DamagedBatch) as at_once:
        finish(opening(stored, length))
    with opening_beside(), pytest.raises(DamagedBatch) as beside:
        finish(opening(stored, length))
    assert beside.value.text == at_once.value.text


def test_small_bodies_and_other_threads_open_at_once(library: Library) -> None:
    library.go_on.set()
    with opening_beside():
        small = PLAIN[:STEP_BYTES]
        assert finish(opening(compress(Codec.LZ4, small), len(small))) == small
        assert ours() == []
        with ThreadPoolExecutor(1, "another") as pool:
            assert pool.submit(lambda: finish(opening())).result() == PLAIN
        assert ours() == []
    assert finish(opening()) == PLAIN
    assert not [name for name in library.calls if name.startswith("logboom-bodies")]
    assert len(library.calls) == 3
