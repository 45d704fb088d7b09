"""The two forms of a line in a node's log: text for people, and JSON for programs.

    2026-11-24T14:52:58.123Z INFO name-1 election topic=flights queue=3 leader=broker-2 …
    {"time":"2026-11-24T14:52:58.123Z","level":"info","node":"name-1","event":"election", …}

Both are one line whatever the values hold, since topics, client ids and texts of errors come from
others: in text, values that are more than a word are quoted as in JSON; JSON is ASCII alone. In text
the traceback of an error follows in lines of its own, which begin with spaces; in JSON it is a field.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TextIO, TypeAlias

from logboom.wire.event_table import Plain

LogForm: TypeAlias = Literal["text", "json"]
UNNAMED: Final = "message"
"""The event of lines that are none."""
INDENT: Final = "    "
"""What the lines of a traceback begin with."""
MAX_CHARS: Final = 16 * 1024
"""Maximum length of a value; the rest of it is left out."""
_WORD: Final = re.compile(r"[\w.:/@%+*,…\[\]~-]+")


class EventLine:
    """One event as it is passed to `logging`, with what its line says besides level and logger."""

    __slots__ = ("event", "fields", "node", "times", "wall_ms")

    def __init__(
        self,
        node: str,
        event: str,
        fields: Mapping[str, Plain],
        times: int = 1,
        wall_ms: int | None = None,
    ) -> None:
        self.node = node
        """Empty: that of the process."""
        self.event = event
        self.fields = fields
        self.times = times
        """Number of events that it stands for."""
        self.wall_ms = wall_ms
        """When it happened, if that was before it is written; in milliseconds since 1970 UTC."""

    def __str__(self) -> str:
        """Return event and fields as in text; this is what other handlers of `logging` write."""
        return f"{self.event}{_pairs(self)}"


class TextFormatter(logging.Formatter):
    """Makes lines of text: time, level, node, event, fields."""

    def __init__(self, node: str) -> None:
        """Create a formatter for the log of a process that runs the node."""
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's line, and those of its traceback."""
        line = _line_of(record)
        node = line.node or self._node or "-"
        text = f"{_time(record, line)} {record.levelname} {node} {line}"
        trace = _traceback(self, record)
        if trace:
            text += "".join(f"\n{INDENT}{printable(each)}" for each in trace.splitlines())
        return text


class JsonFormatter(logging.Formatter):
    """Makes lines of JSON: an object with time, level, node, event, the fields, and logger."""

    def __init__(self, node: str) -> None:
        """Create a formatter for the log of a process that runs the node."""
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's line."""
        line = _line_of(record)
        found: dict[str, Plain] = {
            "time": _time(record, line),
            "level": record.levelname.lower(),
            "node": line.node or self._node,
            "event": line.event,
        }
        found |= {name: _bounded(value) for name, value in line.fields.items() if value is not None}
        if line.times > 1:
            found["repeated"] = line.times
        found["logger"] = record.name
        trace = _traceback(self, record)
        if trace:
            found["exception"] = trace
        try:
            return json.dumps(found, separators=(",", ":"), allow_nan=False, default=str)
        except ValueError:
            # A number that JSON does not have.
            return json.dumps(_finite(found), separators=(",", ":"), default=str)


def open_log(
    form: LogForm, node: str, *, level: int = logging.INFO, to: TextIO | None = None
) -> None:
    """Let this process write its log in a form; to standard error unless another file is given.

    Nothing is changed if `logging` was set up before.
    """
    handler = logging.StreamHandler(sys.stderr if to is None else to)
    handler.setFormatter(JsonFormatter(node) if form == "json" else TextFormatter(node))
    logging.basicConfig(level=level, handlers=[handler])


def rename_log(form: LogForm, node: str) -> None:
    """Go on in another form, and under a name that was not known when the log was opened."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, TextFormatter | JsonFormatter):
            handler.setFormatter(JsonFormatter(node) if form == "json" else TextFormatter(node))


def is_json() -> bool:
    """Return True if this process writes its log as JSON."""
    handlers = logging.getLogger().handlers
    return any(isinstance(handler.formatter, JsonFormatter) for handler in handlers)


def pair_text(name: str, value: Plain) -> str:
    """Return a field as text has it: key=value, on one line."""
    return f"{name}={_value(value)}"


def _line_of(record: logging.LogRecord) -> EventLine:
    if isinstance(record.msg, EventLine):
        return record.msg
    return EventLine("", UNNAMED, {"text": record.getMessage()})


def _pairs(line: EventLine) -> str:
    pairs = [pair_text(*each) for each in line.fields.items() if each[1] is not None]
    if line.times > 1:
        pairs.append(f"repeated={line.times}")
    return "".join(f" {pair}" for pair in pairs)


def _time(record: logging.LogRecord, line: EventLine) -> str:
    seconds = record.created if line.wall_ms is None else line.wall_ms / 1000
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    trace = formatter.formatException(record.exc_info) if record.exc_info else ""
    return f"{trace}\n{record.stack_info}" if record.stack_info else trace


def _value(value: Plain) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return f"{value:.3f}".rstrip("0").rstrip(".")
        case str() if len(value) <= MAX_CHARS and value.isprintable() and _WORD.fullmatch(value):
            return value
        case list() if value and all(isinstance(each, str | int) for each in value):
            return _value(",".join(str(each) for each in value))
        case _:
            said = json.dumps(_bounded(value), ensure_ascii=False, default=str)
            return printable(said)


def printable(text: str) -> str:
    """Return a text with everything escaped that would break a line or steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _bounded(value: Plain) -> Plain:
    if isinstance(value, str) and len(value) > MAX_CHARS:
        return f"{value[:MAX_CHARS]}…"
    return value


def _finite(value: Plain) -> Plain:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case list():
            return [_finite(each) for each in value]
        case _:
            return value
