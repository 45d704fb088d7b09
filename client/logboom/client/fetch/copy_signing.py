"""Receipts for copies of failed messages, as flows: the brokers that hold the messages sign them."""

from __future__ import annotations

from collections.abc import Sequence

from logboom.client.calls import AskLeader
from logboom.client.flows import Flow
from logboom.wire.base import WireMessage
from logboom.wire.copy_receipts import MAX_SIGNED, CopiesSigned, SignCopies
from logboom.wire.errors import InternalError, InvalidRequest


def sign_copies(
    owner: str, topic: str, queue: int, offsets: Sequence[int], timeout: float, *, kept: bool
) -> Flow[list[bytes] | None]:
    """Return the receipts for copies of messages of one queue, empty for those that have none.

    None: the queue's leader is of an older release, and nobody asks for receipts then.
    """
    found: list[bytes] = []
    while len(found) < len(offsets):
        wanted = list(offsets[len(found) : len(found) + MAX_SIGNED])

        def message(left: int, wanted: list[int] = wanted) -> WireMessage:
            return SignCopies(0, left, topic, queue, owner, wanted, kept)

        try:
            answer, _ = yield AskLeader(topic, queue, message, timeout)
        except InvalidRequest as error:
            if error.code == "UNKNOWN_TYPE":
                return None
            raise
        if not isinstance(answer, CopiesSigned) or not answer.receipts:
            raise InternalError(f"{answer!r} is no answer to SIGNCOPIES; please report it")
        found += answer.receipts
    return found
