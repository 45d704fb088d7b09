"""A pile on its way: the batch that was made of it, and its place in the order."""

from __future__ import annotations

from typing import Final

from logboom.client.cluster.connections import Ticket
from logboom.client.sending.piles import Pile
from logboom.wire.batch import NO_PRODUCER, encode_batch

NOBODY: Final = (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)
"""Producer id, epoch and sequence of a batch that is not numbered."""


class Parcel:
    """A batch on its way."""

    __slots__ = ("attempts", "batch", "deadline", "order", "pile", "place", "ticket")

    def __init__(self, pile: Pile, order: int, deadline: float) -> None:
        self.pile = pile
        self.order = order
        """Place in the order of sends."""
        self.place = 0
        """Which batch of its epoch it is."""
        self.deadline = deadline
        self.batch = pile.batch
        # Whoever waits for many piles must not keep what they held.
        pile.batch = b""
        self.attempts = 0
        self.ticket: Ticket | None = None

    def encode(self, now_ms: int, codec: str, producer: tuple[int, int, int]) -> None:
        """Make the batch; its messages without a time get `now_ms`.

        Raises:
            InvalidRequest: the pile holds what no batch can.
        """
        pile = self.pile
        pile.time_ms = now_ms
        times = pile.times
        if isinstance(times, list):
            times = pile.times = [now_ms if time is None else time for time in times]
        pile.count = len(pile.values)
        self.batch = encode_batch(
            pile.values,
            pile.keys,
            pile.tags,
            pile.headers,
            times,  # type: ignore[arg-type]  # every None was just replaced
            now_ms=now_ms,
            codec=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
        )
        pile.let_go()
