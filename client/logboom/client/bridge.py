"""Waiting in threads: the differences between the two clients that go beyond `await`.

Written by hand: this module builds on threads and locks, and its twin `logboom.client.aio.bridge`,
which has the same names, on tasks and futures.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from threading import Event, Lock
from threading import RLock as ReaderLock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from logboom.client.flows import Flow
from logboom.client.futures import wait
from logboom.client.io_thread import IoThread
from logboom.client.promise import Promise
from logboom.client.resource import Resource
from logboom.wire.errors import LogboomError

if TYPE_CHECKING:
    from logboom.client.tracing.consumer_tracer import ConsumerTracer

__all__ = [
    "Event",
    "Lock",
    "ReaderLock",
    "Worker",
    "begin",
    "call_user",
    "drive",
    "ends_worker",
    "get_result",
    "run",
    "run_in_thread",
    "stop",
    "traced",
    "wait_done",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R", bound=Resource)


class _Future(Protocol[T_co]):
    """A future that a producer returned."""

    def result(self) -> T_co:
        """Wait for the result."""


class Worker:
    """A thread that runs in the background."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for the thread to end. In the thread itself, do nothing."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)


def wait_done(outcome: Promise[Any]) -> None:
    """Wait until a promise has a value or an error."""
    wait(outcome)


def get_result(future: _Future[T]) -> T:
    """Wait for a future that a producer returned, and return its result."""
    return future.result()


def run(io: IoThread, call: Any) -> Any:
    """Submit a call to the core, wait until it is done, and return its value."""
    return io.run(call)


def drive(io: IoThread, flow: Flow[T]) -> T:
    """Run a flow, waiting for each of its calls, and return its result."""
    return io.drive(flow)


def stop(io: IoThread) -> None:
    """End the core's thread."""
    io.stop()


def run_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call a blocking function; there is no event loop that it could block."""
    return function(*args)


def call_user(function: Callable[..., Any], *args: Any) -> Any:
    """Call a user's function."""
    return function(*args)


def traced(listener: Callable[..., Any], tracing: ConsumerTracer) -> Callable[..., Any]:
    """Return a listener that traces each call."""
    if not callable(listener):
        return listener  # the consumer refuses it
    from logboom.client.tracing.consumer_tracer import note_outcome

    @functools.wraps(listener)
    def trace(given: Any, *context: Any) -> Any:
        messages = given if isinstance(given, list) else [given]
        with tracing.process(messages, count=True) as span:
            result = listener(given, *context)
            note_outcome(span, result)
            return result

    return trace


def ends_worker(_error: BaseException) -> bool:
    """Return False: no exception of a user's function is meant for a thread of ours."""
    return False


def begin(resource: R) -> R:
    """Open a resource and return it.

    Raises:
        LogboomError: it could not be opened, and has given everything back.
    """
    try:
        resource.open()
    except LogboomError:
        resource.abandon()
        raise
    return resource
