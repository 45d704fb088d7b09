# Generated from aio/reader.py by client/generate_blocking.py: do not edit, run `make generate`.
"""What the three consumers share: a consumer without a group, of a group, of a subscription."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeVar

from logboom.client.bridge import Event, Lock, ReaderLock
from logboom.client.io_thread import IoThread
from logboom.client.resource import Resource
from logboom.client.results import Message
from logboom.wire.errors import ClientClosed, InvalidRequest

T = TypeVar("T")

LOOK_AGAIN_S: Final = 1.0
"""How often a waiting reader checks that the client still runs, and looks for new queues."""


class Reader(Resource):
    """A consumer that its caller asks for messages. One thread reads at a time."""

    _made_by = "client.consumer()"

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self._event = Event()
        self._read_lock = ReaderLock()
        self._opening = Lock()
        self._opened = False
        self._closed = False

    def open(self) -> None:
        """Begin to read; `with` and the first read do it too.

        Raises:
            LogboomError: the reasons for which `Client.consumer` and `Client.subscribe` fail.
        """
        with self._opening:
            self._check()
            if not self._opened:
                self._open()
                self._opened = True

    def __iter__(self) -> Iterator[Message]:
        """Every message, waiting for the next when there is none; ends when closed."""
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
        """Up to `max_messages` messages: what is here, else the first to come in `timeout_s`.

        In a group, no messages mean the end of the data only for a member that has queues
        (`assigned`).
        """
        if max_messages < 1:
            raise InvalidRequest(f"max_messages is 1 or more, not {max_messages}")
        if not self._opened:
            self.open()
        with self._read_lock:
            self._check()
            taken = self._take(max_messages)
            return taken or self._wait_for(partial(self._take, max_messages), timeout_s)

    def _wait_for(self, take: Callable[[], list[T]], timeout_s: float) -> list[T]:
        """Wait until there is something to take, up to `timeout_s`, and take it."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
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

    # What each consumer does in its own way.

    @abstractmethod
    def _open(self) -> None:
        """Find what there is to read, and begin."""

    @abstractmethod
    def _take(self, limit: int) -> list[Message]:
        """Up to `limit` messages that are here."""

    @abstractmethod
    def _expect(self) -> bool:
        """Have the event set by the next arrival; true if something is here already."""

    def _found_nothing(self) -> None:
        """A `poll` ends without anything."""
        return
