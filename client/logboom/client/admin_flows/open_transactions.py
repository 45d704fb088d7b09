"""Undecided transactions and half messages of the whole cluster, for people: a flow and its result."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from logboom.client.calls import AskNode
from logboom.client.delays import Parking
from logboom.client.fetch.message_flows import unexpected
from logboom.client.flows import Flow, known_nodes
from logboom.client.transactions.decisions import ParkedHandle
from logboom.client.transactions.half_messages import place_of_half
from logboom.wire.errors import InvalidRequest, UnknownResource
from logboom.wire.transactions import (
    HALF,
    ListUndecided,
    TransactionId,
    UndecidedBatch,
    UndecidedListed,
)

AT_ONCE: Final = 1_000
"""Batches in one answer of a broker."""
DEFAULT_LIMIT: Final = 100_000
"""Batches that are listed by default."""


class OpenTransaction(Struct, frozen=True):
    """A transaction or a half message that nobody has decided."""

    app_id: str
    """Application id; for a half message its producer group."""
    sequence: int
    """-1 for a half message."""
    attempt: int
    parked: list[UndecidedBatch]
    """Its batches, the oldest first."""

    @property
    def is_half(self) -> bool:
        """True for a half message."""
        return self.sequence == HALF

    @property
    def since_ms(self) -> int:
        """Time at which its first batch was parked, ms since 1970 UTC by the leader's clock."""
        return min(each.parked_ms for each in self.parked)

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(each.count for each in self.parked)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return sum(each.size for each in self.parked)

    @property
    def checks(self) -> int:
        """For a half message: number of times that its producer group should have been asked."""
        return max(each.checks for each in self.parked)

    @property
    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue) of all queues with parked batches."""
        return sorted({(each.topic, each.queue) for each in self.parked})

    @property
    def half(self) -> Parking:
        """Where a half message is parked, to end it."""
        return place_of_half(self.parked[0])

    def handles(self) -> list[ParkedHandle]:
        """Handles for `Client.decide`."""
        return [
            ParkedHandle(
                self.app_id,
                self.sequence,
                self.attempt,
                each.topic,
                each.topic_id,
                each.queue,
                each.offset,
                each.side,
                each.count,
            )
            for each in sorted(self.parked, key=lambda each: (each.offset, each.side))
        ]


class OpenTransactions(Struct, frozen=True):
    """All undecided transactions."""

    transactions: list[OpenTransaction]
    """The oldest first."""
    more: bool
    """True if there are more than listed."""


def open_transactions(
    app_id: str, timeout: float, most: int = DEFAULT_LIMIT
) -> Flow[OpenTransactions]:
    """List what all live brokers know, about `most` batches; `app_id` "": of all applications.

    Raises:
        TimedOut: a broker did not answer.
    """
    view = yield from known_nodes(timeout)
    told: dict[tuple[int, int, int, int], UndecidedBatch] = {}
    more = False
    for broker in view.brokers:
        after: UndecidedBatch | None = None
        asking = broker.alive
        while asking:
            message = ListUndecided(0, int(timeout * 1000), app_id, AT_ONCE, after)
            answer, _ = yield AskNode(broker.endpoint, message, timeout)
            if not isinstance(answer, UndecidedListed):
                raise unexpected(answer)
            # Two brokers report a queue that moves meanwhile.
            told.update(((e.topic_id, e.queue, e.offset, e.side), e) for e in answer.parked)
            after = answer.parked[-1] if answer.parked else None
            more = more or (answer.more and len(told) >= most)
            asking = answer.more and len(told) < most and after is not None
    found: dict[tuple[object, ...], list[UndecidedBatch]] = {}
    for each in told.values():
        found.setdefault(_key(each), []).append(each)
    return OpenTransactions(sorted(map(_grouped, found.values()), key=_age), more)


def _key(each: UndecidedBatch) -> tuple[object, ...]:
    """Half messages are decided one by one."""
    whose = each.transaction
    if whose.sequence == HALF:
        return whose.app_id, HALF, each.topic_id, each.queue, each.offset, each.side
    return whose.app_id, whose.sequence, whose.attempt


def _grouped(parked: list[UndecidedBatch]) -> OpenTransaction:
    whose: TransactionId = parked[0].transaction
    oldest = sorted(parked, key=lambda each: each.parked_ms)
    return OpenTransaction(whose.app_id, whose.sequence, whose.attempt, oldest)


def _age(transaction: OpenTransaction) -> tuple[int, str, int, int]:
    whose = (transaction.app_id, transaction.sequence, transaction.attempt)
    return transaction.since_ms, *whose


def place_text(half: OpenTransaction) -> str:
    """Return the position of a half message in the form orders/0/17.2."""
    place = half.half
    return f"{place.topic}/{place.queue}/{place.offset}.{place.side}"


def find_attempt(
    found: list[OpenTransaction], app_id: str, sequence: int | None, attempt: int | None
) -> OpenTransaction:
    """Return the transaction of an application id with this sequence.

    Args:
        attempt: which one, if several attempts wait; None: there is only one.

    Raises:
        UnknownResource: UNKNOWN_HANDLES: nothing of it waits.
        InvalidRequest: there are several attempts, and none is named.
    """
    same = [
        each
        for each in found
        if not each.is_half and each.sequence == sequence and attempt in (None, each.attempt)
    ]
    if not same:
        text = f"nothing of sequence {sequence} of {app_id!r} waits: see `logboom transaction list`"
        raise UnknownResource(text, "UNKNOWN_HANDLES")
    if len(same) > 1:
        attempts = ", ".join(str(each.attempt) for each in same)
        raise InvalidRequest(f"there are several attempts: say --attempt, one of {attempts}")
    return same[0]


def find_halves(found: list[OpenTransaction], app_id: str, half: str) -> list[OpenTransaction]:
    """Return the half messages of a producer group at this position, or "all" of them.

    Raises:
        InvalidRequest: the position has another form than topic/queue/offset.side.
        UnknownResource: UNKNOWN_HANDLES: no such half message waits.
    """
    if half != "all" and re.fullmatch(r".+/\d+/\d+\.\d+", half) is None:
        raise InvalidRequest(
            f"{half!r} names no half message: write topic/queue/offset.side or all"
        )
    same = [each for each in found if each.is_half and half in ("all", place_text(each))]
    if not same:
        text = f"no such half message of {app_id!r} waits: see `logboom transaction list`"
        raise UnknownResource(text, "UNKNOWN_HANDLES")
    return same
