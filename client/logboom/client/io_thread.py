"""The thread that owns a client's sockets and runs its core.

The API submits calls and wakes the thread, which sleeps in `poll` when there is nothing to do. The
thread ends with `stop` or when the interpreter exits. In a forked child the client is unusable.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import random
import re
import secrets
import threading
import time
import weakref
from collections import deque
from itertools import count
from typing import Any, Final, TypeVar

from logboom.client.calls import CoreCall
from logboom.client.core import ClientConfig, ClientCore
from logboom.client.flows import Flow, run_flow
from logboom.client.futures import wait
from logboom.client.promise import Promise
from logboom.client.send.send_buffer import SendBuffer
from logboom.client.send.sender import closed
from logboom.client.transactions.applications import Applications
from logboom.wire.actor import Call, Event, Instant
from logboom.wire.credentials import Credentials
from logboom.wire.errors import ClientClosed, InternalError, InvalidRequest, LogboomError
from logboom.wire.key_pair import SecretBytes
from logboom.wire.sockets import Sockets

LOG = logging.getLogger("logboom.client")
MAX_CLIENT_ID: Final = 200
"""Maximum length of the client id that a user gives. Nodes accept a few more characters."""

T = TypeVar("T")

_RUNNING: Final[weakref.WeakSet[IoThread]] = weakref.WeakSet()


def instant() -> Instant:
    """Return the present time of this machine's clocks."""
    return Instant(time.monotonic(), wall_ms())


