"""The app for threads: functions that are called with the messages of consumer groups.

    app = App("127.0.0.1:7711")

    @app.subscriber("orders", group="billing")
    def charge(order: Order) -> None: …

    app.run()          # until Ctrl-C or SIGTERM

`Order` is a msgspec struct, a dataclass or another type that `logboom.client.typed_values` lists.
If a function raises, the message is delivered again, as to a listener of `push_consumer`. A
subscriber has the same options. The decorated function itself is unchanged, so tests can call it
directly. `logboom.deploy.testing` runs an app against an embedded node.

The start and the handling of signals are written by hand in both clients, because a main thread and
an event loop receive signals in different ways.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

from logboom.client.app_base import AppBase
from logboom.client.subscribers import SubscriberFunction, may_begin_later
from logboom.wire.errors import InvalidRequest, LogboomError

LOG = logging.getLogger("logboom.client")
LOOK_S: Final = 0.5
"""Seconds between two checks that all members are still in their groups."""
AGAIN_S: Final = 1.0
"""Seconds between two attempts to start."""


class _StoppedError(BaseException):
    """A signal was received while the app was starting."""


class App(AppBase):
    """Subscriber functions, and the client that they run on. Declare the functions, then call `run`
    or `start`."""

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
        self._stopping = threading.Event()
        self._beginning = False

    def _prepare(self) -> None:
        self._stopping.clear()

    def _check_subscriber(self, declared: SubscriberFunction) -> None:
        if declared.handler.is_async:
            text = f"{declared.handler.name} is async: use the App of logboom.client.aio"
            raise InvalidRequest(text)

    def _listener(self, subscriber: SubscriberFunction) -> Callable[..., Any]:
        return subscriber.listener

    def run(self) -> None:
        """Start, run until Ctrl-C, SIGTERM or `stop`, and leave all groups.

        While the cluster does not answer, or has no live broker, the app keeps trying to start.
        Signals come to the main thread only: in another one it runs until `stop`.

        Raises:
            LogboomError: `start` failed for another reason, or a group has expelled its member.
        """
        self._stopping.clear()
        is_main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
        before = {number: signal.signal(number, self._signalled) for number in numbers}
        try:
            with contextlib.suppress(_StoppedError):
                self._begin_in_time()
            self._beginning = False
            while not self._stopping.wait(LOOK_S):
                self.check()
        finally:
            self.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _begin_in_time(self) -> None:
        """Start once the cluster answers."""
        while not self._stopping.is_set():
            self._beginning = True
            try:
                self._begin(None, {})
            except LogboomError as error:
                if not may_begin_later(error):
                    raise
                LOG.warning("the app waits for its cluster: %s", error)
            else:
                return
            finally:
                self._beginning = False
            self._stopping.wait(AGAIN_S)

    def stop(self) -> None:
        """End `run`. Any thread may call it, handlers too."""
        self._stopping.set()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._stopping.set()
        if self._beginning:
            raise _StoppedError
