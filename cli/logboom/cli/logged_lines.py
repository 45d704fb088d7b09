"""Logs of nodes as `logboom cluster logs` shows them: lines of either form, filtered, merged by time.

A line is text or JSON (`wire.log_format`), and one file may have both. What is neither is what a node
or a library said without its log, such as the last words before an end: it counts as an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from logboom.wire.log_format import INDENT, UNNAMED, pair_text, printable

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
"""Levels of lines, the mildest first."""
BLOCK_BYTES: Final = 256 * 1024
"""Bytes at the end of a file that are read first, for its last lines; twice as many each time."""
_HEAD: Final = re.compile(r"(\d{4}-\d\d-\d\dT\S+Z) ([A-Z]+) (\S+) (\w+)((?: .*)?)$")
_PAIR: Final = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|\S*)')


@dataclass(slots=True)
class LoggedLine:
    """One line of a log, with the lines of its traceback."""

    time: str
    """UTC (RFC 3339); of a line without one, that of the line before it."""
    level: str
    """Empty if the line has none."""
    node: str
    event: str
    """Empty if the line is no event."""
    fields: dict[str, Any]
    text: str = ""
    """The line itself, if it is none of a log."""
    trace: list[str] = field(default_factory=list)

    def shown(self) -> str:
        """Return it as text."""
        if not self.event:
            return f"{self.time} - {self.node} {printable(self.text)}".lstrip()
        pairs = "".join(f" {pair_text(name, value)}" for name, value in self.fields.items())
        head = f"{self.time} {self.level.upper()} {self.node} {self.event}{pairs}"
        return "\n".join([head, *(f"{INDENT}{printable(line)}" for line in self.trace)])

    def as_json(self) -> str:
        """Return it as one line of JSON."""
        known = {"time": self.time, "level": self.level or None, "node": self.node}
        found = {name: value for name, value in known.items() if value}
        if not self.event:
            return json.dumps(found | {"text": self.text})
        found |= {"event": self.event} | self.fields
        if self.trace:
            found["exception"] = "\n".join(self.trace)
        return json.dumps(found)


@dataclass(frozen=True, slots=True)
class LineFilter:
    """What is shown."""

    level: LogLevel = "debug"
    """This level and what is worse."""
    events: Sequence[str] = ()
    """These alone; none: all. A star at the end stands for any ending."""

    def passes(self, line: LoggedLine) -> bool:
        """Return True if a line is shown."""
        level = line.level if line.level in LEVELS else "error"
        if LEVELS.index(level) < LEVELS.index(self.level):
            return False
        return not self.events or any(_matches(each, line.event) for each in self.events)


def parse_lines(lines: Iterable[str], node: str) -> Iterator[LoggedLine]:
    """Yield what lines of a node's log say."""
    last: LoggedLine | None = None
    for line in lines:
        found = _of_json(line, node) or _of_text(line)
        if found is None and last is not None and last.event and line.startswith(INDENT):
            last.trace.append(line.removeprefix(INDENT))
            continue
        if last is not None:
            yield last
        time = last.time if last is not None else ""
        last = found or LoggedLine(time, "", node, "", {}, text=line)
    if last is not None:
        yield last


class NodeLog:
    """The log of one node, whose end is read, and then what is added."""

    def __init__(self, node: str, path: Path) -> None:
        self.node = node
        self._path = path
        self._end = 0
        """Bytes that were read."""

    def read_last(self, count: int, wanted: LineFilter) -> list[LoggedLine]:
        """Return the last lines that pass; what is added later is for `read_more`."""
        size = self._path.stat().st_size
        block = BLOCK_BYTES
        while True:
            begin = max(0, size - block)
            said = self._read(begin, size)
            if begin:
                # It begins within a line.
                said = said[said.find(b"\n") + 1 :]
            found = [each for each in self._parse(said) if wanted.passes(each)]
            if len(found) >= count or not begin:
                self._end = size
                return found[-count:] if count else []
            block *= 2

    def read_more(self, wanted: LineFilter) -> list[LoggedLine]:
        """Return the whole lines that were added and pass."""
        size = self._path.stat().st_size
        if size < self._end:
            # It was emptied.
            self._end = 0
        said = self._read(self._end, size)
        said = said[: said.rfind(b"\n") + 1]
        self._end += len(said)
        return [each for each in self._parse(said) if wanted.passes(each)]

    def _read(self, begin: int, end: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin)

    def _parse(self, said: bytes) -> Iterator[LoggedLine]:
        # Only line feeds end lines: others may stand within what a library said.
        lines = said.decode("utf-8", "replace").split("\n")
        return parse_lines((line for line in lines if line.strip()), self.node)


def merged(logs: Iterable[list[LoggedLine]]) -> list[LoggedLine]:
    """Return lines of several nodes by their time; those of one node keep their order."""
    found: list[tuple[str, LoggedLine]] = []
    for lines in logs:
        latest = ""
        for line in lines:
            # Events that were counted are written later than they happened.
            latest = max(latest, line.time)
            found.append((latest, line))
    return [line for _, line in sorted(found, key=lambda each: each[0])]


def _of_json(line: str, node: str) -> LoggedLine | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not {"time", "level", "event"} <= found.keys():
        return None
    trace = str(found.pop("exception", "")).splitlines()
    event = str(found.pop("event"))
    logger = found.pop("logger", None)
    if event == UNNAMED and logger:
        found["logger"] = logger
    head = (str(found.pop("time")), str(found.pop("level")), str(found.pop("node", "") or node))
    return LoggedLine(*head, event, found, trace=trace)


def _of_text(line: str) -> LoggedLine | None:
    head = _HEAD.match(line)
    if head is None:
        return None
    time, level, node, event, pairs = head.groups()
    fields = {name: _value(text) for name, text in _PAIR.findall(pairs)}
    return LoggedLine(time, level.lower(), node, event, fields)


def _value(text: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        return text


def _matches(pattern: str, event: str) -> bool:
    if pattern.endswith("*"):
        return event.startswith(pattern[:-1])
    return event == pattern
