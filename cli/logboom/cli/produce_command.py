"""`logboom produce`: send lines of standard input as messages."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from logboom.cli.connection import open_client
from logboom.cli.message_format import NewMessage, read_headers, read_json, split_key
from logboom.cli.options import delay_s
from logboom.cli.output import note
from logboom.cli.parameters import Servers
from logboom.cli.progress_bar import progress
from logboom.client import Producer, SendFuture
from logboom.client.written_values import counted, time_ms
from logboom.wire.errors import (
    ClientClosed,
    InvalidRequest,
    LogboomError,
    Refused,
    TimedOut,
    UnknownResource,
    error_for,
)

_PROGRESS_EVERY: Final = 1_000
_IN_FLIGHT: Final = 100_000
"""Messages whose results are checked late. The client limits their bytes."""
_LAST_WORD_S: Final = 5.0
"""Seconds that messages in flight may take after Ctrl-C. A second Ctrl-C ends that too."""


def produce(
    topic: str,
    values: list[str] | None = None,
    /,
    *,
    key: Annotated[str | None, Parameter(name=["--key", "-k"])] = None,
    key_separator: Annotated[str | None, Parameter(name=["--key-separator", "-K"])] = None,
    json: Annotated[bool, Parameter(name=["--json", "-J"], negative="")] = False,
    queue: Annotated[int | None, Parameter(name=["--queue", "-q"])] = None,
    tag: str | None = None,
    header: Annotated[list[str] | None, Parameter(name=["--header", "-H"])] = None,
    count: Annotated[int | None, Parameter(name=["--count", "-c"])] = None,
    acks: Literal["none", "leader", "all"] = "all",
    compression: Annotated[
        Literal["none", "lz4", "zstd"], Parameter(name=["--compression", "-z"])
    ] = "none",
    delay: str | None = None,
    deliver_at: str | None = None,
    from_line: int = 1,
    create: Annotated[bool, Parameter(negative="")] = False,
    servers: Servers = None,
) -> None:
    """Send each line of standard input, or each value given, as one message.

    It ends when all are acknowledged, and prints their number on standard error. A load that fails
    or is interrupted reports its progress, and --from-line continues from there.

        echo "UA:late" | logboom produce flights --key-separator :
        logboom produce flights '{"delay": 12}' --key UA --header source=tower
        logboom consume old --json --exit | logboom produce new --json
        logboom produce reminders "call back" --delay 15m

    Parameters
    ----------
    topic
        The topic to send to.
    values
        The messages; by default the lines of standard input.
    key
        The key of every message. Messages of a key stay in one queue, in order.
    key_separator
        Each line is a key, this separator and a value. A line without it has no key.
    json
        Lines are JSON objects of key, value, tag, headers, timestamp_ms, as `consume --json` writes
        them. The value is required; null means no value, which deletes the key in a compacted
        topic.
    queue
        Send to this queue, whatever the keys are.
    tag
        The tag of every message.
    header
        name=value, once or more.
    count
        Stop after this many messages.
    acks
        When a message counts as sent: none, leader, all.
    compression
        none, lz4 or zstd.
    delay
        Deliver them only after this time: 90s, 15m, 1h, at most 40d.
    deliver_at
        Deliver them only at this time: 2026-11-21T10:00:00Z.
    from_line
        Skip the lines before this one; the first is 1.
    create
        Create the topic, with default settings, if it does not exist.
    """
    if json and (key_separator is not None or key is not None):
        raise InvalidRequest("--json lines carry their own key: leave --key and --key-separator")
    if count is not None and count < 0:
        raise InvalidRequest(f"--count {count}: write a number of messages, or leave it")
    if from_line < 1:
        raise InvalidRequest(f"--from-line {from_line}: the first line is 1")
    due = None if deliver_at is None else _time_of(deliver_at)
    wait_s = None if delay is None else delay_s(delay)
    lines = map(_bytes, values) if values else _lines(sys.stdin.buffer)
    shared = NewMessage(None, None if key is None else _bytes(key), tag, read_headers(header or []))
    messages = _messages(lines, from_line, json, _separator(key_separator), shared)
    # A person who types needs the terminal line and knows the progress.
    typed = not values and sys.stdin.isatty()
    load = _Load(from_line, "sent" if acks == "none" else "acknowledged", typed=typed)
    try:
        with (
            open_client(servers, create_topics=create) as boom,
            boom.producer(acks=acks, compression=compression) as producer,
            progress("sending", len(values) if values else count, hidden=typed) as bar,
        ):
            if typed:
                note("one message a line; Ctrl-D ends")

            def send(message: NewMessage) -> SendFuture:
                return producer.send(
                    topic,
                    message.value,
                    key=message.key,
                    tag=message.tag,
                    headers=message.headers,
                    timestamp_ms=message.timestamp_ms,
                    queue=queue,
                    delay_s=wait_s,
                    deliver_at=due,
                )

            load.run(islice(messages, count), send, producer, bar.to)
    except (LogboomError, OSError) as error:
        if values and len(values) == 1:
            raise  # there is nothing to continue
        raise load.explain(error) from error
    # Ctrl-C and SIGTERM: the progress is reported here, where it is known. The error is raised
    # again.
    except BaseException:
        if load.begun:
            note(f"interrupted; {load.told()}")
        raise
    note(f"sent {load.sent:,}")


class _Load:
    """The lines being sent: which are acknowledged, and where to continue."""

    def __init__(self, first: int, done: str, *, typed: bool) -> None:
        self._first = first
        self._done = done
        """What a completed future means: "acknowledged", or only "sent"."""
        self._typed = typed
        self._settled = 0
        """The number of acknowledged messages, from the first one on."""
        self._waiting: deque[SendFuture] = deque()
        """The messages after them."""
        self._handing_over = False
        """True while a message is given to the producer, which may or may not have it."""
        self._failed: int | None = None
        """The line that ended the load."""

    @property
    def sent(self) -> int:
        """The number of messages given to the producer."""
        return self._settled + len(self._waiting)

    @property
    def begun(self) -> bool:
        """True if there is anything to report."""
        return self.sent > 0 or self._handing_over

    def run(
        self,
        messages: Iterator[NewMessage],
        send: Callable[[NewMessage], SendFuture],
        producer: Producer,
        progress: Callable[[int], None],
    ) -> None:
        """Send them all, and return when all are acknowledged.

        Raises:
            LogboomError: a line is invalid, or was refused.
        """
        try:
            self._send(messages, send, progress)
            producer.flush()
            while self._waiting:
                self._settle()
        except LogboomError:
            # Messages in flight are acknowledged or given up; they are counted only then.
            producer.flush()
            raise
        # Ctrl-C and SIGTERM: messages in flight get a moment, so that they count. It is raised
        # again.
        except BaseException:
            with suppress(TimedOut, ClientClosed):
                producer.flush(_LAST_WORD_S)
            raise

    def _send(
        self,
        messages: Iterator[NewMessage],
        send: Callable[[NewMessage], SendFuture],
        progress: Callable[[int], None],
    ) -> None:
        waiting = self._waiting
        for number, message in enumerate(messages, 1):
            self._handing_over = True
            try:
                future = send(message)
            except LogboomError:
                self._handing_over = False
                self._failed = self._first + self.sent
                raise
            waiting.append(future)
            self._handing_over = False
            if number % _PROGRESS_EVERY == 0:
                progress(number)
            while len(waiting) > _IN_FLIGHT or (waiting and waiting[0].done()):
                self._settle()

    def _settle(self) -> None:
        try:
            self._waiting[0].result()
        except LogboomError:
            self._failed = self._first + self._settled
            raise
        self._waiting.popleft()
        self._settled += 1

    def explain(self, error: LogboomError | OSError) -> LogboomError | OSError:
        """Return the error, with the progress of the load."""
        if not self.begun and self._first == 1:
            return error
        at = "" if self._failed is None else f"line {self._failed}: "
        text = f"{at}{error}; {self.told()}"
        if isinstance(error, LogboomError):
            return error_for(error.code, text, error.fields)
        return LogboomError(text)

    def told(self) -> str:
        """Return the progress of the load, and how to continue."""
        states = [_state(future) for future in self._waiting]
        # Refused messages are not stored. The others may or may not be.
        unknown = states.count(None) + self._handing_over
        leading = next((n for n, state in enumerate(states) if not state), len(states))
        next_line = self._first + self._settled + leading
        behind = states[leading:].count(True)
        parts = [f"{self._done}: {counted(self._settled + leading + behind, 'message')}"]
        if behind:
            parts.append(f"{behind:,} of them behind line {next_line}")
        if unknown:
            parts.append(f"{unknown:,} more may be stored")
        text = ", ".join(parts)
        if self._typed:
            return text
        again = " (then what is stored behind it is stored twice)" if behind or unknown else ""
        return f"{text}; go on with --from-line {next_line}{again}"


def _state(future: SendFuture) -> bool | None:
    """Return True if a message is acknowledged, None if it may or may not be stored."""
    if not future.done():
        return None
    error = future.exception()
    if error is None:
        return True
    return False if isinstance(error, InvalidRequest | UnknownResource | Refused) else None


def _time_of(text: str) -> int:
    found = time_ms(text)
    if found is None:
        raise InvalidRequest(f"--deliver-at {text!r} is not a time: write 2026-11-21T10:00:00Z")
    return found


def _bytes(word: str) -> bytes:
    """Return a command-line argument as it was given, UTF-8 or not."""
    return word.encode("utf-8", "surrogateescape")


def _separator(text: str | None) -> bytes | None:
    """Return the separator, which may be written as \\t or \\x1f."""
    if text is None:
        return None
    try:
        plain = text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError:
        plain = ""
    if not plain:
        raise InvalidRequest(f"--key-separator {text!r}: write characters, \\t, \\x1f or \\\\")
    return plain.encode()


def _lines(stream: Iterable[bytes]) -> Iterator[bytes]:
    for line in stream:
        yield line.removesuffix(b"\n")


def _messages(
    lines: Iterable[bytes], first: int, json: bool, separator: bytes | None, shared: NewMessage
) -> Iterator[NewMessage]:
    number = 0
    for number, line in enumerate(lines, 1):
        if number < first:
            continue
        if json:
            try:
                read = read_json(line)
            except InvalidRequest as error:
                raise InvalidRequest(f"line {number}: {error}") from None
            headers = {**(shared.headers or {}), **(read.headers or {})} or None
            yield read._replace(tag=read.tag or shared.tag, headers=headers)
        else:
            key, value = split_key(line, separator)
            yield shared._replace(key=shared.key if key is None else key, value=value)
    if number < first - 1:
        text = f"--from-line {first}: there are only {counted(number, 'line')}"
        raise InvalidRequest(f"{text}; is it the same input?")
