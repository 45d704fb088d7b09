"""Histories of operations as clients saw them, as JSON lines that other checkers can read too.

One event per line, in the order of true time: `process` (one operation at a time), `type`, `f` (what
was asked), `key` (of what), `value` (the question in an invoke, the answer in an ok) and `time` in
nanoseconds. Types are Jepsen's: `invoke`, `ok` (answered, be it with a refusal that says something
about the state), `fail` (certainly without effect), `info` (nobody knows: it may take effect at any
time later, or never; its process asks nothing more).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

EventType: TypeAlias = Literal["invoke", "ok", "fail", "info"]
Value: TypeAlias = Mapping[str, Any]
"""Plain JSON."""


class BadHistory(ValueError):
    """Events that no clients can have seen, or lines that are none."""


class Event(Struct, frozen=True):
    """One line."""

    process: str
    type: EventType
    f: str
    key: str
    value: dict[str, Any]
    time: int

    def __str__(self) -> str:
        told = " ".join(f"{name}={value!r}" for name, value in self.value.items())
        return (
            f"{self.time / 1e9:10.6f} {self.process:<12} {self.type:<6} {self.f} {self.key} {told}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """What one process asked, and was answered, between two places in the history."""

    f: str
    key: str
    value: Value
    result: Value | None
    """None: the outcome is unknown."""
    called: int
    """Place of its invoke among all events."""
    returned: int | None
    """Place of its answer; None: there was none."""


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Event)


class Operations:
    """The events of one run, as they happen."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events = list(events)
        self._open: dict[str, Event] = {}

    def invoke(self, process: str, f: str, key: str, value: Value, now: float) -> None:
        """A process asks for something, at `now` seconds."""
        assert process not in self._open, f"{process} does one thing at a time"
        event = Event(process, "invoke", f, key, dict(value), round(now * 1e9))
        self._open[process] = event
        self.events.append(event)

    def end(self, process: str, kind: EventType, value: Value, now: float) -> None:
        """What it asked for last was answered, or nobody knows."""
        asked = self._open.pop(process)
        event = Event(process, kind, asked.f, asked.key, dict(value), round(now * 1e9))
        self.events.append(event)

    def unanswered(self) -> list[str]:
        """Processes that wait for an answer."""
        return sorted(self._open)

    def write(self, path: Path) -> None:
        """Write a file for an outside checker, or for `read`."""
        path.write_bytes(b"".join(_ENCODER.encode(event) + b"\n" for event in self.events))


def read(path: Path) -> list[Event]:
    """The events of a file.

    Raises:
        BadHistory: a line is no event.
    """
    events: list[Event] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            events.append(_DECODER.decode(line))
        except msgspec.DecodeError as error:
            raise BadHistory(f"{path} line {number}: {error}") from error
    return events


def pair(events: Sequence[Event]) -> list[Operation]:
    """Operations in the order of their invokes; those that failed are left out.

    Raises:
        BadHistory: an answer without a question, or two questions of one process at once.
    """
    asked: dict[str, int] = {}
    ends: dict[int, int] = {}
    silent: set[str] = set()
    for place, event in enumerate(events):
        if event.type == "invoke":
            if event.process in asked or event.process in silent:
                raise BadHistory(f"event {place + 1}: {event.process} has not ended what it began")
            asked[event.process] = place
            continue
        began = asked.pop(event.process, None)
        if began is None or (events[began].f, events[began].key) != (event.f, event.key):
            raise BadHistory(f"event {place + 1}: {event.process} did not ask that")
        ends[began] = place
        if event.type == "info":
            silent.add(event.process)
    return [
        _operation(events, place, ends.get(place))
        for place, event in enumerate(events)
        if event.type == "invoke" and not (place in ends and events[ends[place]].type == "fail")
    ]


def _operation(events: Sequence[Event], began: int, ended: int | None) -> Operation:
    asked = events[began]
    known = ended is not None and events[ended].type == "ok"
    result = events[ended].value if ended is not None and known else None
    return Operation(asked.f, asked.key, asked.value, result, began, ended if known else None)
