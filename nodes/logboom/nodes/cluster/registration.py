"""The registration of this broker at the name servers: registered, alive by heartbeats, or fenced.

Every start registers and receives a new instance epoch, which ends all earlier leaderships (see
docs/SAFETY.md, Q2 and Q11). The broker acts on leadership only from metadata at least as new as its
registration. A broker that is fenced while it runs registers again, under a new incarnation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from msgspec.structs import replace

from logboom.nodes.cluster.lease import Lease
from logboom.nodes.cluster.peer_connections import PeerConnections
from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.config import HEARTBEAT
from logboom.nodes.turn import BrokerTurn, Figures, Service
from logboom.wire.actor import note
from logboom.wire.commands import CommandResult, RegisterBroker
from logboom.wire.errors import TimedOut
from logboom.wire.features import SOFTWARE
from logboom.wire.messages import Heartbeat, HeartbeatGranted
from logboom.wire.name_servers import NameServers
from logboom.wire.session import Reply

TOLD_AT_ONCE: Final = 256
"""Replicas opened since the last heartbeat with which the next one does not wait for its time: new
queues wait for that."""
RETRY: Final = 0.1
"""Seconds before a heartbeat is repeated that found no Raft leader."""
USEFUL_S: Final = 2.0
"""Seconds for which the answer to a heartbeat is awaited, while later ones are under way: as long as
a lease, which counts from sending it."""


class RegistrationHost(Protocol):
    """The requirements of a registration on its broker."""

    def on_registered(self, turn: BrokerTurn) -> None:
        """Begin to work under a new instance epoch."""

    def on_fenced(self, turn: BrokerTurn) -> None:
        """Stop all work under the instance epoch, which has ended."""

    def on_version(self, version: int, turn: BrokerTurn) -> None:
        """Take note of the metadata version that a granted heartbeat names."""

    def unheard(self, now: float) -> list[str]:
        """Return the brokers that should replicate from this one and are silent."""

    def opened(self) -> int:
        """Return how many of the replicas that the metadata gives this broker are open."""


class Registration(Service):
    """The registration, the heartbeats and the lease that they grant."""

    def __init__(
        self,
        command: RegisterBroker,
        links: PeerConnections,
        servers: NameServers,
        proposals: ProposalQueue,
        host: RegistrationHost,
        max_request_bytes: int = 0,
        newest: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        """Create an unregistered broker.

        `command` registers this process; each attempt numbers its incarnation, and dates it.
        Heartbeats tell `max_request_bytes`. `newest` returns the greatest topic id and the newest
        metadata version that the broker knows.
        """
        self.lease = Lease()
        self.instance_epoch = -1
        """Instance epoch of this registration; -1 while not registered."""
        self.version = -1
        """Lowest metadata version on whose leaderships this broker may act."""
        self.refusal = ""
        """The reason why the name servers refuse this broker, or ""."""
        self._command = command
        self._links = links
        self._servers = servers
        self._proposals = proposals
        self._host = host
        self._max_request_bytes = max_request_bytes
        self._newest = newest
        self._attempts = 0
        self._asked: tuple[float, str] | None = None
        """When, and whom, the last heartbeat asked; None if it was answered, or is overdue."""
        self._heartbeat_at = 0.0
        self._told = 0
        """Open replicas that the last heartbeat told."""
        self._register_at = float("-inf")
        self._registering = False
        self._lapsed_at: float | None = None
        """When the lease of this registration ended; None while it holds, or before the first."""
        self._former_epoch = -1
        """The last instance epoch of this process; -1 if it had none."""
        self._rival = ""
        """Address of another process that would be this broker, as heartbeats tell."""
        self._held = False
        """True if the lease held at the last look."""

    @property
    def registered(self) -> bool:
        """True if this process has an instance epoch."""
        return self.instance_epoch >= 0

    def step(self, turn: BrokerTurn) -> None:
        """Register, or send the heartbeat that is due."""
        self._watch_lease(turn)
        if not self.registered:
            if not self._registering and turn.mono >= self._register_at:
                self._register(turn)
        else:
            self._give_up_overdue(turn)
            if self._asked is None and turn.mono >= self._next_at():
                self._beat(turn)

    def deadline(self) -> float:
        """Return when `step` is due next."""
        if not self.registered:
            return float("inf") if self._registering else self._register_at
        beat_at = self._next_at() if self._asked is None else self._asked[0] + HEARTBEAT
        return min(beat_at, self.lease.until) if self._held else beat_at

    def _next_at(self) -> float:
        """Return when the next heartbeat is due."""
        if self._host.opened() - self._told >= TOLD_AT_ONCE:
            return float("-inf")
        return self._heartbeat_at

    def _watch_lease(self, turn: BrokerTurn) -> None:
        """Note that the lease has lapsed, or holds again."""
        held, self._held = self._held, self.lease.holds(turn.mono)
        if held and not self._held and self.registered and not self.lease.given_up:
            self._lapsed_at = turn.mono
            text = "no name server has granted a heartbeat in time: `logboom doctor` says why"
            turn.out.notes.append(note("lease_lost", text=text))
        elif self._held and self._lapsed_at is not None:
            seconds = round(turn.mono - self._lapsed_at, 1)
            turn.out.notes.append(note("lease_regained", seconds=seconds))
            self._lapsed_at = None

    def end(self, turn: BrokerTurn) -> None:
        """End the instance epoch, which the name server no longer knows, and register again."""
        if not self.registered:
            return
        turn.out.notes.append(note("registration_lost", instance_epoch=self.instance_epoch))
        self.instance_epoch = self.version = -1
        self._asked = None
        self.lease.end()
        self._proposals.drop_all()
        self._host.on_fenced(turn)
        self._register_at = turn.mono
        self.step(turn)

    def figures(self, now: float) -> Figures:
        """Return whether this process is registered, and its lease."""
        return {
            "lease": int(self.lease.holds(now)),
            "registered": int(self.registered),
            "instance_epoch": self.instance_epoch,
            "refusal": self.refusal,
            "rival": self._rival,
        }

    def _register(self, turn: BrokerTurn) -> None:
        self._attempts += 1
        self._registering = True
        incarnation = f"{self._command.incarnation}-{self._attempts}"
        topic_id, version = self._newest()
        command = replace(
            self._command,
            incarnation=incarnation,
            time_ms=turn.now.wall_ms,
            topic_id=topic_id,
            version=version,
            former_epoch=self._former_epoch,
        )
        self._proposals.propose(command, self._registered, turn)

    def _registered(self, result: CommandResult, turn: BrokerTurn) -> None:
        self._registering = False
        if result.code or not isinstance(result.value, int):
            self.refusal = result.text or result.code
            turn.out.notes.append(note("registration_refused", text=self.refusal))
            # What a copy of the data folder has written since is missing here: it must not come
            # back by itself under the same store id (Q3).
            copied = bool((result.fields or {}).get("copied"))
            self._register_at = float("inf") if copied else turn.mono + HEARTBEAT
            return
        self.refusal = ""
        self.instance_epoch = self._former_epoch = result.value
        self.version = result.version
        self._heartbeat_at = turn.mono
        self._host.on_registered(turn)
        self.step(turn)

    def _tell_of_rival(self, rival: str, turn: BrokerTurn) -> None:
        if rival and rival != self._rival:
            text = "stop it, or give it an `id`, a data folder and an `advertise` of its own"
            turn.out.notes.append(note("broker_id_contested", address=rival, text=text))
        self._rival = rival

    def _beat(self, turn: BrokerTurn) -> None:
        sent_at, epoch = turn.mono, self.instance_epoch
        endpoint = self._servers.leader()
        self._asked = sent_at, endpoint
        silent = self._host.unheard(sent_at)
        self._told = self._host.opened()
        timeout_ms = int(HEARTBEAT * 1000)
        message = Heartbeat(
            0,
            timeout_ms,
            self._command.broker,
            epoch,
            silent,
            self._max_request_bytes,
            SOFTWARE,
            self._command.features,
            self._told,
        )
        self._links.request(
            endpoint,
            message,
            turn,
            lambda reply, later: self._beaten(endpoint, sent_at, epoch, reply, later),
            turn.mono + USEFUL_S,
        )

    def _give_up_overdue(self, turn: BrokerTurn) -> None:
        """Ask again where nothing has come for a second; what comes late still counts."""
        if self._asked is None or turn.mono < self._asked[0] + HEARTBEAT:
            return
        endpoint = self._asked[1]
        self._asked = None
        text = f"no answer from {endpoint} to a heartbeat: is the node up? try `logboom doctor`"
        again = self._servers.refused(endpoint, TimedOut(text))
        self._heartbeat_at = turn.mono + (0.0 if again else RETRY)

    def _beaten(
        self, endpoint: str, sent_at: float, epoch: int, reply: Reply, turn: BrokerTurn
    ) -> None:
        if epoch != self.instance_epoch:
            return
        overdue = self._asked is None or self._asked[0] != sent_at
        if not overdue:
            self._asked = None
        if isinstance(reply.message, HeartbeatGranted):
            self._servers.accepted(endpoint)
            self.lease.granted(sent_at, reply.message.lease_ms, reply.message.version)
            if not overdue:
                self._heartbeat_at = sent_at + HEARTBEAT
            self._tell_of_rival(reply.message.rival, turn)
            self._host.on_version(reply.message.version, turn)
        elif reply.error is not None and reply.error.code == "FENCED":
            self.end(turn)
        elif overdue:
            return
        elif reply.error is not None and self._servers.refused(endpoint, reply.error):
            self._heartbeat_at = turn.mono
        else:
            self._heartbeat_at = turn.mono + RETRY
        self.step(turn)
