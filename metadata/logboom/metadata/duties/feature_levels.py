"""The versions of all nodes, as the Raft leader hears them, and the features level.

What nodes say of their software is soft state: it is never in the log, where older name servers
would meet it. The level is raised when an operator asks for it and every registered broker and every
name server can read it; from then on the log holds what older ones cannot read (M7).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from logboom.metadata.raft.log_commands import AnyLogCommand, decode_result
from logboom.metadata.raft.raft_config import SubmitOutcome
from logboom.metadata.raft.raft_links import RaftLinks
from logboom.metadata.raft.raft_node import RaftNode
from logboom.metadata.raft.submissions import OnResult
from logboom.metadata.tables.cluster_state import BrokerRegistration, ClusterState
from logboom.wire.base import WireMessage
from logboom.wire.errors import InvalidRequest, LogboomError, error_for
from logboom.wire.features import FEATURES, SOFTWARE
from logboom.wire.messages import FinalizeUpgrade, Heartbeat, NodeVersion, Ok, VersionsDescribed
from logboom.wire.operation_commands import RaiseFeatures

Answer: TypeAlias = Callable[[WireMessage | LogboomError], None]


class FeatureLevelsHost(Protocol):
    """The name server, as its features level sees it."""

    raft: RaftNode
    links: RaftLinks

    @property
    def cluster(self) -> ClusterState:
        """The applied tables."""

    def submit(self, command: AnyLogCommand, on_result: OnResult) -> None:
        """Submit a command of this node's own to the log."""

    def failure(self, outcome: SubmitOutcome) -> LogboomError:
        """Build the error for a submitted command that was not applied, or not known to be."""

    def wall_ms(self) -> int:
        """Return the wall time of this turn."""


class _Told(NamedTuple):
    instance_epoch: int
    software: str
    features: int


class FeatureLevels:
    """What each node can read, and the one way to raise what the cluster writes."""

    def __init__(self, me: str, node: FeatureLevelsHost) -> None:
        self._me = me
        self._node = node
        self._told: dict[str, _Told] = {}
        """Broker → what its last heartbeat to this name server told."""

    def heard(self, message: Heartbeat) -> None:
        """Take what a broker tells of its software."""
        told = _Told(message.instance_epoch, message.software, message.features)
        self._told[message.broker] = told

    def describe(self) -> VersionsDescribed:
        """Return the software of all nodes, and what hinders a higher level."""
        nodes = [self._name_server(name) for name in sorted(self._node.raft.members)]
        brokers = self._node.cluster.brokers
        nodes += [self._broker(brokers[name]) for name in sorted(brokers)]
        return VersionsDescribed(0, self._node.cluster.features, FEATURES, nodes)

    def finalize(self, message: FinalizeUpgrade, answer: Answer) -> None:
        """Raise the level, unless a node hinders it."""
        if message.level <= self._node.cluster.features:
            answer(Ok(0))
            return
        if message.level > FEATURES:
            text = (
                f"the raft leader {self._me} reads features level {FEATURES}, not {message.level}: "
                "upgrade the name servers first"
            )
            answer(InvalidRequest(text))
            return
        hinders = [node.hinders for node in self.describe().nodes if node.hinders]
        if hinders:
            answer(InvalidRequest("; ".join(hinders)))
            return
        command = RaiseFeatures(message.level, self._node.wall_ms())

        def raised(outcome: SubmitOutcome) -> None:
            if not outcome.applied:
                answer(self._node.failure(outcome))
                return
            result = decode_result(outcome.result)
            answer(error_for(result.code, result.text, result.fields) if result.code else Ok(0))

        self._node.submit(command, raised)

    def _name_server(self, name: str) -> NodeVersion:
        if name == self._me:
            return NodeVersion(name, "name-server", SOFTWARE, FEATURES, "")
        software, features = self._node.links.software.get(name, ("", -1))
        up = self._node.links.is_up(name)
        hinders = _hinders(name, features if up else -1, f"`logboom name-server remove {name}`")
        return NodeVersion(name, "name-server", software, features, hinders)

    def _broker(self, broker: BrokerRegistration) -> NodeVersion:
        told = self._told.get(broker.id)
        if told is None or told.instance_epoch != broker.instance_epoch:
            told = _Told(broker.instance_epoch, "", -1)
        hinders = _hinders(broker.id, told.features, f"`logboom broker remove {broker.id}`")
        return NodeVersion(broker.id, "broker", told.software, told.features, hinders)


def _hinders(node: str, features: int, removal: str) -> str:
    if features >= FEATURES:
        return ""
    if features < 0:
        return f"{node} was not heard: start it, or {removal} if it is gone for good"
    return f"{node} reads features level {features}, not {FEATURES}: upgrade it"
