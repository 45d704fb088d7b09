"""The name server's skin: sockets, disk and clocks around the core."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from logboom import __version__
from logboom.metadata.config import (
    NameServerConfig,
    NameServerMember,
    check_config,
    listeners_of,
)
from logboom.metadata.name_server import NameServer
from logboom.metadata.raft import quorum_recovery
from logboom.metadata.raft.journal import RocksJournal
from logboom.metadata.raft.journal_store import JournalError, JournalStore
from logboom.metadata.raft.quorum_recovery import Survivor
from logboom.metadata.raft.raft_config import RaftConfig, RaftError
from logboom.wire.actor import Call, Event, Instant
from logboom.wire.audit_file import AuditFiles
from logboom.wire.cluster_keys import ClusterKeyFile, key_mark, read_cluster_keys
from logboom.wire.connection_limits import ConnectionLimits
from logboom.wire.credentials import known_keys
from logboom.wire.credentials_file import read_node_credentials
from logboom.wire.errors import LogboomError, StartError
from logboom.wire.event_log import EventWriter, log_event, work_for
from logboom.wire.event_table import Plain
from logboom.wire.exposition import Snapshot
from logboom.wire.health import name_server_reasons, name_server_restart_reasons
from logboom.wire.listeners import curve_names, listener_views, may_dial_open
from logboom.wire.log_levels import LogLevels
from logboom.wire.node_pages import NodePages, is_exposed, open_pages, tell_exposed
from logboom.wire.page_server import PageServer
from logboom.wire.private_files import exposed
from logboom.wire.process_figures import ProcessFigures
from logboom.wire.snapshot_desk import SnapshotDesk
from logboom.wire.sockets import Sockets
from logboom.wire.stats import FigureTable

T = TypeVar("T")

FLUSH_MS: Final = 200
"""Time that the last answers get to leave when the node stops."""
KIND: Final = "name-server"
MAX_FRAME_BYTES: Final = 2 * 1024 * 1024
"""Largest frame accepted: metadata requests are small, and snapshots are sent in chunks."""


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
        work_for(config.id, KIND)
        if not config.data:
            raise StartError("data is empty: name the folder of the raft journal")
        listeners = listeners_of(config)
        addresses = {each.name: each.listen for each in listeners}
        callers = ConnectionLimits(config.max_connections_per_address)
        known = read_node_credentials(config.credentials_file, config.id)
        self._sockets = Sockets(
            addresses,
            max_frame_bytes=MAX_FRAME_BYTES,
            callers=callers,
            key_pair=None if known is None else known.key_pair,
            curve=curve_names(listeners),
        )
        self._stopping = False
        self._log_levels = LogLevels()
        self._process = ProcessFigures()
        self._events = EventWriter(config.id, KIND)
        self._desk = SnapshotDesk(self._sockets.wake)
        self._pages: PageServer | None = None
        try:
            self.config = _bound(config, self._sockets.endpoints)
            self._key_file = ClusterKeyFile(config.cluster_key_file, cluster_key)
            keys_changed = self._key_file.has_changed(time.monotonic())
            self._journal = _open_journal(self.config, self._key_file.keys)
            try:
                rng = random.Random(random.SystemRandom().getrandbits(128))
                self.core = NameServer(
                    self.config, self._journal, rng, cluster_key, _now(), raft_config
                )
                if keys_changed:
                    self.core.take_cluster_keys(self._key_file.keys)
                self._sockets.kind_of = self.core.acceptor.kind_of
                self.core.acceptor.is_connected = self._sockets.is_connected
                self.core.acceptor.inspect = self._sockets.inspect
                self._sockets.authenticate = self.core.authenticate
                self._sockets.server_keys = known_keys(self.core.server_keys, known)
                plain = may_dial_open(listeners)
                self._sockets.plain_allowed = lambda _endpoint: plain
                pages = NodePages(
                    config.id,
                    "name server",
                    self._desk,
                    self._ready_reasons,
                    self._restart_reasons,
                )
                first = listeners[0].listen
                self._pages = open_pages(
                    config.metrics_listen,
                    first,
                    pages.page,
                    (config.metrics_tls_cert, config.metrics_tls_key),
                )
                self.core.skin_figures = self._figures
                self.core.stats.histograms["sync"] = self._journal.sync_times
                self.core.auditor.address_of = self._sockets.ip_address_of
                folder = Path(self.config.audit_folder or self.config.data)
                self._audit = (
                    AuditFiles(folder, self.config.id, self.config.audit_files)
                    if self.config.audit
                    else None
                )
            # Ctrl-C included: release what was opened, and let the error pass.
            except BaseException:
                self._close_pages()
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
        """The bound host:port for clients and brokers: of the first such listener."""
        return self._bound_first(for_raft=False)

    @property
    def raft_endpoint(self) -> str:
        """The bound host:port for the other name servers: of the first such listener."""
        return self._bound_first(for_raft=True)

    def _bound_first(self, *, for_raft: bool) -> str:
        listeners = [each for each in listeners_of(self.config) if each.for_raft is for_raft]
        return self._sockets.endpoints[listeners[0].name]

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until `stop`; `ready` is called once the ports are served.

        Raises:
            LogboomError: the node has to end, because its journal cannot be trusted (R9) or its
                peers hold another cluster key.
        """
        work_for(self.config.id, KIND)
        reason: str | None = "the name server ended by a fault"
        listeners: list[Plain] = [*self._sockets.endpoints.values()]
        log_event("node_started", kind=KIND, version=__version__, listeners=listeners)
        tell_exposed(Path(self.config.data))
        try:
            if self._pages is not None:
                self._pages.start()
            if ready is not None:
                ready()
            reason = self._serve()
        finally:
            self._events.flush()
            self._close_pages()
            self._log_levels.follow({})
            self._sockets.close(FLUSH_MS if not reason else 0)
            if self._audit is not None:
                self._audit.close(self.core.auditor.log)
            if not reason:
                self._journal.close()
        if reason:
            log_event("node_failed", code="INTERNAL", text=reason)
            raise LogboomError(reason, "INTERNAL")
        log_event("node_stopped")

    def abandon(self) -> None:
        """Release ports and folder of a server that never ran."""
        self._close_pages()
        self._sockets.close()
        self._journal.close()
        if self._audit is not None:
            self._audit.close(self.core.auditor.log)

    @property
    def metrics_endpoint(self) -> str:
        """The host:port that is bound for metrics and health; "" if none is."""
        return "" if self._pages is None else self._pages.endpoint

    def _close_pages(self) -> None:
        if self._pages is not None:
            self._pages.close()

    def _figures(self) -> FigureTable:
        """Return the figures of connections and process."""
        return {
            **self._process.read(),
            **self._sockets.figures(),
            **self._key_file.figures(),
            "metrics_endpoint": self.metrics_endpoint,
            "metrics_exposed": int(is_exposed(self.metrics_endpoint, self.config.credentials_file)),
            "data_exposed": exposed(Path(self.config.data)),
            "scrape_hold_ms": self._desk.longest_s * 1000,
            "scrape_work_ms": self._desk.longest_work_s * 1000,
        }

    def _begin_snapshot(self) -> Iterator[FigureTable]:
        yield self.core.figures()

    def _snapshot(self, figures: FigureTable) -> Snapshot:
        info = {
            "version": __version__,
            "kind": "name-server",
            "node": self.config.id,
            "cluster": self.core.cluster.cluster_id,
        }
        copies = {name: each.copy() for name, each in self.core.stats.histograms.items()}
        return Snapshot("name-server", info, figures, copies)

    def _ready_reasons(self, snapshot: Snapshot) -> list[str]:
        return name_server_reasons(snapshot.figures, stopping=self._stopping)

    def _restart_reasons(self) -> list[str]:
        """Return why it should not be stopped now; called by a thread of the metrics port."""
        return name_server_restart_reasons(self.config.id, *self.core.standing())

    def _serve(self) -> str:
        """Run the loop until the core ends it; return the reason, "" if it was asked to stop."""
        core, sockets = self.core, self._sockets
        turn_times = core.stats.histograms["loop_turn"]
        told = False
        began: float | None = None
        while True:
            if began is not None:
                worked_s = time.monotonic() - began
                turn_times.add(worked_s)
                core.stats.seconds["loop_busy_seconds"] += worked_s
                self._desk.work(self._begin_snapshot, self._snapshot)
            deadline = core.deadline()
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            if self._desk.under_way:
                timeout = 0.0
            events: list[Event] = list(sockets.poll(timeout))
            began = time.monotonic()
            if self._stopping and not told:
                told = True
                events.append(Call("stop"))
                log_event("node_stopping")
            now = _now()
            if self._key_file.has_changed(now.mono):
                core.take_cluster_keys(self._key_file.keys)
                self._journal.name_cluster(key_mark(self._key_file.keys[0]))
            effects = core.handle(events, now)
            if self._audit is not None:
                self._audit.write(core.auditor.log, now)
            else:
                core.auditor.log.drop()
            for endpoint in effects.redials:
                sockets.redial(endpoint)
            sockets.send(effects.sends)
            core.sent(time.monotonic())
            for endpoint in effects.hangups:
                sockets.hang_up(endpoint)
            for peer in effects.kicks:
                sockets.kick(peer)
            self._log_levels.follow(core.settings.logger_levels)
            core.sends_dropped = sockets.dropped
            core.sends_waiting_bytes = sockets.waiting
            core.connections_closed = sockets.connections_closed
            self._events.write(effects.notes, now)
            if effects.stop is not None:
                return effects.stop

    def stop(self) -> None:
        """End `run` cleanly. May be called from any thread and from signal handlers."""
        self._stopping = True
        self._sockets.wake()


