"""Values as people write and read them: durations, sizes, times, queue numbers, targets of a reset."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, Literal

from logboom.wire.errors import InvalidRequest
from logboom.wire.names import MAX_QUEUES

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


def _whole(text: str, found: float) -> int:
    if found > MAX_COUNT:
        raise InvalidRequest(f"{text!r} is too large: write a smaller one")
    return int(found)


def number_text(text: str, unit: str) -> str:
    """Return a size or a duration as a number of its unit: "10m" of "bytes per second" as "10485760".
    Any other text stays as it is.

    Raises:
        InvalidRequest: it is no number, and no size or duration either.
    """
    try:
        float(text)
    except ValueError:
        pass
    else:
        return text
    if unit.startswith("bytes"):
        return str(size_bytes(text))
    if unit == "milliseconds":
        return str(duration_ms(text))
    if unit == "seconds":
        return str(duration_ms(text) / 1000).removesuffix(".0")
    return text


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


def reset_target(text: str, now_ms: int) -> Literal["first", "last"] | int:
    """Return "first", "last", or a message time in ms.

    A time is written as 2026-11-21T10:00:00Z, as milliseconds since 1970 UTC, or as an age: 90s,
    15m, 1h, 7d.

    Raises:
        InvalidRequest: it is none of these.
    """
    if text == "first":
        return "first"
    if text == "last":
        return "last"
    said = time_ms(text)
    if said is not None:
        return said
    try:
        ago = duration_ms(text)
    except InvalidRequest:
        ago = -1
    if ago < 0:
        meant = "first, last, a time like 2026-11-21T10:00:00Z, or 1h for an hour ago"
        raise InvalidRequest(f"{text!r} is not a reset target: say {meant}")
    return now_ms - ago


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: 1 message, 2 messages; 1 copy, 2 copies."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def bytes_text(size: float) -> str:
    """Return a size for people: 17.0 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(milliseconds: int) -> str:
    """Return a duration for people, as `duration_ms` takes it: 7d."""
    if milliseconds < 0:
        return "ever"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"
