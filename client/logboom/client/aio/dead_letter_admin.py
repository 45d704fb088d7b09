"""Dead letters of groups and subscriptions: count, read and send again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from logboom.client.admin_flows import dead_letter_flows
from logboom.client.admin_flows.dead_letter_flows import (
    AT_ONCE,
    DeadLetter,
    DeadLetterQueue,
    DeadLetterSummary,
    QueueOffset,
)
from logboom.client.aio.bridge import Event, drive, get_result
from logboom.client.aio.producer import Producer
from logboom.client.flows import Flow
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.producer_options import ProducerOptions
from logboom.wire.errors import InvalidRequest
from logboom.wire.names import RETRY_PREFIX

T = TypeVar("T")


class DeadLetterAdmin:
    """The dead letters of a cluster; it is the attribute `dead_letters` of a client.

    An owner is the name of a group, or topic%subscription.
    """

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s

    async def _run(self, flow: Flow[T]) -> T:
        return await drive(self._io, flow)

    async def describe(self, owner: str) -> DeadLetterSummary:
        """Return how many dead letters an owner has, and how many were not sent again.

        Raises:
            UnknownResource: it has no dead-letter topic.
        """
        return await self._run(dead_letter_flows.summary(owner, self._timeout_s))

    async def read(
        self,
        owner: str,
        *,
        count: int = 20,
        queues: Sequence[int] | None = None,
        again: bool = False,
    ) -> list[DeadLetter]:
        """Return dead letters with their origin and cause, queue by queue, the oldest first.

        Args:
            again: include those that were already sent again.

        Raises:
            UnknownResource: the owner has no dead-letter topic, or no such queue.
        """
        found = await self._queues(owner, queues, again=again)
        return await self._run(dead_letter_flows.read(owner, found, count, self._timeout_s))

    async def count(
        self,
        owner: str,
        *,
        queues: Sequence[int] | None = None,
        again: bool = False,
        cause: str | None = None,
    ) -> int:
        """Return how many dead letters a `redrive` with these arguments would send again. With a
        `cause` all are read for it."""
        found = await self._queues(owner, queues, again=again)
        if cause is None:
            return sum(each.end - each.begun for each in found)
        counted = 0
        for each in found:
            at = each.begun
            while at < each.end:
                bunch = await self._bunch(owner, each, at, dead_letter_flows.AT_ONCE)
                counted += sum(cause in letter.cause for letter in bunch)
                at = bunch[-1].message.offset + 1 if bunch else each.end
        return counted

    async def _bunch(
        self, owner: str, queue: DeadLetterQueue, at: int, count: int
    ) -> list[DeadLetter]:
        place = DeadLetterQueue(queue.queue, queue.first, at, queue.end)
        return await self._run(dead_letter_flows.read(owner, [place], count, self._timeout_s))

    async def get(self, owner: str, queue: int, offset: int) -> DeadLetter:
        """Return one dead letter.

        Raises:
            OffsetOutOfRange: there is none.
        """
        return await self._run(dead_letter_flows.get(owner, queue, offset, self._timeout_s))

    async def redrive(
        self,
        owner: str,
        *,
        queues: Sequence[int] | None = None,
        count: int | None = None,
        chosen: Sequence[QueueOffset] = (),
        value: bytes | None = None,
        cause: str | None = None,
        again: bool = False,
        per_s: float = 0,
        on_sent: Callable[[int], object] | None = None,
    ) -> int:
        """Send dead letters again to the owner that gave them up, and to no other; return how many.

        Members receive them as first deliveries. The progress is recorded after each batch.

        Args:
            queues: only those of these queues; None: of all.
            count: at most so many.
            chosen: exactly these. One that lies behind others that were not sent again stays open.
            value: the value that one chosen dead letter gets instead of its own.
            cause: only those whose cause has this text in it. One that lies behind others that were
                not sent again stays open.
            again: include those that were already sent again.
            per_s: at most so many per second; 0: as fast as it goes.
            on_sent: called with the number that are sent so far.

        Raises:
            UnknownResource: there is no such owner, or its group was deleted.
            Forbidden: the user may not manage the group or subscription; or, to give
                another value, may not write the topic of the original.
            OffsetOutOfRange: a chosen one does not exist.
            InvalidRequest: an argument is invalid.
        """
        dead_letter_flows.check_chosen(chosen, queues, count)
        if chosen and cause is not None:
            raise InvalidRequest("name dead letters one by one, or their cause, not both")
        if value is not None and len(chosen) != 1:
            raise InvalidRequest("a new value is for one dead letter: choose exactly one")
        if count is not None and count < 1:
            raise InvalidRequest(f"send 1 or more dead letters again, not {count}")
        if per_s < 0:
            raise InvalidRequest(f"a rate is 0 or more messages per second, not {per_s}")
        await self._run(dead_letter_flows.committed(owner, self._timeout_s))
        run = _Redrive(self._io, self._timeout_s, owner, per_s, on_sent)
        if chosen:
            letters = [await self.get(owner, *place) for place in sorted(set(chosen))]
            return await run.send_chosen(letters, value, await self._queues(owner, None))
        found = await self._queues(owner, queues, again=again)
        return await run.send_range(found, await self._queues(owner, queues), count, cause)

    async def _queues(
        self, owner: str, queues: Sequence[int] | None, *, again: bool = False
    ) -> list[DeadLetterQueue]:
        return await self._run(
            dead_letter_flows.dead_queues(owner, queues, self._timeout_s, again=again)
        )


class _Redrive:
    """One run that sends dead letters again."""

    def __init__(
        self,
        io: IoThread,
        timeout_s: float,
        owner: str,
        per_s: float,
        on_sent: Callable[[int], object] | None,
    ) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self._owner = owner
        self._per_s = per_s
        self._on_sent = on_sent
        self._sent = 0
        self._at_once = max(1, min(AT_ONCE, int(per_s))) if per_s else AT_ONCE

    async def send_range(
        self,
        queues: list[DeadLetterQueue],
        known: list[DeadLetterQueue],
        most: int | None,
        cause: str | None,
    ) -> int:
        """Send what these queues hold; `known` tells what was sent before."""
        begun = {each.queue: each.begun for each in known}
        async with self._producer() as producer:
            for each in queues:
                at = each.begun
                whole = True
                while at < each.end and (most is None or self._sent < most):
                    left = self._at_once if most is None else min(self._at_once, most - self._sent)
                    place = DeadLetterQueue(each.queue, each.first, at, each.end)
                    flow = dead_letter_flows.read(self._owner, [place], left, self._timeout_s)
                    found = await drive(self._io, flow)
                    bunch = [one for one in found if cause is None or cause in one.cause]
                    await self._send(producer, bunch, None)
                    at = found[-1].message.offset + 1 if found else each.end
                    # What was left out stays open, and so does all that lies behind it.
                    reached = at if whole else begun[each.queue]
                    if whole and len(bunch) < len(found):
                        whole = False
                        sent = {one.message.offset for one in bunch}
                        reached = next(o for one in found if (o := one.message.offset) not in sent)
                    if reached > begun[each.queue]:
                        await self._remember(each.queue, reached)
                    if at < each.end and bunch:
                        await self._rest(len(bunch))
        return self._sent

    async def send_chosen(
        self, letters: list[DeadLetter], value: bytes | None, known: list[DeadLetterQueue]
    ) -> int:
        """Send exactly these."""
        async with self._producer() as producer:
            for at in range(0, len(letters), self._at_once):
                if at:
                    await self._rest(self._at_once)
                bunch = letters[at : at + self._at_once]
                await self._send(producer, bunch, value)
                done = letters[: at + len(bunch)]
                for each in known:
                    sent = {one.message.offset for one in done if one.message.queue == each.queue}
                    begun = dead_letter_flows.now_begun(each, sent)
                    if begun > each.begun and any(b.message.queue == each.queue for b in bunch):
                        await self._remember(each.queue, begun)
        return self._sent

    def _producer(self) -> Producer:
        return Producer(self._io, ProducerOptions(), self._timeout_s)

    async def _send(self, producer: Producer, bunch: list[DeadLetter], value: bytes | None) -> None:
        receipts: dict[QueueOffset, bytes] = {}
        if value is None and self._io.signs_copies:
            # Of another value there is none: that needs the right to write the original's topic.
            flow = dead_letter_flows.receipts(self._owner, bunch, self._timeout_s)
            receipts = await drive(self._io, flow)
        futures = [
            producer.send(
                RETRY_PREFIX + self._owner,
                each.message.value if value is None else value,
                key=each.message.key,
                tag=each.message.tag,
                headers=dead_letter_flows.redriven_headers(
                    each.message, receipts.get((each.message.queue, each.message.offset), b"")
                ),
                timestamp_ms=each.message.timestamp_ms,
            )
            for each in bunch
        ]
        for future in futures:
            await get_result(future)
        self._sent += len(bunch)
        if self._on_sent is not None:
            self._on_sent(self._sent)

    async def _remember(self, queue: int, at: int) -> None:
        flow = dead_letter_flows.remember(self._owner, queue, at, wall_ms(), self._timeout_s)
        await drive(self._io, flow)

    async def _rest(self, sent: int) -> None:
        """Wait until so many messages fit the rate."""
        if self._per_s:
            await Event().wait(sent / self._per_s)
