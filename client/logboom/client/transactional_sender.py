# Generated from aio/transactional_sender.py by `make generate`: do not edit.
"""The sender of half messages: it parks them, runs local transactions, and answers checks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol, Unpack

from logboom.client.argument_checks import BytesLike
from logboom.client.bridge import Event, Worker, call_user, drive, ends_worker, get_result
from logboom.client.delays import Parking
from logboom.client.futures import SendFuture
from logboom.client.io_thread import IoThread
from logboom.client.resource import Resource
from logboom.client.results import Message
from logboom.client.send.send_buffer import SendBuffer
from logboom.client.send_options import MessageOptions
from logboom.client.transactions.half_check_poller import CloseChecks, HalfMessageQueue, OpenChecks
from logboom.client.transactions.half_messages import (
    HalfSendResult,
    Resolution,
    check_outcome,
    end_half,
    half_message,
    half_parks,
    message_of,
    parked_of,
    place_of_half,
    resolution_of,
)
from logboom.wire.errors import ClientClosed, TimedOut
from logboom.wire.frames import Frame
from logboom.wire.transactions import UndecidedBatch

LOG = logging.getLogger("logboom.client")

LOOK_AGAIN_S: Final = 1.0
"""Seconds after which the worker for checks looks whether its client still runs."""
CLOSE_S: Final = 5.0
"""Seconds for which `close` waits for a running check."""


class HalfProducer(Protocol):
    """The producer of a sender of half messages, which sends for nobody else."""

    @property
    def buffer(self) -> SendBuffer[Any]:
        """The messages that wait for acknowledgement."""

    def send(
        self, topic: str, value: BytesLike | None, **options: Unpack[MessageOptions]
    ) -> SendFuture:
        """Send one message."""

    def close(self, timeout_s: float | None = None) -> None:
        """Flush and close."""


class TransactionalSender(Resource):
    """A sender of half messages; `Producer.transactional_sender` creates it. Any number of threads
    may share it."""

    def __init__(
        self,
        io: IoThread,
        inner: HalfProducer,
        group: str,
        check: Callable[[Message], object],
        timeout_s: float,
    ) -> None:
        self._io = io
        self._inner = inner
        self._check = check
        self._timeout_s = timeout_s
        inner.buffer.parks = half_parks(group)
        inner.buffer.alone = True
        self._event = Event()
        self._checks = HalfMessageQueue(group, self._event.set)
        self._closed = False
        io.submit(OpenChecks(self._checks))
        self._worker = Worker("logboom-checks", self._run)

    def send(
        self,
        topic: str,
        value: BytesLike | None,
        *,
        local: Callable[[Message], object],
        **options: Unpack[MessageOptions],
    ) -> HalfSendResult:
        """Park a message, run `local` with it, and publish or drop it depending on the result.

        Args:
            local: the local transaction. It runs once the message is safe, and returns "commit",
                "rollback" or "unknown" (`Resolution`). If it raises, the exception is raised here,
                and the message stays undecided until `check` decides it.
            options: key, tag, headers, timestamp_ms and queue, as described in `MessageOptions`.

        Raises:
            InvalidRequest: as `Producer.send`; or `local` returned something else.
            TransactionError: TRANSACTION_CLOSED: it was decided otherwise before, for example by a
                check.
            LogboomError: the message could not be parked; `local` was not called.
        """
        if self._closed:
            raise ClientClosed("this sender is closed: make another with transactional_sender()")
        sent = get_result(self._inner.send(topic, value, **options))
        key, tag, headers = options.get("key"), options.get("tag"), options.get("headers")
        said = call_user(local, message_of(sent, value, key, tag, headers))
        return self._end(parked_of(sent), resolution_of(said, "a local transaction"))

    def _end(self, parked: Parking, resolution: Resolution) -> HalfSendResult:
        place = (parked.topic, parked.queue, resolution)
        if resolution is Resolution.UNKNOWN:
            return HalfSendResult(*place, "unknown", parked)
        commit = resolution is Resolution.COMMIT
        try:
            flow = end_half(parked, commit=commit, timeout=self._timeout_s)
            outcome = drive(self._io, flow)
        except TimedOut as error:
            LOG.warning("a half message is decided later, by its check: %s", error)
            return HalfSendResult(*place, "unknown", parked)
        check_outcome(resolution, outcome, parked)
        return HalfSendResult(*place, outcome, parked)

    # Checks.

    def _run(self) -> None:
        while not self._closed and self._io.running:
            self._event.wait(LOOK_AGAIN_S)
            self._event.clear()
            while self._checks.arrivals and not self._closed:
                self._answer(*self._checks.arrivals.popleft())

    def _answer(self, half: UndecidedBatch, batch: Frame) -> None:
        try:
            said = call_user(self._check, half_message(half, batch))
            self._end(place_of_half(half), resolution_of(said, "a check"))
        # The check may raise anything. The broker asks again, and other checks must be answered.
        except BaseException as error:
            LOG.exception("the check of a half message in %s/%s failed", half.topic, half.queue)
            if ends_worker(error):
                raise

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Stop answering checks, and wait up to `timeout_s` for a running one. A second call does
        nothing."""
        if self._closed:
            return
        self._closed = True
        self._event.set()
        if self._io.running:
            self._io.submit(CloseChecks(self._checks))
            self._inner.close()
        self._worker.join(timeout_s)
