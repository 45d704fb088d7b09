"""A publisher of retry copies and dead letters, for threads and event loops.

It uses a producer of its own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from logboom.client.bridge import drive
from logboom.client.fetch.copy_signing import sign_copies
from logboom.client.fetch.retry_copies import place_of
from logboom.client.futures import ManyFuture
from logboom.client.io_thread import IoThread
from logboom.client.producer import Producer
from logboom.client.producer_options import ProducerOptions
from logboom.client.results import Message
from logboom.wire.copy_receipts import MAX_COPIES, ORIGIN, RECEIPT
from logboom.wire.errors import InternalError, LogboomError, OffsetOutOfRange
from logboom.wire.names import group_of

COPY_S: Final = 30.0
"""Seconds for which a copy is retried before its message is handed out again."""
MAX_COPIES_AT_ONCE: Final = 500
"""Maximum number of copies sent at once."""


class RetryPublisher:
    """Sends copies to retry and dead-letter topics from its own thread.

    Opening a producer or a topic blocks, which neither the core's thread nor an event loop may do.
    """

    can_delay = True

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_RetryCopy | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None
        self._room = threading.BoundedSemaphore(MAX_COPIES // MAX_COPIES_AT_ONCE)
        """Sends that are not acknowledged: their copies may be joined into one batch."""

    def send(
        self,
        topic: str,
        message: Message,
        headers: dict[str, bytes],
        delay_ms: int,
        done: Callable[[LogboomError | None], None],
    ) -> None:
        """Send a copy and call `done` in another thread; the coordinator has already created the
        topic."""
        self._jobs.put(_RetryCopy(topic, message, headers, delay_ms, done))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="logboom-copies", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        last = False
        while not last:
            copies, last = self._waiting()
            # Messages that failed together are sent together: a batch for each would delay their
            # queue.
            for _, some in groupby(copies, attrgetter("topic", "delay_ms")):
                signed = self._signed(list(some))
                if signed:
                    self._send(signed)

    def _waiting(self) -> tuple[list[_RetryCopy], bool]:
        """Return the copies to send, at least one, and whether they are the last."""
        copies: list[_RetryCopy] = []
        while len(copies) < MAX_COPIES_AT_ONCE and not (copies and self._jobs.empty()):
            copy = self._jobs.get()
            if copy is None:
                return copies, True
            copies.append(copy)
        return copies, False

    def _signed(self, copies: list[_RetryCopy]) -> list[_RetryCopy]:
        """Return copies with the receipts of the brokers that hold their originals.

        Those that get none are told so.
        """
        if not self._io.signs_copies:
            return copies
        queues: dict[tuple[str, int, bool], list[_RetryCopy]] = {}
        for copy in copies:
            topic, queue, _ = place_of(copy.message)
            queues.setdefault((topic, queue, copy.is_kept), []).append(copy)
        refused: dict[int, LogboomError] = {}
        for (topic, queue, kept), some in queues.items():
            offsets = [place_of(copy.message)[2] for copy in some]
            owner = group_of(copies[0].topic) or ""
            flow = sign_copies(owner, topic, queue, offsets, COPY_S, kept=kept)
            try:
                receipts = drive(self._io, flow)
            except LogboomError as error:
                refused.update((id(copy), error) for copy in some)
                continue
            for copy, receipt in zip(some, receipts or (), strict=receipts is not None):
                copy.headers[RECEIPT] = receipt
                if not receipt:
                    refused[id(copy)] = _no_receipt(copy)
        for copy in copies:
            if id(copy) in refused:
                copy.done(refused[id(copy)])
        return [copy for copy in copies if id(copy) not in refused]

    def _send(self, copies: list[_RetryCopy]) -> None:
        """Send copies that have the same topic and delay."""
        self._room.acquire()
        try:
            future = self._send_many(copies)
        # A message that the application has made may be wrong in any way.
        except Exception as error:  # noqa: BLE001 - it is told to the sender of the copy
            self._room.release()
            if len(copies) == 1:
                copies[0].done(_as_ours(error))
                return
            # One of them may be too large, which must not keep back the others.
            for copy in copies:
                self._send([copy])
        else:
            future.add_done_callback(lambda done: self._tell(copies, done))

    def _send_many(self, copies: list[_RetryCopy]) -> ManyFuture:
        if self._producer is None:
            options = ProducerOptions(delivery_timeout_s=COPY_S)
            self._producer = Producer(self._io, options, self._timeout_s)
        messages = [copy.message for copy in copies]
        delay_ms = copies[0].delay_ms
        return self._producer.send_many(
            copies[0].topic,
            [message.value for message in messages],
            [message.key for message in messages],
            tags=[message.tag for message in messages],
            headers=[copy.headers for copy in copies],
            timestamps_ms=[message.timestamp_ms for message in messages],
            delay_s=delay_ms / 1000 if delay_ms else None,
        )

    def _tell(self, copies: list[_RetryCopy], future: ManyFuture) -> None:
        """Report the result of one batch of copies."""
        self._room.release()
        error = future.exception()
        for copy in copies:
            copy.done(None if error is None else _as_ours(error))

    def close(self) -> None:
        """Send the remaining copies, flush, and close the producer."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join(self._timeout_s)
        if self._producer is not None:
            self._producer.close(self._timeout_s)


class _RetryCopy(NamedTuple):
    """One copy to send."""

    topic: str
    message: Message
    headers: dict[str, bytes]
    delay_ms: int
    done: Callable[[LogboomError | None], None]

    @property
    def is_kept(self) -> bool:
        """True if the message is a copy itself, whose origin is not the place where it was read."""
        topic, queue, offset = place_of(self.message)
        return self.headers.get(ORIGIN) != f"{topic}/{queue}/{offset}".encode()


def _no_receipt(copy: _RetryCopy) -> LogboomError:
    topic, queue, offset = place_of(copy.message)
    text = f"message {offset} of {topic}/{queue} has no copy: it is not there any more"
    return OffsetOutOfRange(f"{text}, or this user has no consumer that holds it")


def _as_ours(error: BaseException) -> LogboomError:
    if isinstance(error, LogboomError):
        return error
    return InternalError(f"copies were not sent: {error!r}; please report it")
