"""The futures that `send` and `send_many` return in asyncio.

Written by hand in both clients: these are instances of `asyncio.Future`, which the loop settles,
and those of `logboom.client.futures` are light objects that threads wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from logboom.client.aio.bridge import call_in
from logboom.client.delays import Parking
from logboom.client.results import Run, SendResult
from logboom.client.send.producer_batch import ProducerBatch

SendFuture: TypeAlias = "asyncio.Future[SendResult]"
"""The future of one sent message."""


class ManyFuture(asyncio.Future[list[Run]]):
    """The future of one `send_many`. Its result is [(queue, first offset, count)]."""

    batches: Sequence[ProducerBatch] = ()
    """The batches, once they are in the buffer."""

    async def parked(self) -> list[Parking]:
        """Wait for all batches of a delayed send, and return where each is parked, for `recall`.

        Raises:
            LogboomError: a batch was refused; this is the error of the first.
        """
        await asyncio.shield(self)
        return [batch.parked for batch in self.batches if batch.parked is not None]


def make_future(batch: ProducerBatch, index: int) -> SendFuture:
    """Create the future of one message of a batch. One call into the loop settles all of a
    batch."""
    loop = asyncio.get_running_loop()
    future: SendFuture = loop.create_future()
    if batch.attached is None:
        batch.attached = []
        batch.add_callback(lambda: call_in(loop, _settle, batch))
    batch.attached.append((index, future))
    return future


def _settle(batch: ProducerBatch) -> None:
    for index, future in batch.attached:
        if future.done():
            continue
        if batch.error is not None:
            future.set_exception(batch.error)
        else:
            first = batch.get()
            offset = first + index if first >= 0 else -1
            place = (batch.topic, batch.queue, offset, batch.time_of(index), batch.parked)
            future.set_result(SendResult(*place))
    batch.attached = None


def make_many(batches: list[ProducerBatch]) -> ManyFuture:
    """Create the future of several batches, in the running loop."""
    loop = asyncio.get_running_loop()
    future = ManyFuture(loop=loop)
    future.batches = batches
    left = len(batches)

    def one_done() -> None:
        nonlocal left
        left -= 1
        if left or future.done():
            return
        errors = [batch.error for batch in batches if batch.error is not None]
        if errors:
            future.set_exception(errors[0])
        else:
            future.set_result([(batch.queue, batch.get(), batch.count) for batch in batches])

    for batch in batches:
        batch.add_callback(lambda: call_in(loop, one_done))
    return future
