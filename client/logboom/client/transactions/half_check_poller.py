"""Polls for half messages whose outcome is unknown: one is held at every broker."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from logboom.client.calls import CallHandlers, CoreCall
from logboom.client.cluster.connections import Connections
from logboom.client.cluster.metadata_updater import MetadataUpdater
from logboom.client.core_context import CoreTurn, Timer
from logboom.wire.backoff import backoff
from logboom.wire.frames import Frame
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle
from logboom.wire.transactions import CheckHalves, HalvesToCheck, UndecidedBatch

LOG = logging.getLogger("logboom.client")

WAIT_MS: Final = 20_000
"""Time for which a broker holds a poll when it has nothing, in ms."""
SLACK_S: Final = 5.0
MAX_WAITING: Final = 1_000
"""Maximum number of half messages that wait here for their check; beyond it, brokers are not
polled."""
LOOK_AGAIN_S: Final = 1.0


class HalfMessageQueue:
    """Half messages that one producer group has to check, shared by the core and the sender."""

    def __init__(self, group: str, bell: Callable[[], object]) -> None:
        self.group = group
        self.bell = bell
        """Called when something has arrived."""
        self.arrivals: deque[tuple[UndecidedBatch, Frame]] = deque()


class _BrokerPoll:
    """The poll of one broker for one producer group."""

    __slots__ = ("attempts", "checks", "endpoint", "pause", "ticket")

    def __init__(self, checks: HalfMessageQueue, endpoint: str) -> None:
        self.checks = checks
        self.endpoint = endpoint
        self.attempts = 0
        self.ticket: RequestHandle | None = None
        self.pause: Timer | None = None

    def cancel(self) -> None:
        """Cancel the poll."""
        if self.ticket is not None:
            self.ticket.cancel()
        if self.pause is not None:
            self.pause.cancel()


class CheckPoller:
    """The core's side of all checks of one client."""

    def __init__(self, connections: Connections, watching: MetadataUpdater, turn: CoreTurn) -> None:
        self._connections = connections
        self._watching = watching
        self._turn = turn
        self._asked: dict[int, tuple[HalfMessageQueue, dict[str, _BrokerPoll]]] = {}
        watching.listen(self._rerouted)

    def register(self, handlers: CallHandlers) -> None:
        """Register the handlers of transactional senders' calls."""
        handlers.register(OpenChecks, self._open)
        handlers.register(CloseChecks, self._close)

    def _open(self, call: OpenChecks) -> None:
        self._asked[id(call.checks)] = (call.checks, {})
        self._rerouted()

    def _close(self, call: CloseChecks) -> None:
        _, asked = self._asked.pop(id(call.checks), (call.checks, {}))
        for each in asked.values():
            each.cancel()

    def _rerouted(self) -> None:
        """Follow brokers that were added or removed."""
        live = {b.endpoint for b in self._watching.routes.brokers.values() if b.alive}
        for checks, asked in self._asked.values():
            for endpoint in set(asked) - live:
                asked.pop(endpoint).cancel()
            for endpoint in sorted(live - set(asked)):
                asked[endpoint] = _BrokerPoll(checks, endpoint)
                self._ask(asked[endpoint])

    def _ask(self, asked: _BrokerPoll) -> None:
        asked.pause = None
        if len(asked.checks.arrivals) >= MAX_WAITING:
            asked.pause = self._turn.after(LOOK_AGAIN_S, partial(self._ask, asked))
            return
        timeout = WAIT_MS / 1000 + SLACK_S
        message = CheckHalves(0, int(timeout * 1000), asked.checks.group, WAIT_MS)
        asked.ticket = self._connections.request(
            asked.endpoint, message, (), partial(self._answered, asked), timeout
        )

    def _answered(self, asked: _BrokerPoll, reply: Reply) -> None:
        asked.ticket = None
        answer = reply.message
        if isinstance(answer, HalvesToCheck):
            asked.attempts = 0
            asked.checks.arrivals.extend(zip(answer.halves, reply.batches, strict=False))
            if answer.halves:
                asked.checks.bell()
            self._ask(asked)
            return
        if reply.error is not None and not reply.error.retryable:
            LOG.warning("half messages cannot be checked: %s", reply.error)
        asked.attempts += 1
        delay = backoff(asked.attempts, self._turn.rng)
        asked.pause = self._turn.after(delay, partial(self._ask, asked))


@dataclass(slots=True)
class OpenChecks(CoreCall):
    """Ask every broker for half messages of a producer group whose outcome is unknown."""

    checks: HalfMessageQueue


@dataclass(slots=True)
class CloseChecks(CoreCall):
    """Stop asking."""

    checks: HalfMessageQueue
