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

    piles: Sequence[ProducerBatch] = ()
    """The batches, once they are in the buffer."""

    async def parked(self) -> list[Parking]:
        """Wait for all batches of a delayed send, and return where each is parked, for `recall`.

        Raises:
            LogboomError: a batch was refused; this is the error of the first.
        """
        await asyncio.shield(self)
        return [pile.parked for pile in self.piles if pile.parked is not None]


def make_future(pile: ProducerBatch, index: int) -> SendFuture:
    """Create the future of one message of a batch. One call into the loop settles all of a
    batch."""
    loop = asyncio.get_running_loop()
    future: SendFuture = loop.create_future()
    if pile.attached is None:
        pile.attached = []
        pile.add_callback(lambda: call_in(loop, _settle, pile))
    pile.attached.append((index, future))
    return future


def _settle(pile: ProducerBatch) -> None:
    for index, future in pile.attached:
        if future.done():
            continue
        if pile.error is not None:
            future.set_exception(pile.error)
        else:
            first = pile.get()
            offset = first + index if first >= 0 else -1
            place = (pile.topic, pile.queue, offset, pile.time_of(index), pile.parked)
            future.set_result(SendResult(*place))
    pile.attached = None


def make_many(piles: list[ProducerBatch]) -> ManyFuture:
    """Create the future of several batches, in the running loop."""
    loop = asyncio.get_running_loop()
    future = ManyFuture(loop=loop)
    future.piles = piles
    left = len(piles)

    def one_done() -> None:
        nonlocal left
        left -= 1
        if left or future.done():
            return
        errors = [pile.error for pile in piles if pile.error is not None]
        if errors:
            future.set_exception(errors[0])
        else:
            future.set_result([(pile.queue, pile.get(), pile.count) for pile in piles])

    for pile in piles:
        pile.add_callback(lambda: call_in(loop, one_done))
    return future
