"""Waiting for outcomes in threads: light futures of sends, and `wait` for everything else.

By hand in both clients: a future here costs one small object a message, and blocks its caller; those
of `logboom.client.aio.futures` belong to an event loop.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from logboom.client.delays import Parking
from logboom.client.promise import Promise
from logboom.client.results import Run, SendResult
from logboom.client.send.producer_batch import ProducerBatch
from logboom.wire.errors import ClientClosed, TimedOut

LOG = logging.getLogger("logboom.client")

T = TypeVar("T")


def wait(outcome: Promise[Any], timeout: float | None = None) -> bool:
    """Block until `outcome` is done; False if `timeout` seconds pass first."""
    if outcome.done:
        return True
    # A lock that the core releases costs a third of an Event.
    gate = threading.Lock()
    gate.acquire()
    outcome.add_callback(gate.release)
    seconds = -1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)
    return gate.acquire(timeout=seconds)


class _Fork:
    """When this process began as a forked child, in monotonic seconds; -1: it did not."""

    at = -1.0


def _forked() -> None:
    _Fork.at = time.monotonic()


os.register_at_fork(after_in_child=_forked)


def _wait_for(pile: ProducerBatch, what: str, timeout: float | None) -> None:
    if pile.done:
        return
    if pile.born <= _Fork.at:
        text = (
            f"{what} was sent before the process forked: only the parent learns what became of it"
        )
        raise ClientClosed(text, "FORKED")
    if not wait(pile, timeout):
        raise _not_yet(what, timeout)


def _not_yet(what: str, timeout: float | None) -> TimedOut:
    return TimedOut(f"{what} is not acknowledged after {timeout} s: it is still on its way")


def _run_callback(callback: Callable[[Any], object], future: object) -> None:
    try:
        callback(future)
    # The user's code may raise anything, and must not end the thread that runs the core.
    except Exception:
        LOG.exception("a callback of %r raised", future)


class SendFuture:
    """The future of one sent message.

    One object a message is all that it costs; the outcome is shared by the messages of a batch.
    """

    __slots__ = ("_index", "_pile")

    def __init__(self, pile: ProducerBatch, index: int) -> None:
        self._pile = pile
        self._index = index

    def done(self) -> bool:
        """Whether the message is acknowledged or given up."""
        return self._pile.done

    def result(self, timeout: float | None = None) -> SendResult:
        """Where the message went; waits for it.

        Raises:
            TimedOut: not yet, after `timeout` seconds; or given up after the delivery time-out.
            LogboomError: why the message was refused.
        """
        pile = self._pile
        if not pile.done:
            _wait_for(pile, "the message", timeout)
        first, index = pile.get(), self._index
        offset = first + index if first >= 0 else -1
        return SendResult(pile.topic, pile.queue, offset, pile.time_of(index), pile.parked)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """The error, or None if the message is acknowledged; waits for it.

        Raises:
            TimedOut: not yet, after `timeout` seconds.
        """
        _wait_for(self._pile, "the message", timeout)
        return self._pile.error

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Call `callback(self)` when done: at once if it is, else in the client's own thread,
        which must not be held up."""
        self._pile.add_callback(lambda: _run_callback(callback, self))

    def __repr__(self) -> str:
        state = "done" if self.done() else "on its way"
        return f"<SendFuture to {self._pile.topic}/{self._pile.queue}: {state}>"


class ManyFuture:
    """The future of one `send_many`: several batches, done when all are."""

    __slots__ = ("_piles",)

    def __init__(self, piles: list[ProducerBatch]) -> None:
        self._piles = piles

    def done(self) -> bool:
        """Whether every batch is acknowledged or given up."""
        return all(pile.done for pile in self._piles)

    def result(self, timeout: float | None = None) -> list[Run]:
        """(queue, first offset, count) of each batch, in the order of the given columns per
        queue; waits for all. Of batches that wait for a time the offset is -1.

        Raises:
            TimedOut: not yet, after `timeout` seconds.
            LogboomError: why the first refused batch was refused; others may be stored.
        """
        self._wait(timeout)
        return [(pile.queue, pile.get(), pile.count) for pile in self._piles]

    def parked(self, timeout: float | None = None) -> list[Parking]:
        """Where the batches of a delayed send wait; each can be recalled. Waits for all.

        Raises:
            As `result`.
        """
        self.result(timeout)
        return [pile.parked for pile in self._piles if pile.parked is not None]

    def exception(self, timeout: float | None = None) -> Exception | None:
        """The first error, or None; waits for all."""
        self._wait(timeout)
        return next((pile.error for pile in self._piles if pile.error is not None), None)

    def add_done_callback(self, callback: Callable[[ManyFuture], object]) -> None:
        """As `SendFuture.add_done_callback`."""
        left = threading.Semaphore(len(self._piles) - 1)

        def one_done() -> None:
            # Whoever finds no permit left is the last of the piles.
            if not left.acquire(blocking=False):
                _run_callback(callback, self)

        for pile in self._piles:
            pile.add_callback(one_done)

    def _wait(self, timeout: float | None) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        for pile in self._piles:
            left = None if end is None else max(0.0, end - time.monotonic())
            _wait_for(pile, "the batch", left)


def make_future(pile: ProducerBatch, index: int) -> SendFuture:
    """Make the future of one message of a batch."""
    return SendFuture(pile, index)


def make_many(piles: list[ProducerBatch]) -> ManyFuture:
    """Make the future of whole batches."""
    return ManyFuture(piles)
