"""The app for asyncio: functions that are called with the messages of consumer groups.

    app = App("127.0.0.1:7711")

    @app.subscriber("orders", group="billing")
    async def charge(order: Order) -> None: …

    asyncio.run(app.run())     # until Ctrl-C or SIGTERM

It corresponds to `logboom.client.app.App`. Subscribers may be coroutine functions, and `threads`
are tasks. The start and the handling of signals are written by hand in both clients, because an
event loop and a main thread receive signals in different ways.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from logboom.client.aio.app_base import AppBase
from logboom.client.subscribers import SubscriberFunction, may_begin_later

LOG = logging.getLogger("logboom.client")
LOOK_S: Final = 0.5
"""Seconds between two checks that all members are still in their groups."""
AGAIN_S: Final = 1.0
"""Seconds between two attempts to start."""


class App(AppBase):
    """Subscriber functions, async or not, and the client that they run on. Declare the functions,
    then call `run` or `start`."""

    def __init__(
        self, endpoints: str | Sequence[str] = "", *, tracing: bool = False, **options: Any
    ) -> None:
        """Create an app.

        Args:
            endpoints: those of `connect`; "" if `start` is given a client.
            tracing: that of all subscribers, and of `publish`.
            options: those of `connect`.
        """
        super().__init__(endpoints, tracing=tracing, **options)
        self._stopping: asyncio.Event | None = None

    def _prepare(self) -> None:
        self._stopping = asyncio.Event()

    def _check_subscriber(self, declared: SubscriberFunction) -> None:
        return

    def _listener(self, subscriber: SubscriberFunction) -> Callable[..., Any]:
        return subscriber.async_listener

    async def run(self) -> None:
        """Start, run until Ctrl-C, SIGTERM or `stop`, and leave all groups.

        While the cluster does not answer, or has no live broker, the app keeps trying to start.
        Signals come to the main thread only: in the loop of another one it runs until `stop`.

        Raises:
            LogboomError: `start` failed for another reason, or a group has expelled its member.
        """
        loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        is_main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
        for number in numbers:
            loop.add_signal_handler(number, self.stop)
        try:
            await self._begin_in_time(self._stopping)
            while not self._stopping.is_set():
                self.check()
                try:
                    await asyncio.wait_for(self._stopping.wait(), LOOK_S)
                except TimeoutError:
                    continue
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
            await self.close()

    async def _begin_in_time(self, stopping: asyncio.Event) -> None:
        """Start once the cluster answers."""
        stopped = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                begun = asyncio.create_task(self._begin(None, {}))
                try:
                    await asyncio.wait((begun, stopped), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    begun.cancel()  # does nothing if it has ended
                    await asyncio.wait((begun,))
                error = None if begun.cancelled() else begun.exception()
                if error is None:
                    return
                if not may_begin_later(error):
                    raise error
                LOG.warning("the app waits for its cluster: %s", error)
                await asyncio.wait((stopped,), timeout=AGAIN_S)
        finally:
            stopped.cancel()

    def stop(self) -> None:
        """End `run`. Handlers may call it, too."""
        if self._stopping is not None:
            self._stopping.set()
