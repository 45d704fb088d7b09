"""An app for asyncio: functions that are called with the messages of groups.

    app = App("127.0.0.1:7711")

    @app.subscriber("orders", group="billing")
    async def charge(order: Order) -> None: …

    asyncio.run(app.run())     # until Ctrl-C or SIGTERM

It is `logboom.client.app.App`, awaited: subscribers may be coroutine functions, and `threads` are
tasks. By hand in both clients: how it begins, and is stopped by signals.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from typing import Any, Final

from logboom.client.aio.app_base import AppBase
from logboom.client.subscribers import SubscriberFunction
from logboom.wire.errors import RetryableError

LOG = logging.getLogger("logboom.client")
LOOK_S: Final = 0.5
"""Seconds between two looks whether the members are still in their groups."""
AGAIN_S: Final = 1.0
"""Seconds between two tries of an app to begin."""


class App(AppBase):
    """Subscribers, async or not, and the client that they run on. Declare first, then `run` or
    `start`."""

    def __init__(self, endpoints: str | Sequence[str] = "", **options: Any) -> None:
        """`endpoints` and `options` are those of `connect`; "" if `start` gets a client."""
        super().__init__(endpoints, **options)
        self._stopping: asyncio.Event | None = None

    def _prepare(self) -> None:
        self._stopping = asyncio.Event()

    def _check_subscriber(self, declared: SubscriberFunction) -> None:
        return

    def _listener(self, subscriber: SubscriberFunction) -> Callable[..., Any]:
        return subscriber.async_listener

    async def run(self) -> None:
        """Start, and go on until Ctrl-C or SIGTERM (or `stop`); then leave all groups in good order.

        A cluster that does not answer (yet) is waited for.

        Raises:
            LogboomError: what else `start` raises, or why a group does not take its member any more.
        """
        loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        numbers = (signal.SIGINT, signal.SIGTERM)
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
        """Begin once the cluster is up."""
        stopped = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                begun = asyncio.create_task(self._begin(None, {}))
                try:
                    await asyncio.wait((begun, stopped), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    begun.cancel()  # nothing, if it has ended
                    await asyncio.wait((begun,))
                error = None if begun.cancelled() else begun.exception()
                if error is None:
                    return
                if not isinstance(error, RetryableError):
                    raise error
                LOG.warning("the app waits for its cluster: %s", error)
                await asyncio.wait((stopped,), timeout=AGAIN_S)
        finally:
            stopped.cancel()

    def stop(self) -> None:
        """Let `run` end; from its loop, a handler's too."""
        if self._stopping is not None:
            self._stopping.set()
