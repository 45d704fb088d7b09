"""Waiting in threads: light futures of sent messages, and `wait` for everything else.

Written by hand in both clients: a future here is one small object for each message and blocks its
caller, and those of `logboom.client.aio.futures` belong to an event loop.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from logboom.client.delays import Parking
from logboom.client.promise import Promise
from logboom.client.results import Run, SendResult
from logboom.client.send.producer_batch import ProducerBatch
from logboom.wire.errors import ClientClosed, TimedOut

LOG = logging.getLogger("logboom.client")

T = TypeVar("T")


def wait(outcome: Promise[Any], timeout: float | None = None) -> bool:
    """Block until a promise is done. Return False if `timeout` seconds pass first."""
    if outcome.done:
        return True
    # A lock that the core releases costs a third of an Event.
    gate = threading.Lock()
    gate.acquire()
    outcome.add_callback(gate.release)
    seconds = -1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)
    return gate.acquire(timeout=seconds)


class _Fork:
    """The monotonic time at which this process was forked; -1: it was not."""

    at = -1.0


def _forked() -> None:
    _Fork.at = time.monotonic()


os.register_at_fork(after_in_child=_forked)


def _wait_for(batch: ProducerBatch, what: str, timeout: float | None) -> None:
    if batch.done:
        return
    if batch.born <= _Fork.at:
        text = (
            f"{what} was sent before the process forked: only the parent learns what became of it"
        )
        raise ClientClosed(text, "FORKED")
    if not wait(batch, timeout):
        raise _not_yet(what, timeout)


def _not_yet(what: str, timeout: float | None) -> TimedOut:
    return TimedOut(f"{what} is not acknowledged after {timeout} s: it is still on its way")


def _run_callback(callback: Callable[[Any], object], future: object) -> None:
    try:
        callback(future)
    # A callback of the user may raise anything, and must not end the thread that runs the core.
    except BaseException:
        LOG.exception("a callback of %r raised", future)


class SendFuture(Struct, eq=False, gc=False):
    """The future of one sent message. The messages of a batch share one promise, so that a message
    costs only this object, which Python's garbage collector need not track."""

    _batch: ProducerBatch
    _index: int

    @property
    def batch(self) -> ProducerBatch:
        """The batch of the message, for tracing."""
        return self._batch

    def done(self) -> bool:
        """Return True if the message is acknowledged or given up."""
        return self._batch.done

    def result(self, timeout: float | None = None) -> SendResult:
        """Wait for the message, and return where it is stored.

        Raises:
            TimedOut: it is not acknowledged after `timeout` seconds, or it was given up after the
                delivery time-out.
            LogboomError: the message was refused.
        """
        batch = self._batch
        if not batch.done:
            _wait_for(batch, "the message", timeout)
        first, index = batch.get(), self._index
        offset = first + index if first >= 0 else -1
        return SendResult(batch.topic, batch.queue, offset, batch.time_of(index), batch.parked)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for the message, and return its error, or None if it is acknowledged.

        Raises:
            TimedOut: it is not acknowledged after `timeout` seconds.
        """
        _wait_for(self._batch, "the message", timeout)
        return self._batch.error

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Call `callback(self)` when the message is done: now if it is already, else in the
        client's own thread, which the callback must not block."""
        self._batch.add_callback(lambda: _run_callback(callback, self))

    def __repr__(self) -> str:
        state = "done" if self.done() else "on its way"
        return f"<SendFuture to {self._batch.topic}/{self._batch.queue}: {state}>"


class ManyFuture:
    """The future of one `send_many`, which is done when all its batches are."""

    __slots__ = ("_batches",)

    def __init__(self, batches: list[ProducerBatch]) -> None:
        self._batches = batches

    def done(self) -> bool:
        """Return True if every batch is acknowledged or given up."""
        return all(batch.done for batch in self._batches)

    def result(self, timeout: float | None = None) -> list[Run]:
        """Wait for all batches, and return (queue, first offset, count) of each, in the order of
        the columns within a queue. The offset of a delayed batch is -1.

        Raises:
            TimedOut: not all are acknowledged after `timeout` seconds.
            LogboomError: a batch was refused; this is the error of the first. Others may be stored.
        """
        self._wait(timeout)
        return [(batch.queue, batch.get(), batch.count) for batch in self._batches]

    def parked(self, timeout: float | None = None) -> list[Parking]:
        """Wait for all batches of a delayed send, and return where each is parked, for `recall`.

        Raises:
            LogboomError: as `result`.
        """
        self.result(timeout)
        return [batch.parked for batch in self._batches if batch.parked is not None]

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for all batches, and return the first error, or None."""
        self._wait(timeout)
        return next((batch.error for batch in self._batches if batch.error is not None), None)

    def add_done_callback(self, callback: Callable[[ManyFuture], object]) -> None:
        """Call `callback(self)` when all batches are done, as `SendFuture.add_done_callback`
        does."""
        left = threading.Semaphore(len(self._batches) - 1)

        def one_done() -> None:
            # The call that finds no permit left is for the last batch.
            if not left.acquire(blocking=False):
                _run_callback(callback, self)

        for batch in self._batches:
            batch.add_callback(one_done)

    def _wait(self, timeout: float | None) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        for batch in self._batches:
            left = None if end is None else max(0.0, end - time.monotonic())
            _wait_for(batch, "the batch", left)


def make_future(batch: ProducerBatch, index: int) -> SendFuture:
    """Create the future of one message of a batch."""
    return SendFuture(batch, index)


def make_many(batches: list[ProducerBatch]) -> ManyFuture:
    """Create the future of several batches."""
    return ManyFuture(batches)
