"""The name server's skin: sockets, disk and clocks around the core."""

from __future__ import annotations

import hashlib
import hmac
import logging
import random
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from logboom.metadata.config import NameServerConfig, NameServerMember, check_config
from logboom.metadata.name_server import NameServer
from logboom.metadata.raft import quorum_recovery
from logboom.metadata.raft.journal import RocksJournal
from logboom.metadata.raft.journal_store import JournalError, JournalStore
from logboom.metadata.raft.quorum_recovery import Survivor
from logboom.metadata.raft.raft_config import RaftConfig, RaftError
from logboom.wire.actor import Call, Event, Instant
from logboom.wire.errors import LogboomError, StartError
from logboom.wire.sockets import Sockets
from logboom.wire.unfinished_messages import UnfinishedLimits

T = TypeVar("T")

logger = logging.getLogger("logboom.metadata.server")

FLUSH_MS: Final = 200
"""Time that the last answers get to leave when the node stops."""
MAX_FRAME_BYTES: Final = 2 * 1024 * 1024
"""Largest frame accepted: metadata requests are small, and snapshots are sent in chunks."""
LIMITS: Final = UnfinishedLimits(
    message_bytes=2 * MAX_FRAME_BYTES,
    strangers_bytes=16 * 1024 * 1024,
    clients_bytes=64 * 1024 * 1024,
)


class NameServerProcess:
    """A name server with real sockets, disk and clocks. One thread calls `run`."""

    def __init__(
        self,
        config: NameServerConfig,
        cluster_key: bytes,
        raft_config: RaftConfig | None = None,
    ) -> None:
        """Bind the ports and open the data folder.

        Raises:
            StartError: PORT_IN_USE, WRONG_DATA_FOLDER, NEWER_FORMAT or BAD_CONFIG, in one line.
        """
        check_config(config)
        if not config.data:
            raise StartError("data is empty: name the folder of the raft journal")
        listeners = {"main": config.listen, "raft": config.raft_listen}
        self._sockets = Sockets(listeners, max_frame_bytes=MAX_FRAME_BYTES, limits=LIMITS)
        self._stopping = False
        try:
            self.config = _bound(config, self._sockets.endpoints)
            self._journal = _open_journal(self.config, cluster_key)
            try:
                rng = random.Random(random.SystemRandom().getrandbits(128))
                self.core = NameServer(
                    self.config, self._journal, rng, cluster_key, _now(), raft_config
                )
                self._sockets.kind_of = self.core.acceptor.kind_of
            # Ctrl-C included: release what was opened, and let the error pass.
            except BaseException:
                self._journal.close()
                raise
        except RaftError as error:
            self._sockets.close()
            raise _start_error(error) from None
        # Ctrl-C included: release what was opened, and let the error pass.
        except BaseException:
            self._sockets.close()
            raise

    @property
    def endpoint(self) -> str:
        """The bound host:port for clients and brokers."""
        return self._sockets.endpoints["main"]

    @property
    def raft_endpoint(self) -> str:
        """The bound host:port for the other name servers."""
        return self._sockets.endpoints["raft"]

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until `stop`; `ready` is called once the ports are served.

        Raises:
            LogboomError: the node has to end, because its journal cannot be trusted (R9) or its
                peers hold another cluster key.
        """
        reason: str | None = "the name server ended by a fault"
        try:
            if ready is not None:
                ready()
            reason = self._serve()
        finally:
            self._sockets.close(FLUSH_MS if not reason else 0)
            if not reason:
                self._journal.close()
        if reason:
            raise LogboomError(reason, "INTERNAL")

    def abandon(self) -> None:
        """Release ports and folder of a server that never ran."""
        self._sockets.close()
        self._journal.close()

    def _serve(self) -> str:
        """Run the loop until the core ends it; return the reason, "" if it was asked to stop."""
        core, sockets = self.core, self._sockets
        told = False
        while True:
            deadline = core.deadline()
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            events: list[Event] = list(sockets.poll(timeout))
            if self._stopping and not told:
                told = True
                events.append(Call("stop"))
            effects = core.handle(events, _now())
            for endpoint in effects.redials:
                sockets.redial(endpoint)
            sockets.send(effects.sends)
            for endpoint in effects.hangups:
                sockets.hang_up(endpoint)
            core.sends_dropped = sockets.dropped
            core.sends_waiting_bytes = sockets.waiting
            core.connections_closed = sockets.connections_closed
            if effects.stop is not None:
                return effects.stop

    def stop(self) -> None:
        """End `run` cleanly. May be called from any thread and from signal handlers."""
        self._stopping = True
        self._sockets.wake()


def examine_stopped(config: NameServerConfig, cluster_key: bytes) -> Survivor:
    """Read how far the journal of a stopped name server goes.

    Raises:
        StartError: the name server is running, or its folder cannot be used.
    """
    return _at_journal(config, cluster_key, quorum_recovery.examine)


def go_on_alone(config: NameServerConfig, cluster_key: bytes) -> list[str]:
    """Make a stopped name server the whole group; return the ids that are removed for good.

    Raises:
        StartError: the name server is running, or its folder cannot be used.
    """
    return _at_journal(config, cluster_key, quorum_recovery.go_on_alone)


def _at_journal(
    config: NameServerConfig,
    cluster_key: bytes,
    work: Callable[[str, Collection[str], JournalStore], T],
) -> T:
    check_config(config)
    if not config.data:
        raise StartError("data is empty: name the folder of the raft journal")
    try:
        journal = RocksJournal(Path(config.data), config.id, _mark(cluster_key), create=False)
        try:
            return work(config.id, config.members(), journal)
        finally:
            journal.close()
    except RaftError as error:
        raise _start_error(error) from None


def _now() -> Instant:
    return Instant(time.monotonic(), time.time_ns() // 1_000_000)


def _bound(config: NameServerConfig, endpoints: dict[str, str]) -> NameServerConfig:
    """Return the configuration with the ports that were actually bound, for a group of one."""
    if config.name_servers:
        return config
    alone = NameServerMember(config.id, endpoints["main"], endpoints["raft"])
    return msgspec.structs.replace(config, name_servers=[alone])


def _open_journal(config: NameServerConfig, cluster_key: bytes) -> RocksJournal:
    joins = config.id not in config.members()
    create = config.create or joins
    return RocksJournal(Path(config.data), config.id, _mark(cluster_key), create=create)


def _mark(cluster_key: bytes) -> str:
    """Derive a mark that tells clusters apart without revealing the key."""
    return hmac.new(cluster_key, b"data folder", hashlib.sha256).hexdigest()[:16]


def _start_error(error: RaftError) -> StartError:
    if not isinstance(error, JournalError):
        return StartError(str(error), "BAD_CONFIG")
    code = "NEWER_FORMAT" if "upgrade" in str(error) else "WRONG_DATA_FOLDER"
    return StartError(str(error), code)
