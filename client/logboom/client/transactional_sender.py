"""Half messages for threads: park, run the local transaction, tell its end; and answer checks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from logboom.client.argument_checks import BytesLike
from logboom.client.delays import Parking
from logboom.client.io_thread import IoThread
from logboom.client.results import Message
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

if TYPE_CHECKING:
    from logboom.client.producer import Producer

LOG = logging.getLogger("logboom.client")

LOOK_AGAIN_S: Final = 1.0
"""How often the thread of the checks looks whether its client still runs."""


class TransactionalSender:
    """Sends half messages; made by `Producer.transactional_sender`. Any threads may share one."""

    def __init__(
        self,
        io: IoThread,
        inner: Producer,
        group: str,
        check: Callable[[Message], object],
        timeout_s: float,
    ) -> None:
        """`inner` sends for this one alone."""
        self._io = io
        self._inner = inner
        self._check = check
        self._timeout_s = timeout_s
        inner.buffer.parks = half_parks(group)
        inner.buffer.alone = True
        self._event = threading.Event()
        self._checks = HalfMessageQueue(group, self._event.set)
        self._closed = False
        io.submit(OpenChecks(self._checks))
        self._thread = threading.Thread(target=self._run, name="logboom-checks", daemon=True)
        self._thread.start()

    def send(
        self,
        topic: str,
        value: BytesLike | None,
        *,
        local: Callable[[Message], object],
        key: BytesLike | None = None,
        tag: str | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp_ms: int | None = None,
        queue: int | None = None,
    ) -> HalfSendResult:
        """Park a message, run `local` with it, and publish or drop it as that says.

        Args:
            local: the local transaction: returns "commit", "rollback" or "unknown"
                (`Resolution`). It runs once the message is safe. If it raises, the message stays in
                doubt, and `check` is asked; the exception goes on to the caller.

        Raises:
            InvalidRequest: as `Producer.send`; or what `local` returned is none of the three.
            TransactionError: TRANSACTION_CLOSED: somebody decided otherwise before, e.g. a check.
            LogboomError: the message could not be parked; `local` was not called.
        """
        if self._closed:
            raise ClientClosed("this sender is closed: make another with transactional_sender()")
        sent = self._inner.send(
            topic,
            value,
            key=key,
            tag=tag,
            headers=headers,
            timestamp_ms=timestamp_ms,
            queue=queue,
        ).result()
        message = message_of(sent, value, key, tag, headers)
        resolution = resolution_of(local(message), "a local transaction")
        return self._end(parked_of(sent), resolution)

    def _end(self, parked: Parking, resolution: Resolution) -> HalfSendResult:
        place = (parked.topic, parked.queue, resolution)
        if resolution is Resolution.UNKNOWN:
            return HalfSendResult(*place, "unknown", parked)
        commit = resolution is Resolution.COMMIT
        try:
            outcome = self._io.drive(end_half(parked, commit=commit, timeout=self._timeout_s))
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
            message = half_message(half, batch)
            resolution = resolution_of(self._check(message), "a check")
            self._end(place_of_half(half), resolution)
        # The user's code may raise anything: the broker asks again, and the thread must go on.
        except Exception:
            LOG.exception("the check of a half message in %s/%s failed", half.topic, half.queue)

    def close(self, timeout_s: float = 5.0) -> None:
        """Answer no more checks; waits up to `timeout_s` for a running one. A second call does
        nothing."""
        if self._closed:
            return
        self._closed = True
        self._event.set()
        if self._io.running:
            self._io.submit(CloseChecks(self._checks))
            self._inner.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
