# Generated from aio/reader.py by `make generate`: do not edit.
"""The base of the three consumers: without a group, of a group, and of a subscription."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from logboom.client.bridge import Event, Lock, ReaderLock
from logboom.client.io_thread import IoThread
from logboom.client.resource import Resource
from logboom.client.results import Message
from logboom.wire.errors import ClientClosed, InvalidRequest

if TYPE_CHECKING:
    from logboom.client.tracing.consumer_tracer import ConsumerTracer

T = TypeVar("T")

LOOK_AGAIN_S: Final = 1.0
"""Seconds after which a waiting reader checks that the client runs, and looks for new queues."""


class Reader(Resource):
    """A consumer whose caller asks for messages. One thread reads at a time."""

    _made_by = "client.consumer()"

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self._event = Event()
        self._read_lock = ReaderLock()
        self._opening = Lock()
        self._opened = False
        self._closed = False
        self._tracing: ConsumerTracer | None = None

    def open(self) -> None:
        """Begin to read, unless it has begun. `with` and the first read do it, too.

        Raises:
            LogboomError: as `Client.consumer` and `Client.subscribe`.
        """
        with self._opening:
            self._check()
            if not self._opened:
                self._open()
                self._opened = True

    def __iter__(self) -> Iterator[Message]:
        """Iterate over all messages, waiting for new ones, until the consumer is closed."""
        if not self._opened:
            self.open()
        while not self._closed:
            self._io.check()
            taken = self._take(1)
            if taken:
                yield taken[0]
            else:
                self._wait(LOOK_AGAIN_S)

    def poll(self, max_messages: int = 1_000, timeout_s: float = 1.0) -> list[Message]:
        """Return up to `max_messages` messages that have arrived, or wait up to `timeout_s` for the
        first.

        In a group, an empty result means the end of the data only if the member has queues; see
        `assigned`.
        """
        if max_messages < 1:
            raise InvalidRequest(f"max_messages must be 1 or more, not {max_messages}")
        if not self._opened:
            self.open()
        if self._tracing is not None:
            return self._poll_traced(self._tracing, max_messages, timeout_s)
        return self._poll(max_messages, timeout_s)

    def _poll(self, max_messages: int, timeout_s: float) -> list[Message]:
        with self._read_lock:
            self._check()
            taken = self._take(max_messages)
            return taken or self._wait_for(partial(self._take, max_messages), timeout_s)

    def _poll_traced(
        self, tracing: ConsumerTracer, max_messages: int, timeout_s: float
    ) -> list[Message]:
        began_ns = tracing.begin()
        taken = self._poll(max_messages, timeout_s)
        tracing.received(taken, began_ns)
        return taken

    def process(self, given: Message | Sequence[Message]) -> AbstractContextManager[object]:
        """Trace the handling of a message, or of several: `with consumer.process(message): …`. It
        is a span that continues the trace of the message. Without tracing it does nothing."""
        if self._tracing is None:
            return nullcontext()
        return self._tracing.process([given] if isinstance(given, Message) else given)

    def trace(self, tracing: ConsumerTracer) -> None:
        """Trace polls from now on; `Client.consumer(…, tracing=True)` calls it."""
        self._tracing = tracing

    def _wait_for(self, take: Callable[[], list[T]], timeout_s: float) -> list[T]:
        """Wait up to `timeout_s` until `take` returns something."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            if not left > 0:
                self._found_nothing()
                return []
            self._wait(min(left, LOOK_AGAIN_S))
            self._check()
            taken = take()
            if taken:
                return taken

    def _check(self) -> None:
        self._io.check()
        if self._closed:
            raise ClientClosed(f"this consumer is closed: make another with {self._made_by}")

    def _wait(self, timeout_s: float) -> None:
        self._event.clear()
        if not self._expect():
            self._event.wait(timeout_s)

    # Each consumer has its own of these.

    @abstractmethod
    def _open(self) -> None:
        """Find the topics, and begin to read."""

    @abstractmethod
    def _take(self, limit: int) -> list[Message]:
        """Return up to `limit` messages that have arrived."""

    @abstractmethod
    def _expect(self) -> bool:
        """Ask for the event to be set by the next arrival. Return True if something has arrived
        already."""

    def _found_nothing(self) -> None:
        """Handle that a `poll` returns nothing."""
        return