def wall_ms() -> int:
    """Return the milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


class IoThread:
    """The thread of one client, with its sockets and its core."""

    def __init__(
        self,
        endpoints: tuple[str, ...],
        client_id: str,
        *,
        create_topics: bool,
        cluster_key: bytes = b"",
        credentials: Credentials | None = None,
    ) -> None:
        """Start the thread.

        Raises:
            InvalidRequest: `client_id` is too long.
        """
        if len(client_id) > MAX_CLIENT_ID:
            text = f"client_id of {len(client_id)} characters: give at most {MAX_CLIENT_ID}"
            raise InvalidRequest(text)
        try:
            client_id.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"client_id must be text that UTF-8 can encode: {error}") from None
        unique = f"{client_id or 'client'}-{secrets.token_hex(6)}"
        config = ClientConfig(
            endpoints,
            unique,
            create_topics,
            SecretBytes(cluster_key),
            "" if credentials is None else credentials.user,
            {} if credentials is None else credentials.server_keys,
        )
        rng = random.Random(secrets.randbits(64))
        self.core = ClientCore(config, rng, instant())
        self.signs_copies = credentials is not None
        """True: copies of failed messages need receipts, as nodes know this client by its key."""
        self.forked = False
        self.ended: Promise[None] = Promise()
        """Resolved by the last step of the thread."""
        self.buffers: weakref.WeakSet[SendBuffer[Any]] = weakref.WeakSet()
        self.applications = Applications()
        """The application ids with transactions in this client."""
        self._error: LogboomError | None = None
        self._calls: deque[CoreCall] = deque()
        self._pending: set[Promise[Any]] = set()
        self._members = count(1)
        self._asleep = False
        self._stopping = False
        self._sockets = Sockets(key_pair=None if credentials is None else credentials.key_pair)
        self._sockets.server_keys = self.core.node_keys.of
        self._thread = threading.Thread(target=self._run, name="logboom-client", daemon=True)
        _RUNNING.add(self)
        self._thread.start()

    def check(self) -> None:
        """Check that the client is open.

        Raises:
            ClientClosed: the client was closed, or the process has forked.
            InternalError: the thread has failed.
        """
        if self.forked:
            raise ClientClosed(
                "this client was opened before the process forked: "
                "call connect() again in the child",
                "FORKED",
            )
        if self._error is not None:
            raise self._error

    def check_may_wait(self) -> None:
        """Check that the caller is not the client's own thread, which would wait for itself.

        Raises:
            InvalidRequest: it is.
        """
        if threading.current_thread() is self._thread:
            text = "this call blocks, and a future's callback must not: call it in another thread"
            raise InvalidRequest(text)

    def member_id(self) -> str:
        """Return a new, unique name for a member of a group."""
        client_id = re.sub(r"[^A-Za-z0-9._@:-]", "-", self.core.config.client_id)
        return f"{client_id[-100:]}/{next(self._members)}"

    @staticmethod
    def secret_name() -> str:
        """Return a new name that nobody can guess; client ids, of which others are made, are shown."""
        return secrets.token_hex(16)

    @property
    def create_topics(self) -> bool:
        """True if consumers create missing topics."""
        return self.core.config.create_topics

    @property
    def running(self) -> bool:
        """True if calls are still accepted."""
        return self._error is None and not self.forked and not self._stopping

    def submit(self, call: CoreCall) -> None:
        """Pass a call to the core."""
        self.check()
        self._calls.append(call)
        self.ring()

    def ring(self) -> None:
        """Wake the thread if it sleeps. This is cheap if it does not."""
        if self._asleep:
            self._asleep = False
            self._sockets.wake()

    def run(self, call: Any) -> Any:
        """Submit a call, wait until it is done, and return its value."""
        outcome: Promise[Any] = call.outcome
        self.check_may_wait()
        self.expect(outcome)
        try:
            self.submit(call)
            wait(outcome)
        finally:
            self._pending.discard(outcome)
        return outcome.get()

    def drive(self, flow: Flow[T]) -> T:
        """Run a flow, waiting for each of its calls, and return its result."""
        return run_flow(flow, self.run)

    def expect(self, outcome: Promise[Any]) -> None:
        """Fail a promise if the thread ends before it is done."""
        self._pending.add(outcome)
        outcome.add_callback(lambda: self._pending.discard(outcome))
        if self._error is not None:
            outcome.fail(self._error)

    def stop(self) -> None:
        """Stop the thread and wait for it. Outstanding calls fail with ClientClosed."""
        self.begin_stop()
        if not self.forked and threading.current_thread() is not self._thread:
            self._thread.join()

    def begin_stop(self) -> None:
        """Stop the thread without waiting. `ended` is resolved when it has ended."""
        self._stopping = True
        if not self.forked:
            self._sockets.wake()

    def warn_of_unsent(self) -> None:
        """Log that the program ends before its messages are acknowledged, if it does."""
        unsent = sum(buffer.added - buffer.freed for buffer in list(self.buffers))
        if unsent > 0 and self.running:
            LOG.warning(
                "the program ends while %d bytes of sent messages are not acknowledged, and they may be "
                "lost: call flush() or close() of the producer, or use the client in a `with` block",
                unsent,
            )

    def fork(self) -> None:
        """Mark this copy in a forked child as unusable: thread and sockets belong to the parent."""
        self.forked = True
        for buffer in self.buffers:
            buffer.topics.clear()

    def _run(self) -> None:
        error: LogboomError = closed()
        try:
            while not self._stopping:
                self._turn()
        # Whatever fails here, every waiting call must fail, or it would wait for ever.
        except BaseException as fault:
            LOG.exception("the client's core failed")
            error = InternalError(f"the client failed ({fault!r}): please report it")
            error.__cause__ = fault
        self._end(error)

    def _turn(self) -> None:
        # The order matters: a thread that adds a call after we looked for calls sees `_asleep`, and
        # wakes us.
        self._asleep = True
        received = self._sockets.poll(self._timeout())
        self._asleep = False
        events: list[Event] = list(received)
        while self._calls:
            events.append(Call(self._calls.popleft()))
        effects = self.core.handle(events, instant())
        for endpoint in effects.redials:
            self._sockets.redial(endpoint)
        self._sockets.send(effects.sends)
        for endpoint in effects.hangups:
            self._sockets.hang_up(endpoint)

    def _timeout(self) -> float | None:
        if self._calls or self._stopping:
            return 0.0
        deadline = self.core.deadline()
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _end(self, error: LogboomError) -> None:
        self._error = error
        for buffer in list(self.buffers):
            buffer.topics.clear()
        with contextlib.suppress(Exception):
            # After a failure of the core, this may fail, too.
            self.core.close(error)
        # Before the sockets: if they do not close, nobody waits for that.
        while self._calls:
            outcome: Promise[Any] | None = getattr(self._calls.popleft(), "outcome", None)
            if outcome is not None:
                outcome.fail(error)
        while self._pending:
            self._pending.pop().fail(error)
        try:
            self._sockets.close()
        finally:
            self.ended.resolve(None)


def _stop_all() -> None:
    for thread in list(_RUNNING):
        thread.warn_of_unsent()
        thread.stop()


def _forked() -> None:
    for thread in list(_RUNNING):
        thread.fork()
        _ORPHANS.append(thread)


_ORPHANS: Final[list[IoThread]] = []
"""References that a forked child keeps until it exits, so that it never closes the sockets in
them."""

atexit.register(_stop_all)
os.register_at_fork(after_in_child=_forked)
