"""This broker's standing at the name server: registered, heard every second, or fenced (Q2, Q11).

Every start registers and gets a new instance epoch, which ends all leaderships given before. The
broker acts on leadership only from metadata at least as new as its registration. Fenced while it
lives, it registers again, under a new incarnation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.nodes.cluster.lease import Lease
from logboom.nodes.cluster.peer_connections import PeerConnections
from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.config import HEARTBEAT, BrokerConfig
from logboom.nodes.turn import BrokerTurn
from logboom.wire.commands import CommandResult, RegisterBroker
from logboom.wire.messages import Heartbeat, HeartbeatGranted
from logboom.wire.name_servers import NameServers
from logboom.wire.session import Reply

RETRY: Final = 0.1
"""Seconds before a heartbeat that found no raft leader is sent again."""


class Registration:
    """Registration, heartbeats and the lease that they grant."""

    def __init__(
        self,
        config: BrokerConfig,
        store_id: str,
        suspect: bool,
        incarnation: str,
        links: PeerConnections,
        servers: NameServers,
        proposals: ProposalQueue,
        on_registered: Callable[[BrokerTurn], None],
        on_fenced: Callable[[BrokerTurn], None],
        on_version: Callable[[int, BrokerTurn], None],
        unheard: Callable[[float], list[str]],
    ) -> None:
        """`on_registered` follows each new instance epoch, `on_fenced` each loss of one;
        `on_version` gets the metadata version that each grant names; `unheard` tells at a
        monotonic time which brokers should replicate from this one and are silent."""
        self.lease = Lease()
        self.instance_epoch = -1
        """Of this registration; -1: not registered."""
        self.version = -1
        """Metadata version from which on leadership may be acted upon (Q2)."""
        self.refusal = ""
        """Why the name server will not have this broker, if so."""
        self._config = config
        self._store_id = store_id
        self._suspect = suspect
        self._incarnation = incarnation
        self._links = links
        self._servers = servers
        self._proposals = proposals
        self._on_registered = on_registered
        self._on_fenced = on_fenced
        self._on_version = on_version
        self._unheard = unheard
        self._attempts = 0
        self._asking = False
        self._heartbeat_at = 0.0
        self._register_at = float("-inf")
        self._registering = False

    @property
    def registered(self) -> bool:
        """Whether this process has an instance epoch."""
        return self.instance_epoch >= 0

    def step(self, turn: BrokerTurn) -> None:
        """Register, or send the heartbeat that is due."""
        if not self.registered:
            if not self._registering and turn.mono >= self._register_at:
                self._register(turn)
        elif not self._asking and turn.mono >= self._heartbeat_at:
            self._beat(turn)

    def deadline(self) -> float:
        """When `step` is wanted next."""
        if not self.registered:
            return float("inf") if self._registering else self._register_at
        return float("inf") if self._asking else self._heartbeat_at

    def fenced(self, turn: BrokerTurn) -> None:
        """The name server no longer knows this instance: nothing may be led any more."""
        if not self.registered:
            return
        self.instance_epoch = self.version = -1
        self.lease.end()
        self._proposals.drop_all()
        self._on_fenced(turn)
        self._register_at = turn.mono
        self.step(turn)

    def _register(self, turn: BrokerTurn) -> None:
        self._attempts += 1
        self._registering = True
        command = RegisterBroker(
            self._config.id,
            self._store_id,
            f"{self._incarnation}-{self._attempts}",
            self._config.advertise,
            self._config.zone,
            self._suspect,
            turn.now.wall_ms,
        )
        self._proposals.propose(command, self._registered, turn)

    def _registered(self, result: CommandResult, turn: BrokerTurn) -> None:
        self._registering = False
        if result.code or not isinstance(result.value, int):
            self.refusal = result.text or result.code
            self._register_at = turn.mono + HEARTBEAT
            return
        self.refusal = ""
        self.instance_epoch = result.value
        self.version = result.version
        self._heartbeat_at = turn.mono
        self._on_registered(turn)
        self.step(turn)

    def _beat(self, turn: BrokerTurn) -> None:
        self._asking = True
        sent_at, epoch = turn.mono, self.instance_epoch
        endpoint = self._servers.leader()
        message = Heartbeat(
            0, int(HEARTBEAT * 1000), self._config.id, epoch, self._unheard(sent_at)
        )
        self._links.request(
            endpoint,
            message,
            turn,
            lambda reply, later: self._beaten(endpoint, sent_at, epoch, reply, later),
            turn.mono + HEARTBEAT,
        )

    def _beaten(
        self, endpoint: str, sent_at: float, epoch: int, reply: Reply, turn: BrokerTurn
    ) -> None:
        self._asking = False
        if epoch != self.instance_epoch:
            return
        if isinstance(reply.message, HeartbeatGranted):
            self._servers.accepted(endpoint)
            self.lease.granted(sent_at, reply.message.lease_ms, reply.message.version)
            self._heartbeat_at = sent_at + HEARTBEAT
            self._on_version(reply.message.version, turn)
        elif reply.error is not None and reply.error.code == "FENCED":
            self.fenced(turn)
        elif reply.error is not None and self._servers.refused(endpoint, reply.error):
            self._heartbeat_at = turn.mono
        else:
            self._heartbeat_at = turn.mono + RETRY
        self.step(turn)
