"""Filters over batches of 1,000 messages of 100 B: messages per second in one process.

This is pure computation without a cluster: the cost of a property filter per message at a broker.
Each batch is opened again, so reading its columns is part of the figure. Checksums and sending are
not. The fastest of some rounds counts, because only this process's own work is measured.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from bench.figures import Figure
from logboom.wire.batch import encode_batch, open_batch, peek
from logboom.wire.filters import Filter

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES: Final = 1_000
HEADS: Final = 1_000


def _batch(headers: Callable[[random.Random], dict[str, bytes] | None]) -> bytes:
    rng = random.Random(7)
    return encode_batch(
        [b"x" * 100] * MESSAGES,
        tags=[rng.choice(["late", "early", "lost"]) for _ in range(MESSAGES)],
        headers=[headers(rng) for _ in range(MESSAGES)],
        now_ms=1,
    )


def _few(rng: random.Random) -> dict[str, bytes]:
    """Return headers with few distinct contents."""
    return {"price": b"%d" % rng.randrange(10), "region": rng.choice([b"eu", b"us"])}


def _all_differ(rng: random.Random) -> dict[str, bytes]:
    """Return headers that differ in every message."""
    return {
        "price": b"%d" % rng.randrange(10**9),
        "region": rng.choice([b"eu", b"us"]),
        "trace": b"%032x" % rng.getrandbits(128),
    }


def _rate(wanted: Filter, batch: bytes, rounds: int) -> float:
    matcher = wanted.matcher()
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        matcher.match(open_batch(batch))
        best = min(best, time.perf_counter() - began)
    return MESSAGES / best


def rows(rounds: int) -> list[Figure]:
    """Measure filters by tags, by repeating and distinct headers, and by heads alone."""
    few, differ = _batch(_few), _batch(_all_differ)
    number, both = "price > 5", "price BETWEEN 3 AND 700000000 AND region IN ('eu', 'ap')"
    search = "trace STARTSWITH 'f' OR trace CONTAINS 'abc'"
    cases = [
        ("tags late || lost", Filter.of("late || lost"), few),
        (f"{number}; contents repeat", Filter.of(where=number), few),
        (f"{number}; all differ", Filter.of(where=number), differ),
        (f"{both}; all differ", Filter.of(where=both), differ),
        (f"{search}; all differ", Filter.of(where=search), differ),
    ]
    found = [
        Figure(f"filter: {name}", _rate(wanted, batch, rounds), "msg/s")
        for name, wanted, batch in cases
    ]
    matcher, head = Filter.of(where="TAGS = 'gone' AND price > 5").matcher(), peek(few)
    began = time.perf_counter()
    for _ in range(HEADS):
        matcher.may_match(head)
    passed = HEADS / (time.perf_counter() - began)
    found.append(Figure("filter: batches passed over by their heads", passed, "batches/s"))
    return found
