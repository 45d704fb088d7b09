"""Waiting in an event loop: everything in which the two clients differ by more than `await`.

`logboom.client.bridge` has the same names for threads. The modules that are generated from this
package import them from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from asyncio import Lock
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

from logboom.client.aio.resource import Resource, Scope
from logboom.client.flows import Flow
from logboom.client.io_thread import IoThread
from logboom.client.promise import Promise
from logboom.wire.errors import LogboomError

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
    "get_result",
    "run",
    "run_in_thread",
    "stop",
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
    """What keeps two readers apart: nothing, since a loop's tasks read one at a time by contract."""


class Event:
    """An event of the running loop that any thread may set."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake all that wait."""
        if threading.get_ident() == self._thread:
            self._event.set()
        else:
            call_in(self._loop, self._event.set)

    def clear(self) -> None:
        """Let the next `wait` wait again."""
        self._event.clear()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set; False if `timeout_s` seconds pass first."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        return self._event.is_set()


class Worker:
    """A task that runs beside its owner until it is stopped."""

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(work(), name=name)

    async def join(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for its end, and cancel it then; do nothing in the task itself."""
        if self._task is asyncio.current_task():
            return
        try:
            await asyncio.wait((self._task,), timeout=timeout_s)
        finally:
            self._task.cancel()


async def wait_done(outcome: Promise[Any]) -> None:
    """Wait until an outcome is done, with a value or an error."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    outcome.add_callback(lambda: call_in(loop, settle))
    await done


async def get_result(future: asyncio.Future[T]) -> T:
    """Wait for a future of a producer, and return its result."""
    return await future


async def run(io: IoThread, call: Any) -> Any:
    """Submit a call to the core, wait for its outcome, and return its value."""
    outcome: Promise[Any] = call.outcome
    io.expect(outcome)
    io.submit(call)
    await wait_done(outcome)
    return outcome.get()


async def drive(io: IoThread, flow: Flow[T]) -> T:
    """Run a flow: each of its calls is awaited here."""
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
        flow.close()  # a cancellation while it waited: it is to know, now


async def stop(io: IoThread) -> None:
    """End the core's thread."""
    if io.forked:
        return
    io.begin_stop()
    await wait_done(io.ended)
    io.stop()  # the thread has nothing left to do: joined at once


async def run_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call a function that blocks without blocking the loop."""
    return await asyncio.to_thread(function, *args)


async def call_user(function: Callable[..., Any], *args: Any) -> Any:
    """Call a user's function, which may be a coroutine function."""
    result = function(*args)
    return await result if inspect.isawaitable(result) else result


def begin(resource: R) -> R:
    """Return what opens itself later: with `async with`, `open` or its first use."""
    return resource


class OpenContext(Generic[S]):
    """Something that is about to be opened: `await` it, or enter it with `async with`."""

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
