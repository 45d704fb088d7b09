"""Where copies of failed messages go in the simulation: a producer on the client's own core."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from logboom.client.calls import CoreCall
from logboom.client.producer_options import ProducerOptions
from logboom.client.results import Message
from logboom.client.send.producer_batch import ProducerBatch
from logboom.client.send.send_buffer import OpenProducer, OpenTopic, SendBuffer
from logboom.wire.errors import LogboomError
from logboom.wire.names import DLQ_PREFIX

COPY_S = 30.0
"""Seconds that a copy is tried."""
NEVER = 1e6


class _Buffer(SendBuffer[None]):
    def __init__(
        self, options: ProducerOptions, mono: Callable[[], float], date_ms: Callable[[], int]
    ) -> None:
        super().__init__(options, _no_future, nullcontext(), mono, _ignore)
        self._date_ms = date_ms

    def wall_ms(self) -> int:
        return self._date_ms()


class GroupSink:
    """A `RetrySink` fed by a member of a group."""

    can_delay = True

    def __init__(
        self,
        call: Callable[[CoreCall], None],
        mono: Callable[[], float],
        date_ms: Callable[[], int],
        buried: Callable[[Message], None],
    ) -> None:
        """`date_ms`: the right date, from which delays count; `buried`: called before a message that
        is a dead letter is finished."""
        self._call = call
        self._buried = buried
        options = ProducerOptions("all", delivery_timeout_s=COPY_S)
        self._buffer = _Buffer(options, mono, date_ms)
        self._opening = False
        self._opened = False
        self._waiting: list[Callable[[], None]] = []

    def send(
        self,
        topic: str,
        message: Message,
        headers: dict[str, bytes],
        delay_ms: int,
        done: Callable[[LogboomError | None], None],
    ) -> None:
        """Send a copy; `done` is called once, when it is safe or has failed."""

        def post() -> None:
            if topic in self._buffer.topics:
                self._post(topic, message, headers, delay_ms, done)
                return
            call = OpenTopic(self._buffer, topic, COPY_S)

            def known() -> None:
                if call.outcome.error is None:
                    self._post(topic, message, headers, delay_ms, done)
                else:
                    done(_told(call.outcome.error))

            call.outcome.add_callback(known)
            self._call(call)

        if self._opened:
            post()
            return
        self._waiting.append(post)
        if not self._opening:
            self._opening = True
            opening = OpenProducer(self._buffer, NEVER)
            opening.outcome.add_callback(self._ready)
            self._call(opening)

    def _ready(self) -> None:
        self._opened = True
        waiting, self._waiting = self._waiting, []
        for post in waiting:
            post()

    def _post(
        self,
        topic: str,
        message: Message,
        headers: dict[str, bytes],
        delay_ms: int,
        done: Callable[[LogboomError | None], None],
    ) -> None:
        delay_s = delay_ms / 1000 if delay_ms else None
        (pile,) = self._buffer.send_many(topic, [message.value], headers=[headers], delay_s=delay_s)

        def sent() -> None:
            if pile.error is None and topic.startswith(DLQ_PREFIX):
                self._buried(message)
            done(_told(pile.error))

        pile.add_callback(sent)


def _told(error: Exception | None) -> LogboomError | None:
    if error is None or isinstance(error, LogboomError):
        return error
    raise error


def _no_future(_batch: ProducerBatch, _place: int) -> None:
    return None


def _ignore() -> None:
    return None
