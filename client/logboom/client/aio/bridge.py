"""From the core's thread to an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from logboom.client.flows import Flow
from logboom.client.io_thread import IoThread
from logboom.client.promise import Promise
from logboom.wire.errors import LogboomError

T = TypeVar("T")


def call_in(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    """Run a callback in a loop from any thread; nothing if the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *args)


async def awaited(outcome: Promise[T]) -> T:
    """The value of an outcome; raises its error."""
    await settled(outcome)
    return outcome.get()


async def settled(outcome: Promise[Any]) -> None:
    """Wait until an outcome is done, whatever it came to."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    outcome.add_callback(lambda: call_in(loop, settle))
    await done


async def run(io: IoThread, call: Any) -> Any:
    """Submit a call and await its outcome."""
    outcome: Promise[Any] = call.outcome
    io.expect(outcome)
    io.submit(call)
    return await awaited(outcome)


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
