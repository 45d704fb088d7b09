"""Mangled batches and filters: only their own errors, and no more work than their bounds allow."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logboom.wire.batch import encode_batch, open_batch, validate_batch
from logboom.wire.errors import DamagedBatch, InvalidRequest
from logboom.wire.filters import Filter, ScanBudget
from logboom.wire.head import HEAD_LENGTH
from logboom.wire.message_sizes import find_oversized
from tests.thorough import examples

COUNT = 400
CODECS = ("none", "lz4", "zstd")
WORDS = (
    "a KEYS TAGS _timestamp 1 -2.5 'x' ''' ( ) , = <> < NOT AND OR IN IS NULL BETWEEN CONTAINS \""
)
BATCHES = [
    encode_batch(
        [b"value %d" % (n % 9) for n in range(COUNT)],
        [b"key %d" % n for n in range(COUNT)],
        ["red", "green"] * (COUNT // 2),
        [{"a": b"%d" % n} for n in range(COUNT)],
        list(range(COUNT)),
        now_ms=0,
        codec=codec,
    )
    for codec in CODECS
]
MATCHER = Filter.read("red WHERE a > 3 AND KEYS CONTAINS '7'").matcher()
damage = st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8)), max_size=6)
expressions = st.lists(st.sampled_from(WORDS.split()) | st.text(max_size=3), max_size=400)


def mangled(batch: bytes, changes: list[tuple[float, bytes]]) -> bytes:
    """The batch with other bytes here and there in its body, and the same length."""
    body = bytearray(batch[HEAD_LENGTH:])
    for place, noise in changes:
        at = int(place * (len(body) - 1))
        body[at : at + len(noise)] = noise[: len(body) - at]
    return batch[:HEAD_LENGTH] + bytes(body)


def thread_time(act: Callable[[], object]) -> float:
    """CPU seconds of one call, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.thread_time()
        act()
        best = min(best, time.thread_time() - start)
    return best


@settings(max_examples=examples(2_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(BATCHES), damage, st.integers(-10, 40))
def test_a_mangled_body_is_measured_and_filtered_within_its_bounds(
    batch: bytes, changes: list[tuple[float, bytes]], limit: int
) -> None:
    head = validate_batch(batch, stamped=False)
    entry = mangled(batch, changes)
    opened: list[int] = []
    with contextlib.suppress(DamagedBatch):
        find_oversized(entry, head, limit, opened.append)
    assert sum(opened) <= 2 * max(head.plain_length, 128 * 1024)
    budget = ScanBudget(1_000)
    with contextlib.suppress(DamagedBatch):
        found = MATCHER.match(open_batch(entry, head), budget)
        assert found.examined <= COUNT
    assert budget.left >= -COUNT * 100


@settings(max_examples=examples(2_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(expressions, st.sampled_from(("", "WHERE ", "a || b WHERE ")))
def test_a_filter_is_read_or_refused_within_its_bounds(words: list[str], prefix: str) -> None:
    text = prefix + " ".join(words)
    with contextlib.suppress(InvalidRequest):
        wanted = Filter.read(text)
        matcher = wanted.matcher()
        assert Filter.read(wanted.text) == wanted
        columns = open_batch(BATCHES[0])
        assert matcher.match(columns, ScanBudget(100)).examined <= COUNT


def test_the_worst_filters_are_read_in_the_time_of_their_terms() -> None:
    """Nested as deep, and with as many terms, as they may be."""
    loop = thread_time(lambda: sum(range(1_000_000)))
    deep = "WHERE " + "(NOT " * 16 + "a = 1" + ")" * 16
    wide = "WHERE " + " AND ".join("(a = 1 OR b = 2)" for _ in range(127))
    for text in (deep, wide, " " * 16_000, "NOT " * 4_000, "WHERE " + "(" * 8_000):

        def read(text: str = text) -> None:
            with contextlib.suppress(InvalidRequest):
                Filter.read(text)

        assert thread_time(read) < 4 * loop, text[:40]
