"""A graceful stop: hand leaderships and groups over, write down what is known, then end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica_roles import ReplicaRoles
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.commands import CommandResult, StepDown

PATIENCE: Final = 3.0
"""Seconds that handing over may take; after that the node ends all the same."""


class ControlledShutdown(Service):
    """Follows a stop from the wish to the end."""

    def __init__(
        self, context: BrokerContext, roles: ReplicaRoles, coordinating: Callable[[], int]
    ) -> None:
        """`coordinating` says how many groups this broker coordinates."""
        self.wanted = False
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._roles = roles
        self._registration = context.registration
        self._proposals = context.proposals
        self._coordinating = coordinating
        self._until = float("inf")
        self._asking = False
        self._handed_over: int | None = None
        """Metadata version from which on nothing more can be handed over."""
        self._last_token: int | None = None

    def begin(self, turn: BrokerTurn) -> None:
        """The process is to end."""
        if not self.wanted:
            self.wanted = True
            self._until = turn.mono + PATIENCE

    def step(self, turn: BrokerTurn) -> None:
        """Do what is next, if a stop is under way."""
        if not self.wanted or self._last_token is not None:
            return
        if (self._queues.led or self._coordinating()) and turn.mono < self._until:
            if self._handed_over is None:
                self._ask(turn)
                return
            if self._routes.version < self._handed_over:
                return
        self._close(turn)

    def _ask(self, turn: BrokerTurn) -> None:
        if self._asking or not self._registration.registered:
            return
        self._asking = True
        self._registration.lease.give_up()
        command = StepDown(self._me, self._registration.instance_epoch, turn.now.wall_ms)
        self._proposals.propose(command, self._decided, turn)

    def _decided(self, result: CommandResult, turn: BrokerTurn) -> None:
        self._handed_over = result.version
        self.step(turn)

    def fenced(self, turn: BrokerTurn) -> None:
        """The instance epoch is over, and the wish to step down with it."""
        self._asking = False

    def _close(self, turn: BrokerTurn) -> None:
        """Write down HWs and producer windows, so that the next opening is short."""
        self._roles.closed = True
        self._roles.resign(turn)
        for replica in self._queues:
            if replica.damage is None:
                replica.stage_windows(turn.writes)
                self._queues.touch(replica)
        self._last_token = self._queues.token + 1
        if all(replica.damage is not None for replica in self._queues):
            # Nothing to write, so no sync to wait for.
            turn.out.stop = ""

    def synced(self, token: int, turn: BrokerTurn) -> None:
        """What was written last is on disk."""
        if self._last_token is not None and token >= self._last_token:
            turn.out.stop = ""

    def deadline(self) -> float:
        """When `step` is wanted."""
        return self._until if self.wanted and self._last_token is None else float("inf")
