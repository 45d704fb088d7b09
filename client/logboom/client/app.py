"""Functions that are called with the messages of a group, declared where they stand.

    app = App("127.0.0.1:7711")

    @app.subscriber("orders", group="billing")
    def charge(order: Order) -> None: …

    app.run()          # until Ctrl-C or SIGTERM

`Order` is a msgspec struct, a dataclass or what else `logboom.client.typed_values` lists. A function that
raises gets the message again, as a listener of `push_consumer`, whose options a subscriber has. The
decorated function stays what it was: tests call it like any other. `logboom.deploy.testing` runs an
app against an embedded node.

By hand in both clients: how an app begins, and is stopped by signals.
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
from logboom.client.subscribers import SubscriberFunction
from logboom.wire.errors import InvalidRequest, RetryableError

LOG = logging.getLogger("logboom.client")
LOOK_S: Final = 0.5
"""Seconds between two looks whether the members are still in their groups."""
AGAIN_S: Final = 1.0
"""Seconds between two tries of an app to begin."""


class _StoppedError(BaseException):
    """A signal came while the app was beginning."""


class App(AppBase):
    """Subscribers, and the client that they run on. Declare first, then `run` or `start`."""

    def __init__(self, endpoints: str | Sequence[str] = "", **options: Any) -> None:
        """`endpoints` and `options` are those of `connect`; "" if `start` gets a client."""
        super().__init__(endpoints, **options)
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
        """Start, and go on until Ctrl-C or SIGTERM (or `stop`); then leave all groups in good order.

        A cluster that does not answer (yet) is waited for.

        Raises:
            LogboomError: what else `start` raises, or why a group does not take its member any more.
        """
        self._stopping.clear()
        before = {
            number: signal.signal(number, self._signalled)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
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
        """Begin once the cluster is up."""
        while not self._stopping.is_set():
            self._beginning = True
            try:
                self._begin(None, {})
            except RetryableError as error:
                LOG.warning("the app waits for its cluster: %s", error)
            else:
                return
            finally:
                self._beginning = False
            self._stopping.wait(AGAIN_S)

    def stop(self) -> None:
        """Let `run` end; from any thread, a handler's too."""
        self._stopping.set()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._stopping.set()
        if self._beginning:
            raise _StoppedError
