"""Waiting in an event loop: the differences between the two clients that go beyond `await`.

`logboom.client.bridge` has the same names for threads, and the generated modules import them from
there.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from asyncio import Lock
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from logboom.client.aio.resource import Resource, Scope
from logboom.client.flows import Flow
from logboom.client.io_thread import IoThread
from logboom.client.promise import Promise
from logboom.wire.errors import LogboomError

if TYPE_CHECKING:
    from logboom.client.tracing.consumer_tracer import ConsumerTracer

__all__ = [
    "Event",
    "Lock",
    "OpenContext",
    "ReaderLock",
    "Worker",
    "begin",
    "call_in",
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
R = TypeVar("R", bound=Resource)
S = TypeVar("S", bound=Scope)


def call_in(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    """Run a callback in a loop from any thread; do nothing if the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *args)


class ReaderLock(contextlib.nullcontext[None]):
    """A lock between two readers that does nothing, because only one task of a loop reads at a
    time."""


class Event:
    """An event that tasks of the running loop wait for, and any thread may set."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake every waiting task."""
        if threading.get_ident() == self._thread:
            self._event.set()
        else:
            call_in(self._loop, self._event.set)

    def clear(self) -> None:
        """Make the next `wait` block again."""
        self._event.clear()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the event is set. Return False if `timeout_s` seconds pass first."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        return self._event.is_set()


class Worker:
    """A task that runs in the background."""

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(work(), name=name)

    async def join(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for the task to end, then cancel it. In the task itself, do
        nothing."""
        if self._task is asyncio.current_task():
            return
        try:
            await asyncio.wait((self._task,), timeout=timeout_s)
        finally:
            self._task.cancel()


async def wait_done(outcome: Promise[Any]) -> None:
    """Wait until a promise has a value or an error."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    outcome.add_callback(lambda: call_in(loop, settle))
    await done


async def get_result(future: asyncio.Future[T]) -> T:
    """Wait for a future that a producer returned, and return its result."""
    return await future


async def run(io: IoThread, call: Any) -> Any:
    """Submit a call to the core, wait until it is done, and return its value."""
    outcome: Promise[Any] = call.outcome
    io.expect(outcome)
    io.submit(call)
    await wait_done(outcome)
    return outcome.get()


async def drive(io: IoThread, flow: Flow[T]) -> T:
    """Run a flow, awaiting each of its calls, and return its result."""
    try:
        call = next(flow)
        while True:
            try:
                value = await run(io, call)
            except LogboomError as error:
                call = flow.throw(error)
            else:
                call = flow.send(value)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        flow.close()  # after a cancellation, the flow must clean up now


async def stop(io: IoThread) -> None:
    """End the core's thread."""
    if io.forked:
        return
    io.begin_stop()
    await wait_done(io.ended)
    io.stop()  # returns at once, because the thread has ended


async def run_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call a blocking function without blocking the loop."""
    return await asyncio.to_thread(function, *args)


async def call_user(function: Callable[..., Any], *args: Any) -> Any:
    """Call a user's function, which may be a coroutine function."""
    result = function(*args)
    return await result if inspect.isawaitable(result) else result


def traced(listener: Callable[..., Any], tracing: ConsumerTracer) -> Callable[..., Any]:
    """Return a listener that traces each call."""
    if not callable(listener):
        return listener  # the consumer refuses it
    from logboom.client.tracing.consumer_tracer import note_outcome

    @functools.wraps(listener)
    async def trace(given: Any, *context: Any) -> Any:
        messages = given if isinstance(given, list) else [given]
        with tracing.process(messages, count=True) as span:
            result = await call_user(listener, given, *context)
            note_outcome(span, result)
            return result

    return trace


def ends_worker(error: BaseException) -> bool:
    """Return True if an exception is meant for the task or the loop, not for what it worked on.

    A user's function that waits for something that was cancelled gets a CancelledError too.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))


def begin(resource: R) -> R:
    """Return the resource as it is: it opens with `async with`, `open` or its first use."""
    return resource


class OpenContext(Generic[S]):
    """A resource that is about to be opened: `await` it, or enter it with `async with`."""

    def __init__(self, opening: Coroutine[Any, Any, S]) -> None:
        self._opening = opening
        self._opened: S | None = None

    def __await__(self) -> Generator[Any, None, S]:
        return self._opening.__await__()

    async def __aenter__(self) -> S:
        self._opened = await self._opening
        return await self._opened.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)