def examine_stopped(config: NameServerConfig) -> Survivor:
    """Read how far the journal of a stopped name server goes.

    Raises:
        StartError: the name server is running, or its folder cannot be used.
    """
    return _at_journal(config, quorum_recovery.examine)


def go_on_alone(config: NameServerConfig) -> list[str]:
    """Make a stopped name server the whole group; return the ids that are removed for good.

    Raises:
        StartError: the name server is running, or its folder cannot be used.
    """
    return _at_journal(config, quorum_recovery.go_on_alone)


def _at_journal(
    config: NameServerConfig,
    work: Callable[[str, Collection[str], JournalStore], T],
) -> T:
    check_config(config)
    if not config.data:
        raise StartError("data is empty: name the folder of the raft journal")
    try:
        mark, *others = map(key_mark, read_cluster_keys(config.cluster_key_file))
        journal = RocksJournal(Path(config.data), config.id, mark, create=False, former=others)
        try:
            return work(config.id, config.members(), journal)
        finally:
            journal.close()
    except RaftError as error:
        raise _start_error(error) from None


def _now() -> Instant:
    return Instant(time.monotonic(), time.time_ns() // 1_000_000)


def _bound(config: NameServerConfig, endpoints: dict[str, str]) -> NameServerConfig:
    """Return the configuration with the ports that were actually bound.

    Without `name_servers` this is a group of one.
    """
    views = listener_views(config.listeners, endpoints)
    listeners = [
        msgspec.structs.replace(each, advertise=view.endpoint)
        for each, view in zip(config.listeners, views, strict=True)
    ]
    config = msgspec.structs.replace(config, listeners=listeners)
    if config.name_servers:
        return config
    main, raft = (
        listener_views(
            [each for each in listeners_of(config) if each.for_raft is for_raft], endpoints
        )
        for for_raft in (False, True)
    )
    alone = NameServerMember(config.id, main[0].endpoint, raft[0].endpoint)
    return msgspec.structs.replace(config, name_servers=[alone])


def _open_journal(config: NameServerConfig, keys: Sequence[bytes]) -> RocksJournal:
    joins = config.id not in config.members()
    mark, *others = map(key_mark, keys)
    return RocksJournal(
        Path(config.data), config.id, mark, create=config.create, joins=joins, former=others
    )


def _start_error(error: RaftError) -> StartError:
    if not isinstance(error, JournalError):
        return StartError(str(error), "BAD_CONFIG")
    code = "NEWER_FORMAT" if "upgrade" in str(error) else "WRONG_DATA_FOLDER"
    return StartError(str(error), code)
