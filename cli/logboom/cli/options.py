"""Parsers of option values: durations, sizes, times, queue numbers."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Final

from logboom.cli.local_cluster import local_endpoints
from logboom.metadata.tables.name_rules import MAX_QUEUES
from logboom.wire.errors import InvalidRequest

MAX_COUNT: Final = 1 << 62
"""The greatest duration or size, so that sums fit into 64 bits."""
_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_UNITS_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def servers_or_default(servers: str | None) -> str:
    """Return the nodes to connect to: the given ones, or those of the cluster on this machine.

    Raises:
        InvalidRequest: several clusters run on this machine.
        Unavailable: the cluster does not run.
    """
    return servers or local_endpoints()


def duration_ms(text: str) -> int:
    """Return the milliseconds of "90s", "15m", "1h", "7d", or -1 for "ever".

    Raises:
        InvalidRequest: it is not a duration.
    """
    if text in ("ever", "-1"):
        return -1
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", text)
    if match is None:
        raise InvalidRequest(
            f"{text!r} is not a duration: write 500ms, 90s, 15m, 1h, 7d, 2w or ever"
        )
    return _whole(text, float(match[1]) * _UNITS_MS[match[2]])


def ago_ms(text: str, now_ms: int) -> int:
    """Return the time that long ago, in milliseconds since 1970 UTC.

    Raises:
        InvalidRequest: it is not a duration, or it is infinite.
    """
    found = duration_ms(text)
    if found < 0:
        raise InvalidRequest(f"{text!r} is not an age: write 10m, 1h or 2d, or begin at first")
    return now_ms - found


def _whole(text: str, found: float) -> int:
    if found > MAX_COUNT:
        raise InvalidRequest(f"{text!r} is too large: write a smaller one")
    return int(found)


def delay_s(text: str) -> float:
    """Return the seconds of a duration that begins now.

    Raises:
        InvalidRequest: it is not a duration, or it is infinite.
    """
    found = duration_ms(text)
    if found < 0:
        raise InvalidRequest(f"a delay of {text}: write 500ms, 90s, 15m, 1h; 40d is the longest")
    return found / 1000


def time_ms(text: str) -> int | None:
    """Return milliseconds since 1970 UTC, or None for any other text.

    A time is written as 2026-11-21T10:00:00Z or in these milliseconds.
    """
    if text.isdecimal():
        return int(text)
    try:
        said = datetime.fromisoformat(text)
        # A time without a zone is in this machine's zone.
        return int(said.astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def size_bytes(text: str) -> int:
    """Return the bytes of "4096", "64k", "1.5m", "10g", or -1 for "any". Units are powers of 1024.

    Raises:
        InvalidRequest: it is not a size.
    """
    if text in ("any", "-1"):
        return -1
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?", text.lower())
    if match is None:
        raise InvalidRequest(f"{text!r} is not a size: write 4096, 64k, 1.5m, 10g or any")
    return _whole(text, float(match[1]) * _UNITS_BYTES[match[2]])


def queue_numbers(text: str | None) -> list[int] | None:
    """Return the queue numbers of "0", "0,3" or "2-5". Return None for None.

    Raises:
        InvalidRequest: it is not such a list.
    """
    if text is None:
        return None
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise InvalidRequest(f"{text!r} names no queues: write 0 or 0,3 or 2-5")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < MAX_QUEUES:
            text = f"{part.strip()!r}: queues are 0 to {MAX_QUEUES - 1}"
            raise InvalidRequest(f"{text}, and the first of a range is the lower")
        numbers += range(first, last + 1)
    return numbers


def moment(text: str, option: str) -> int | None:
    """Return a message time in ms, or None for an empty text.

    Raises:
        InvalidRequest: it is not a time.
    """
    if not text:
        return None
    found = time_ms(text)
    if found is None:
        raise InvalidRequest(f"{option} {text!r} is no time: write 2026-11-21T10:00:00Z or ms")
    return found


def whole_path(path: Path) -> Path:
    """Return an absolute path, because Spark's JVM may have another working directory.

    Raises:
        InvalidRequest: it is a URI, but the jobs access their folders themselves.
    """
    # A path keeps only one of two slashes.
    if found := re.match(r"([A-Za-z][\w+.-]+):/", str(path)):
        text = f"{path} is below {found[1]}:, and a job needs a folder on this machine"
        raise InvalidRequest(f"{text}: mount it (docs/PIPELINE.md, Another machine)")
    return path.resolve()


def names(text: str) -> list[str]:
    """Return the names of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]
