"""PySyncObj's `SyncObj`, of which only elections, terms and commits are kept.

`REPLACED` lists every method of the shipped class that one of ours replaces. The class is built for
each node from a private copy of PySyncObj's module, so that clock, journal and serializer, which
are globals of that module, belong to one node. The shared module is not changed.
"""

from __future__ import annotations

import logging
import zlib
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from logboom.metadata.raft.raft_log import RaftLog
    from logboom.metadata.raft.raft_snapshot import RaftSnapshot

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2
"""PySyncObj's numbers of the three states."""

Message = dict[str, Any]

REPLACED: Final = {
    "_SyncObj__doApplyCommand": "apply_entry",
    "_SyncObj__generateRaftTimeout": "election_timeout",
    "_SyncObj__sendNextNodeIdx": "answer",
    "_SyncObj__loadDumpFile": "finish_install",
    "_SyncObj__tryLogCompaction": "compact",
    "_SyncObj__connectedToAnyone": "may_stand",
    "_checkCommandsToApply": "ship",
}
"""Method of the shipped class -> our method that replaces it."""
SHIPPED: Final = {
    "log": "_SyncObj__raftLog",
    "commit_index": "_SyncObj__raftCommitIndex",
    "last_applied": "_SyncObj__raftLastApplied",
    "current_term": "_SyncObj__raftCurrentTerm",
    "state": "_SyncObj__raftState",
    "leader_node": "_SyncObj__raftLeader",
    "others": "_SyncObj__otherNodes",
    "connected": "_SyncObj__connectedNodes",
    "next_index": "_SyncObj__raftNextIndex",
    "match_index": "_SyncObj__raftMatchIndex",
    "answered_at": "_SyncObj__lastResponseTime",
    "waiting": "_SyncObj__commandsWaitingCommit",
    "election_deadline": "_SyncObj__raftElectionDeadline",
    "next_append_at": "_SyncObj__newAppendEntriesTime",
    "noop_index": "_SyncObj__noopIDx",
}
"""Our name -> private attribute of the shipped class; None until PySyncObj sets it."""


class EngineHost(Protocol):
    """The requests that PySyncObj makes of the node around it."""

    def send_message(self, peer: str, message: Message) -> None:
        """Queue one of PySyncObj's messages."""

    def send_answer(self, peer: str) -> None:
        """Queue the answer to the append or snapshot that is being processed."""

    def apply_entry(self, index: int, term: int, entry: bytes) -> list[bytes]:
        """Apply one committed entry, and return the results of its commands."""

    def election_timeout(self) -> float:
        """Draw the seconds until the next election."""

    def ship_submitted(self) -> None:
        """Append what was submitted to the log, or refuse it if this node does not lead."""

    def compact_if_due(self) -> None:
        """Take a snapshot and trim the log, if the log has grown enough."""

    def may_stand(self) -> bool:
        """Return True if an election may be started now."""

    def state_changed(self, old: int, new: int) -> None:
        """React to the node becoming follower, candidate or leader."""


class ForbiddenModule:
    """A stand-in for pickle, randomness and files in PySyncObj's module; any use of it is a bug."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        raise AssertionError(f"PySyncObj reached for {self._name}.{attribute}")


class _Transport:
    """The `Transport` that PySyncObj sees: always ready, passing everything to the host."""

    ready = True

    def __init__(self, engine: Any, _self_node: Any, _other_nodes: Any) -> None:
        self._host: EngineHost = engine.host

    def send(self, node: Any, message: Message) -> bool:
        self._host.send_message(node.id, message)
        return True

    def ignore(self, *_: Any) -> None:
        """Ignore callbacks and nodes: the engine is called directly, and the log names the members."""

    setOnNodeConnectedCallback = setOnNodeDisconnectedCallback = ignore  # noqa: N815 - PySyncObj's
    setOnReadonlyNodeConnectedCallback = setOnUtilityMessageCallback = ignore  # noqa: N815 - same
    setOnReadonlyNodeDisconnectedCallback = setOnMessageReceivedCallback = ignore  # noqa: N815 - same
    addNode = dropNode = tryGetReady = waitReady = destroy = ignore  # noqa: N815 - same


class _SnapshotSerializer:
    """A replacement for PySyncObj's `Serializer` that sends snapshots whole and is never busy (R6)."""

    def __init__(self) -> None:
        self.latest: Callable[[], bytes | None] = lambda: None
        self.install: Callable[[RaftSnapshot], None] | None = None

    def getTransmissionData(self, _node: Any) -> tuple[bytes, bool, bool] | None:  # noqa: N802 - PySyncObj's name
        data = self.latest()
        return None if data is None else (data, True, True)

    def setTransmissionData(self, snapshot: RaftSnapshot) -> bool:  # noqa: N802 - PySyncObj's name
        assert self.install is not None, "the node sets `install` before any frame"
        self.install(snapshot)
        return True

    def cancelTransmisstion(self, _node: Any) -> None:  # noqa: N802 - PySyncObj's own spelling
        """Do nothing: no transmission is in progress between two calls."""


