"""Half messages for asyncio: park, run the local transaction, tell its end; and answer checks."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from logboom.client.aio.bridge import call_in, drive
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
    from logboom.client.aio.producer import Producer

LOG = logging.getLogger("logboom.client")


class TransactionalSender:
    """As `logboom.client`'s; checks are answered by a task of the loop that made it."""

    def __init__(
        self,
        io: IoThread,
        inner: Producer,
        group: str,
        check: Callable[[Message], Any],
        timeout_s: float,
    ) -> None:
        self._io = io
        self._inner = inner
        self._check = check
        self._timeout_s = timeout_s
        inner.buffer.parks = half_parks(group)
        inner.buffer.alone = True
        loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._checks = HalfMessageQueue(group, lambda: call_in(loop, self._wanted.set))
        self._closed = False
        io.submit(OpenChecks(self._checks))
        self._task = loop.create_task(self._run())

    async def send(
        self,
        topic: str,
        value: BytesLike | None,
        *,
        local: Callable[[Message], Any],
        key: BytesLike | None = None,
        tag: str | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp_ms: int | None = None,
        queue: int | None = None,
    ) -> HalfSendResult:
        """Park a message, run `local` (a function or a coroutine function) with it, and publish or
        drop it as that says. The errors are those of `logboom.client`'s."""
        if self._closed:
            raise ClientClosed("this sender is closed: make another with transactional_sender()")
        sent = await self._inner.send(
            topic,
            value,
            key=key,
            tag=tag,
            headers=headers,
            timestamp_ms=timestamp_ms,
            queue=queue,
        )
        said = await _said(local, message_of(sent, value, key, tag, headers))
        return await self._end(parked_of(sent), resolution_of(said, "a local transaction"))

    async def _end(self, parked: Parking, resolution: Resolution) -> HalfSendResult:
        place = (parked.topic, parked.queue, resolution)
        if resolution is Resolution.UNKNOWN:
            return HalfSendResult(*place, "unknown", parked)
        commit = resolution is Resolution.COMMIT
        try:
            flow = end_half(parked, commit=commit, timeout=self._timeout_s)
            outcome = await drive(self._io, flow)
        except TimedOut as error:
            LOG.warning("a half message is decided later, by its check: %s", error)
            return HalfSendResult(*place, "unknown", parked)
        check_outcome(resolution, outcome, parked)
        return HalfSendResult(*place, outcome, parked)

    # Checks.

    async def _run(self) -> None:
        while not self._closed:
            await self._wanted.wait()
            self._wanted.clear()
            while self._checks.arrivals and not self._closed:
                await self._answer(*self._checks.arrivals.popleft())

    async def _answer(self, half: UndecidedBatch, batch: Frame) -> None:
        try:
            said = await _said(self._check, half_message(half, batch))
            await self._end(place_of_half(half), resolution_of(said, "a check"))
        # The user's code may raise anything: the broker asks again, and the task must go on.
        except Exception:
            LOG.exception("the check of a half message in %s/%s failed", half.topic, half.queue)

    async def close(self) -> None:
        """Answer no more checks; a running one is cancelled. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._io.running:
            self._io.submit(CloseChecks(self._checks))
        await self._inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def _said(function: Callable[[Message], Any], message: Message) -> object:
    said = function(message)
    return await said if inspect.isawaitable(said) else said
