"""What a `send_many` for asyncio returns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from logboom.client.aio.bridge import call_in
from logboom.client.delays import Parking
from logboom.client.results import Run
from logboom.client.send.producer_batch import ProducerBatch


class ManyFuture(asyncio.Future[list[Run]]):
    """The awaitable of one `send_many`: gives [(queue, first offset, count)], done when all are."""

    piles: Sequence[ProducerBatch] = ()
    """Its batches, once they are on their way."""

    async def parked(self) -> list[Parking]:
        """Where the batches of a delayed send wait; each can be recalled. Waits for all.

        Raises:
            LogboomError: why the first refused batch was refused.
        """
        await asyncio.shield(self)
        return [pile.parked for pile in self.piles if pile.parked is not None]


def many(piles: list[ProducerBatch]) -> ManyFuture:
    """The future of these batches, in the running loop."""
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