def _alias(name: str) -> property:
    """Make an attribute available under another name; it is read many times per turn."""
    return property(attrgetter(name), lambda self, value: setattr(self, name, value))


def engine_class(module: ModuleType) -> Any:
    """Derive our class from the `SyncObj` in a private copy of PySyncObj's module."""
    base: Any = module.SyncObj

    class RaftPeer(module.Node):  # type: ignore[name-defined,misc]  # a module loaded at run time
        """A node whose hash is the same in every process, so that sets of nodes iterate alike."""

        def __hash__(self) -> int:
            return zlib.crc32(self.id.encode())

    class Engine(base):  # type: ignore[misc]  # PySyncObj ships no types
        """The class that the module's docstring describes."""

        def __init__(self, host: EngineHost, node_id: str, others: list[str], conf: Any) -> None:
            self.host = host
            super().__init__(
                RaftPeer(node_id),
                [RaftPeer(other) for other in others],
                conf,
                transportClass=_Transport,
            )
            # The node itself loads the newest snapshot, before the first tick (R9).
            self._SyncObj__needLoadDumpFile = False

        def apply_entry(self, entry: bytes) -> list[bytes]:
            index = self.last_applied + 1
            return self.host.apply_entry(index, self.log.term_at(index), entry)

        def election_timeout(self) -> float:
            return self.host.election_timeout()

        def answer(self, node: Any, **_: Any) -> None:
            # The answer was decided when the append was placed (R2, R10).
            self.host.send_answer(node.id)

        def finish_install(self, **_: Any) -> None:
            # The serializer has already replaced state, file and journal (R6).
            self.last_applied = self.log.last_index

        def compact(self) -> None:
            self.host.compact_if_due()

        def may_stand(self) -> bool:
            return self.host.may_stand()

        def ship(self) -> None:
            self.host.ship_submitted()

        def peer(self, node_id: str) -> Any:
            return RaftPeer(node_id)

        def deliver(self, node_id: str, message: Message) -> None:
            """Hand a message to PySyncObj."""
            self._SyncObj__onMessageReceived(RaftPeer(node_id), message)

        def connect(self, node_id: str) -> None:
            self._SyncObj__onNodeConnected(RaftPeer(node_id))

        def disconnect(self, node_id: str) -> None:
            self._SyncObj__onNodeDisconnected(RaftPeer(node_id))

        def send_appends(self) -> None:
            """Send every connected member the entries that it lacks, or a heartbeat."""
            self._SyncObj__sendAppendEntries()

        def append_soon(self) -> None:
            """Let the next tick send appends without waiting for the heartbeat."""
            self.next_append_at = float("-inf")

        def add_peer(self, node_id: str, now: float) -> None:
            node = RaftPeer(node_id)
            self.others.add(node)
            self.next_index[node] = self.log.last_index + 1
            self.match_index[node] = 0
            self.answered_at[node] = now

        def drop_peer(self, node_id: str) -> None:
            node = RaftPeer(node_id)
            self.others.discard(node)
            self.connected.discard(node)
            for table in (self.next_index, self.match_index, self.answered_at):
                table.pop(node, None)

    for ours, theirs in SHIPPED.items():
        # PySyncObj reads every property before it has set any attribute.
        setattr(Engine, theirs, None)
        setattr(Engine, ours, _alias(theirs))
    for theirs, ours in REPLACED.items():
        assert hasattr(base, theirs), f"PySyncObj has no {theirs}: another version is installed"
        setattr(Engine, theirs, getattr(Engine, ours))
    return Engine


def replace_environment(
    module: ModuleType, log: RaftLog, clock: Callable[[], float]
) -> _SnapshotSerializer:
    """Replace the globals of a private copy of PySyncObj's module by our own."""
    door = _SnapshotSerializer()
    poller = SimpleNamespace(poll=lambda _timeout: None)
    outside: dict[str, Any] = {
        "createJournal": lambda _path: log,
        "monotonicTime": clock,
        "Serializer": lambda *_: door,
        "createPoller": lambda _kind: poller,
        "globalDnsResolver": lambda: SimpleNamespace(
            setTimeouts=lambda *_: None, setPreferredAddrFamily=lambda _: None
        ),
        "PIPE_NOTIFIER_ENABLED": False,
        "pickle": ForbiddenModule("pickle"),
        "random": ForbiddenModule("random"),
        "time": ForbiddenModule("time"),
        "os": ForbiddenModule("os"),
        "logger": logging.getLogger("logboom.metadata.raft.raft"),
    }
    for name, value in outside.items():
        assert hasattr(module, name), f"PySyncObj has no {name}: another version is installed"
        setattr(module, name, value)
    return door
