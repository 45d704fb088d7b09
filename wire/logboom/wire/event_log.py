"""The writing of events to a node's log: repetitions are counted, the rest goes to `logging`.

Cores leave notes in their effects (`wire.actor.Note`), which the skin passes to an `EventWriter`. What
happens in skins is written there at once, or by `log_event`. `wire.log_format` makes lines of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Final, NamedTuple, TypeAlias

from logboom.wire.actor import Instant, Note
from logboom.wire.event_table import EVENTS, LogEvent, Plain
from logboom.wire.log_format import EventLine
from logboom.wire.refusal_counter import TOLD_EVERY_S, RefusalCounter

_ROOMS: Final = {"broker": "nodes", "name-server": "metadata"}
"""Kind of node → its portion, below which its own loggers are."""
_Key: TypeAlias = tuple[str, ...]


class _NodeOfThread(threading.local):
    """The node that a thread works for, since one process may run several."""

    node = ""
    kind = "broker"


_of_thread = _NodeOfThread()


def work_for(node: str, kind: str) -> None:
    """Note that this thread works for a node; `log_event` names it."""
    _of_thread.node, _of_thread.kind = node, kind


def log_event(
    event: str, /, times: int = 1, *, raised: BaseException | None = None, **fields: Plain
) -> None:
    """Write one event to the log at once, for what happens outside cores.

    Whoever may cause it often counts repetitions first.

    Args:
        event: its name in the table.
        times: number of events that the line stands for.
        raised: an error whose traceback is added.
        **fields: its fields.
    """
    of = EVENTS[event]
    line = EventLine(_of_thread.node, event, _ordered(of, fields), times)
    _logger(of, _of_thread.kind).log(_level(of), line, exc_info=raised)


def _ordered(of: LogEvent, fields: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return the fields of an event in the order of the table."""
    return {name: fields[name] for name in of.fields if fields.get(name) is not None}


def logger_name(event: LogEvent, kind: str) -> str:
    """Return the name of the logger of an event at a kind of node."""
    room = _ROOMS[kind] if event.logger.startswith(".") else ""
    return f"logboom.{room}{event.logger}".rstrip(".")


@cache
def _logger(event: LogEvent, kind: str) -> logging.Logger:
    return logging.getLogger(logger_name(event, kind))


@cache
def _level(event: LogEvent) -> int:
    return logging.getLevelNamesMapping()[event.level.upper()]


class _Happened(NamedTuple):
    """An event and when it happened."""

    note: Note
    wall_ms: int


class EventWriter:
    """The events of one node on their way to the log."""

    def __init__(self, node: str, kind: str) -> None:
        """Create a writer for a node of a kind: broker or name-server."""
        self._node = node
        self._kind = kind
        self._counters: dict[str, RefusalCounter[_Key, _Happened]] = {}
        self._next_tick = float("-inf")

    def write(self, notes: Iterable[Note], now: Instant) -> None:
        """Write what happened in a turn, except what repeats, and the numbers of repetitions due."""
        for note in notes:
            of = EVENTS[note.event]
            if not _logger(of, self._kind).isEnabledFor(_level(of)):
                continue
            counter = self._counters.get(note.event)
            if counter is None:
                counter = self._counters[note.event] = RefusalCounter(
                    partial(self._tell, of), of.every_s, of.most_per_s
                )
            if note.times > 1:
                # It stands for many already.
                self._log(of, note.fields, note.times, now.wall_ms)
            else:
                key = tuple(str(note.fields.get(name)) for name in of.same)
                counter.add(key, _Happened(note, now.wall_ms), now.mono)
        if now.mono >= self._next_tick:
            self._next_tick = now.mono + TOLD_EVERY_S
            for counter in self._counters.values():
                counter.tick(now.mono)

    def flush(self) -> None:
        """Write the numbers of all repetitions, since the node ends."""
        for counter in self._counters.values():
            counter.flush()

    def _tell(
        self, of: LogEvent, _key: _Key | None, happened: _Happened | None, count: int
    ) -> None:
        if happened is None:
            self._log(of, {}, count, None)
        else:
            self._log(of, happened.note.fields, count, happened.wall_ms)

    def _log(
        self, of: LogEvent, fields: Mapping[str, Plain], times: int, wall_ms: int | None
    ) -> None:
        line = EventLine(self._node, of.name, _ordered(of, fields), times, wall_ms)
        _logger(of, self._kind).log(_level(of), line)
