"""Parsers of option values that only a command line has: ages, ends of keys, folders, lists."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final, Literal

from logboom.client.written_values import duration_ms, reset_target, time_ms
from logboom.wire.errors import InvalidRequest

MAX_INTERVAL_S: Final = 86_400.0
"""The longest pause between two looks of a command that goes on until Ctrl-C."""


def ago_ms(text: str, now_ms: int) -> int:
    """Return the time that long ago, in milliseconds since 1970 UTC.

    Raises:
        InvalidRequest: it is not a duration, or it is infinite.
    """
    found = duration_ms(text)
    if found < 0:
        raise InvalidRequest(f"{text!r} is not an age: write 10m, 1h or 2d, or begin at first")
    return now_ms - found


def when(text: str) -> Literal["first", "last"] | int:
    """Return where to reset to: `reset_target` by the clock of this machine."""
    return reset_target(text, int(time.time() * 1000))


def delay_s(text: str) -> float:
    """Return the seconds of a duration that begins now.

    Raises:
        InvalidRequest: it is not a duration, or it is infinite.
    """
    found = duration_ms(text)
    if found < 0:
        raise InvalidRequest(f"a delay of {text}: write 500ms, 90s, 15m, 1h; 40d is the longest")
    return found / 1000


def key_end_ms(text: str, now_ms: int) -> int:
    """Return the time at which a key ends, in ms since 1970 UTC; 0: never.

    Raises:
        InvalidRequest: it is neither a duration from now, nor a time to come, nor "never".
    """
    if text == "never":
        return 0
    if re.fullmatch(r"\d+(?:\.\d+)?[smhdw]", text):
        return now_ms + duration_ms(text)
    found = time_ms(text)
    if found is None:
        raise InvalidRequest(
            f"{text!r} is not an end of a key: write 90d, 2027-06-30T12:00:00Z or never"
        )
    if found <= now_ms:
        raise InvalidRequest(f"{text} has passed: a key ends in the future, e.g. 90d from now")
    return found


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


def check_count(count: int, option: str) -> None:
    """Check how many things are to be listed, read or sent.

    Raises:
        InvalidRequest: it is not 1 or more.
    """
    if count < 1:
        raise InvalidRequest(f"{option} is 1 or more, not {count}")


def check_interval(seconds: float, least_s: float) -> None:
    """Check the --interval of a command that goes on until Ctrl-C.

    Raises:
        InvalidRequest: it is too short or too long.
    """
    # Written so that nan is refused too.
    if not least_s <= seconds <= MAX_INTERVAL_S:
        text = f"--interval {seconds:g}: give {least_s:g} seconds or more"
        raise InvalidRequest(f"{text}, up to {MAX_INTERVAL_S:g}")
