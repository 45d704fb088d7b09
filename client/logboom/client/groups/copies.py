"""The sink of failed messages for threads and event loops: a producer of the consumer's own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from logboom.client.futures import SendFuture
from logboom.client.io_thread import IoThread
from logboom.client.options import ProducerOptions
from logboom.client.producer import Producer
from logboom.client.results import Message
from logboom.wire.errors import InternalError, LogboomError

COPY_S: Final = 30.0
"""How long a copy is tried before its message is handed out again."""


class CopySink:
    """Sends copies to retries and dead letters, from a thread of its own: to open a producer or a
    topic waits, and neither the core's thread nor an event loop may."""

    can_delay = True

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Copy | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None

    def send(
        self,
        topic: str,
        message: Message,
        headers: dict[str, bytes],
        delay_ms: int,
        done: Callable[[LogboomError | None], None],
    ) -> None:
        """Send a copy; `done` is called in another thread. The group's coordinator has made the
        topic."""
        self._jobs.put(_Copy(topic, message, headers, delay_ms, done))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="logboom-copies", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while (copy := self._jobs.get()) is not None:
            try:
                future = self._send(copy)
            except LogboomError as error:
                copy.done(error)
            else:
                future.add_done_callback(copy.take)

    def _send(self, copy: _Copy) -> SendFuture:
        if self._producer is None:
            options = ProducerOptions(delivery_timeout_s=COPY_S)
            self._producer = Producer(self._io, options, self._timeout_s)
        message = copy.message
        return self._producer.send(
            copy.topic,
            message.value,
            key=message.key,
            tag=message.tag,
            headers=copy.headers,
            timestamp_ms=message.timestamp_ms,
            delay_s=copy.delay_ms / 1000 if copy.delay_ms else None,
        )

    def close(self) -> None:
        """Send what is left, flush, and end the producer."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join(self._timeout_s)
        if self._producer is not None:
            self._producer.close(self._timeout_s)


class _Copy:
    """One copy to send."""

    __slots__ = ("delay_ms", "done", "headers", "message", "topic")

    def __init__(
        self,
        topic: str,
        message: Message,
        headers: dict[str, bytes],
        delay_ms: int,
        done: Callable[[LogboomError | None], None],
    ) -> None:
        self.topic = topic
        self.message = message
        self.headers = headers
        self.delay_ms = delay_ms
        self.done = done

    def take(self, future: SendFuture) -> None:
        """The producer is through with it."""
        error = future.exception()
        if error is None or isinstance(error, LogboomError):
            self.done(error)
        else:
            self.done(InternalError(f"a copy was not sent: {error!r}; please report it"))
