"""The sink of failed messages for threads and event loops: a producer of the consumer's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from logboom.client.io_thread import IoThread
from logboom.client.options import ProducerOptions
from logboom.client.producer import Producer
from logboom.client.results import Message
from logboom.wire.errors import LogboomError

COPY_S: Final = 30.0
"""How long a copy is tried before its message is handed out again."""


class CopySink:
    """Sends copies to retries and dead letters, in a thread of its own: opening a producer and
    topics waits, and the core's thread must not."""

    can_delay = False

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self._producer: Producer | None = None
        self._lock = threading.Lock()

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

        def run() -> None:
            try:
                self._send(topic, message, headers)
            except LogboomError as error:
                done(error)
            else:
                done(None)

        threading.Thread(target=run, name="logboom-copy", daemon=True).start()

    def _send(self, topic: str, message: Message, headers: dict[str, bytes]) -> None:
        with self._lock:
            if self._producer is None:
                options = ProducerOptions(delivery_timeout_s=COPY_S)
                self._producer = Producer(self._io, options, self._timeout_s)
            producer = self._producer
        producer.send(
            topic,
            message.value,
            key=message.key,
            tag=message.tag,
            headers=headers,
            timestamp_ms=message.timestamp_ms,
        ).result()

    def close(self) -> None:
        """Flush, and end the producer."""
        with self._lock:
            if self._producer is not None:
                self._producer.close(self._timeout_s)
