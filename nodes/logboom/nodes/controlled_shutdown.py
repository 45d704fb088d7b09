"""The controlled shutdown of a broker, which first leaves what the cluster would wait for: its
leaderships, its places among in-sync replicas, and its groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica_roles import ReplicaRoles
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.commands import CommandResult, StepDown

PATIENCE: Final = 3.0
"""Seconds that the handover may take. After that the node ends anyway."""


class ControlledShutdown(Service):
    """One shutdown, from its request to its end."""

    def __init__(
        self, context: BrokerContext, roles: ReplicaRoles, coordinating: Callable[[], int]
    ) -> None:
        """Create an idle shutdown; `coordinating` returns the number of coordinated groups."""
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
        """Start the shutdown."""
        if not self.wanted:
            self.wanted = True
            self._until = turn.mono + PATIENCE

    def step(self, turn: BrokerTurn) -> None:
        """Continue with a shutdown that has started."""
        if not self.wanted or self._last_token is not None:
            return
        if self._is_missed() and turn.mono < self._until:
            if self._handed_over is None:
                self._ask(turn)
                return
            if self._routes.version < self._handed_over:
                return
        self._close(turn)

    def _is_missed(self) -> bool:
        """Return True if the cluster would wait for this broker, if only as a follower: until the
        leader drops it from the in-sync replicas, nothing that it lacks is acknowledged."""
        follows = self._registration.registered and any(True for _ in self._queues)
        return bool(self._queues.led or self._coordinating() or follows)

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
        """Forget the request to step down, which ended with the instance epoch."""
        self._asking = False

    def _close(self, turn: BrokerTurn) -> None:
        """Write the HWs and producer windows, so that the next start is fast."""
        self._roles.closed = True
        self._roles.resign(turn)
        for replica in self._queues:
            if replica.damage is None:
                replica.stage_windows(turn.writes)
                self._queues.touch(replica)
        self._last_token = self._queues.token + 1
        if all(replica.damage is not None for replica in self._queues):
            # There is nothing to write, so there is no sync to wait for.
            turn.out.stop = ""

    def synced(self, token: int, turn: BrokerTurn) -> None:
        """End the process once the last writes are on disk."""
        if self._last_token is not None and token >= self._last_token:
            turn.out.stop = ""

    def deadline(self) -> float:
        """Return when `step` is wanted."""
        return self._until if self.wanted and self._last_token is None else float("inf")
