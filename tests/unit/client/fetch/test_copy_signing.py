"""Receipts are asked for in parts, and of brokers that know of them alone."""

from __future__ import annotations

import pytest

from logboom.client.calls import AskLeader
from logboom.client.fetch.copy_signing import sign_copies
from logboom.client.flows import run_flow
from logboom.wire.copy_receipts import MAX_SIGNED, CopiesSigned, SignCopies
from logboom.wire.errors import InternalError, InvalidRequest, LogboomError

OFFSETS = list(range(MAX_SIGNED + 200))


class Leader:
    """A broker that signs so many messages at a time."""

    def __init__(self, at_once: int, error: LogboomError | None = None) -> None:
        self.asked: list[SignCopies] = []
        self._at_once = at_once
        self._error = error

    def answer(self, call: AskLeader) -> object:
        """Answer one call."""
        if self._error is not None:
            raise self._error
        message = call.message(1_000)
        assert isinstance(message, SignCopies)
        self.asked.append(message)
        some = message.offsets[: self._at_once]
        return CopiesSigned(0, [b"%d" % offset for offset in some]), []

    def sign(self) -> list[bytes] | None:
        """Ask it for all receipts."""
        return run_flow(sign_copies("g", "t", 3, OFFSETS, 9.0, kept=True), self.answer)


@pytest.mark.parametrize("at_once", [64, MAX_SIGNED, 10_000])
def test_all_receipts_come_in_order(at_once: int) -> None:
    leader = Leader(at_once)
    assert leader.sign() == [b"%d" % offset for offset in OFFSETS]
    first, *_ = leader.asked
    assert (first.topic, first.queue, first.owner, first.kept) == ("t", 3, "g", True)
    assert max(len(asked.offsets) for asked in leader.asked) == MAX_SIGNED


def test_a_broker_of_the_release_before_asks_for_no_receipts() -> None:
    assert Leader(1, InvalidRequest("unknown message type", "UNKNOWN_TYPE")).sign() is None


def test_other_refusals_are_told_and_an_answer_without_receipts_ends_it() -> None:
    with pytest.raises(InvalidRequest, match="too many"):
        Leader(1, InvalidRequest("too many", "INVALID_ARGUMENT")).sign()
    with pytest.raises(InternalError):
        Leader(0).sign()
