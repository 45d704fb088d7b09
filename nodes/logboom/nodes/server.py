"""The broker's skin: sockets, disk, clocks and signals around the core.

Each turn it polls, calls `handle`, writes, starts the sync, redials, sends, and closes connections
(`wire.actor`). The committer thread syncs in parallel and wakes the loop; a short sync is done
here, after everything else. While too much is unsynced, or the disk is behind with full write
buffers, only the connections that this broker opened are read. Its heartbeats and its view of the
cluster therefore stay alive, while the data of others waits in the sockets.

If the file system is completely full, the store ends and not the process. The core has counted on
writes that failed, so both are discarded, and created again as by a restart once there is room.
"""

from __future__ import annotations

import gc
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from logboom import __version__
from logboom.nodes.body_worker import opening_beside
from logboom.nodes.broker import Broker
from logboom.nodes.config import BrokerConfig, check_config, fill_advertised, listeners_of
from logboom.nodes.disk.committer import Committer
from logboom.nodes.disk.rocks_storage import RocksStorage, has_room
from logboom.nodes.subscriptions.entry_filter import load
from logboom.nodes.turn import Figures
from logboom.wire.actor import Call, Effects, Event, Instant, SyncFailed, note
from logboom.wire.audit_file import AuditFiles
from logboom.wire.cluster_keys import ClusterKeyFile
from logboom.wire.connection_limits import ConnectionLimits
from logboom.wire.credentials import known_keys
from logboom.wire.credentials_file import read_node_credentials
from logboom.wire.errors import DataDamaged, LogboomError, StartError
from logboom.wire.event_log import EventWriter, log_event, work_for
from logboom.wire.event_table import Plain
from logboom.wire.exposition import Snapshot
from logboom.wire.health import BrokerReadiness, broker_restart_reasons
from logboom.wire.listeners import curve_names, may_dial_open
from logboom.wire.log_levels import LogLevels
from logboom.wire.messages import FRAME_ROOM_BYTES
from logboom.wire.node_pages import NodePages, is_exposed, open_pages
from logboom.wire.private_files import exposed
from logboom.wire.process_figures import ProcessFigures
from logboom.wire.restart_check import restart_risks
from logboom.wire.snapshot_desk import SnapshotDesk
from logboom.wire.sockets import Sockets
from logboom.wire.stats import FigureTable, Histogram
from logboom.wire.view import NameServerView

BUSY_POLL: Final = 0.05
"""Seconds between two checks while accepted connections are not read."""
RECLAIM_S: Final = 10.0
"""Seconds between two compactions of ranges that retention has removed."""
ROOM_POLL: Final = 0.5
"""Seconds between two checks for room while the file system is completely full."""
LAST_WORDS_MS: Final = 500
"""Milliseconds that the last answers may take to be sent."""
KIND: Final = "broker"


class BrokerProcess:
    """A broker with real sockets, disk and clocks. One thread calls `run`."""

    def __init__(self, config: BrokerConfig, cluster_key: bytes) -> None:
        """Bind the ports and open the data folder.

        Raises:
            StartError: PORT_IN_USE, WRONG_DATA_FOLDER, NEWER_FORMAT or BAD_CONFIG, with a text of
                one line.
        """
        check_config(config)
        work_for(config.id, KIND)
        self._plug_ins = load(config.dispatch_filters)
        if not config.data:
            raise StartError("no `data` in the config: name a folder for this broker's store")
        self._config = config
        self._key_file = ClusterKeyFile(config.cluster_key_file, cluster_key)
        self._credentials = read_node_credentials(config.credentials_file, config.id)
        self._stopping = False
        self._log_levels = LogLevels()
        self._process = ProcessFigures()
        self._shown: Broker | None = None
        """The core, for threads of the metrics port; None while there is none."""
        self._desk = SnapshotDesk(lambda: self._sockets.wake())
        self._readiness = BrokerReadiness()
        self._committer: Committer | None = None
        self._events = EventWriter(config.id, KIND)
        self._now = _instant()
        """When this turn began."""
        listeners = listeners_of(config)
        pages = NodePages(
            config.id, "broker", self._desk, self._ready_reasons, self._restart_reasons
        )
        self._pages = open_pages(
            config.metrics_listen,
            listeners[0].listen,
            pages.page,
            (config.metrics_tls_cert, config.metrics_tls_key),
        )
        try:
            self._take_up({each.name: each.listen for each in listeners})
        # This covers Ctrl-C too: the port is released, and the exception continues.
        except BaseException:
            self._close_pages()
            raise

    @property
    def metrics_endpoint(self) -> str:
        """The host:port that is bound for metrics and health; "" if none is."""
        return "" if self._pages is None else self._pages.endpoint

    def _close_pages(self) -> None:
        if self._pages is not None:
            self._pages.close()

    def _take_up(self, addresses: Mapping[str, str]) -> None:
        """Bind the listeners' ports, open the store and create a core on it.

        Raises:
            StartError: see `__init__`.
        """
        known = self._credentials
        self._sockets = Sockets(
            addresses,
            key_pair=None if known is None else known.key_pair,
            curve=curve_names(listeners_of(self._config)),
            max_frame_bytes=self._config.max_request_bytes + 2 * FRAME_ROOM_BYTES,
            callers=ConnectionLimits(self._config.max_connections_per_address),
        )
        self._bound = dict(self._sockets.endpoints)
        try:
            self._storage = RocksStorage(Path(self._config.data), self._config.id)
            self._config = fill_advertised(self._config, self._bound)
            self._core = self._make_core()
            folder = Path(self._config.audit_folder or self._config.data)
            self._audit = (
                AuditFiles(folder, self._config.id, self._config.audit_files)
                if self._config.audit
                else None
            )
        # This covers Ctrl-C too: the port is released, and the exception continues.
        except BaseException:
            self._sockets.close()
            raise
        self._sockets.kind_of = self._core.acceptor.kind_of
        self._core.acceptor.is_connected = self._sockets.is_connected
        self._core.acceptor.inspect = self._sockets.inspect
        self._sockets.authenticate = self._core.authenticate
        self._sockets.server_keys = known_keys(self._core.server_keys, known)
        plain = may_dial_open(listeners_of(self._config))
        self._sockets.plain_allowed = lambda _endpoint: plain
        self._shown = self._core
        self._core.skin_figures = self._figures
        self._turn_times = self._core.stats.histograms["loop_turn"]
        self._core.auditor.address_of = self._sockets.ip_address_of
        self._asked_to_stop = False
        self._synced_here = False
        """True if the last turn was synced in this thread."""
        self._settling = False
        """True in the turn after that, which takes nothing but the sync."""
        self._suspect = self._storage.suspect
        self._remembered: list[NameServerView] = self._core.routes.name_servers
        """The name servers that the folder knows, as the metadata had them."""
        self._done = threading.Event()

    def _make_core(self) -> Broker:
        """Create a core on the store, or on a new one if the old one cannot be read at all."""

        def core() -> Broker:
            rng = random.Random(secrets.randbits(128))
            incarnation = secrets.token_hex(16)
            keys = self._key_file.keys
            made = Broker(self._config, self._storage, rng, incarnation, keys[0], self._plug_ins)
            made.parts.take_cluster_keys(keys)
            return made

        made: Broker | None = None
        try:
            made = core()
        except DataDamaged as error:
            self._storage.condemn(error.text)
        if made is None:
            # Iterators that the first attempt has left would keep the old database open.
            gc.collect()
            self._storage.close()
            self._storage = RocksStorage(Path(self._config.data), self._config.id)
            made = core()
        made.stores_set_aside = len(self._storage.folder.asides())
        return made

    @property
    def endpoint(self) -> str:
        """The host:port that is bound for clients and other brokers: of the first listener."""
        return next(iter(self._bound.values()))

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until `stop`. `ready` is called once the port is served.

        Raises:
            LogboomError: the node had to end, since the disk failed, the data belongs to another
                cluster, or every name server refuses this broker.
        """
        work_for(self._config.id, KIND)
        if self._pages is not None:
            self._pages.start()
        try:
            with opening_beside():
                while self._run(ready):
                    ready = None
                    if not self._await_room():
                        break
        except LogboomError as error:
            log_event("node_failed", code=error.code, text=error.text)
            raise
        finally:
            self._close_pages()
        log_event("node_stopped")

    def _run(self, ready: Callable[[], None] | None) -> bool:
        """Serve until the node ends. Return True if it ends only until its file system has room."""
        committer = Committer(self._storage, self._sockets.wake)
        janitor = threading.Thread(target=self._reclaim, name="logboom-reclaim", daemon=True)
        janitor.start()
        listeners: list[Plain] = [*self._bound.values()]
        log_event("node_started", kind=KIND, version=__version__, listeners=listeners)
        try:
            if ready is not None:
                ready()
            self._serve(committer)
        except DataDamaged:
            if not self._storage.out_of_room:
                raise
        finally:
            self._done.set()
            self._events.flush()
            self._log_levels.follow({})
            committer.close()
            janitor.join()
            self._sockets.close(flush_ms=LAST_WORDS_MS)
            self._storage.close()
            if self._audit is not None:
                self._audit.close(self._core.auditor.log)
        return self._storage.out_of_room

    def _await_room(self) -> bool:
        """Start again once the file system has room. Return False if `stop` was called first."""
        folder = self._storage.folder.path
        log_event(
            "store_full",
            folder=str(folder),
            text="the file system is full to the last byte: this broker serves nothing until there is "
            "room again, and other brokers take over the queues that they hold too; free some space",
        )
        # Iterators that the core has left would keep the old database open.
        self._shown = None
        del self._core
        gc.collect()
        while not self._stopping:
            # Nothing reports free space, so it has to be polled.
            time.sleep(ROOM_POLL)
            self._desk.work(self._figures_without_room, self._snapshot)
            if not has_room(folder):
                continue
            try:
                self._take_up(self._bound)
            except (StartError, OSError) as error:
                self._events.write([note("store_not_opened", error=str(error))], _instant())
                continue
            log_event("store_reopened", folder=str(folder))
            return True
        return False

    def stop(self) -> None:
        """End `run` in an orderly way.

        This may be called from any thread and from signal handlers.
        """
        self._stopping = True
        self._sockets.wake()

    def _figures(self) -> FigureTable:
        """Return the figures of connections, store and process."""
        unsynced = self._committer.unsynced if self._committer is not None else 0
        return {
            **self._process.read(),
            **self._sockets.figures(),
            **self._storage.figures(),
            **self._key_file.figures(),
            "unsynced_bytes": unsynced,
            "metrics_endpoint": self.metrics_endpoint,
            "metrics_exposed": int(
                is_exposed(self.metrics_endpoint, self._config.credentials_file)
            ),
            "data_exposed": exposed(Path(self._config.data)),
            "scrape_hold_ms": self._desk.longest_s * 1000,
            "scrape_work_ms": self._desk.longest_work_s * 1000,
        }

    def _begin_snapshot(self) -> Iterator[Figures]:
        return self._core.figure_steps(time.monotonic())

    def _figures_without_room(self) -> Iterator[Figures]:
        """Yield what is known while the file system is full to the last byte."""
        yield {**self._process.read(), "registered": 0, "lease": 0, "disk_full": 1}

    def _snapshot(self, figures: FigureTable) -> Snapshot:
        core = self._shown
        histograms: Mapping[str, Histogram] = {} if core is None else core.stats.histograms
        info = {
            "version": __version__,
            "kind": "broker",
            "node": self._config.id,
            "cluster": self._storage.folder.cluster_id,
        }
        copies = {name: each.copy() for name, each in histograms.items()}
        return Snapshot("broker", info, figures, copies)

    def _ready_reasons(self, snapshot: Snapshot) -> list[str]:
        core = self._shown
        mode = "active" if core is None else core.mode
        return self._readiness.reasons(snapshot.figures, stopping=self._stopping, mode=mode)

    def _restart_reasons(self) -> list[str]:
        """Return why it should not be stopped now; called by a thread of the metrics port."""
        core = self._shown
        if core is None:
            return []
        risks = restart_risks(core.view(), self._config.id)
        return broker_restart_reasons(risks, registered=core.registered)

    def _serve(self, committer: Committer) -> None:
        self._committer = committer
        began = time.monotonic()
        effects = self._handle([])
        while not self._carry_out(effects, committer):
            worked_s = time.monotonic() - began
            self._turn_times.add(worked_s)
            self._core.stats.seconds["loop_busy_seconds"] += worked_s
            self._desk.work(self._begin_snapshot, self._snapshot)
            events = self._wait(committer)
            began = time.monotonic()
            for event in events:
                if isinstance(event, SyncFailed):
                    raise DataDamaged(event.reason)
            effects = self._handle(events)

    def _handle(self, events: list[Event]) -> Effects:
        self._now = _instant()
        if self._key_file.has_changed(self._now.mono):
            self._core.parts.take_cluster_keys(self._key_file.keys)
        try:
            return self._core.handle(events, self._now)
        except DataDamaged as error:
            # Damage that no queue can repair would end every start in the same way (Q14).
            self._storage.condemn(error.text)
            raise

    def _wait(self, committer: Committer) -> list[Event]:
        """Return the events of the next turn: messages, completed syncs, a request to stop."""
        self._settling, self._synced_here = self._synced_here, False
        if self._settling:
            # Those who wait for the sync do not wait for a poll too.
            return [*committer.take()]
        deadline = self._core.deadline()
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        behind = committer.unsynced > self._config.max_unsynced_bytes or self._storage.congested()
        if behind:
            timeout = BUSY_POLL if timeout is None else min(timeout, BUSY_POLL)
        if committer.ended or self._desk.under_way:
            timeout = 0.0
        events: list[Event] = [*self._sockets.poll(timeout, listening=not behind)]
        events += committer.take()
        if self._stopping and not self._asked_to_stop:
            self._asked_to_stop = True
            events.append(Call("stop"))
            log_event("node_stopping")
        return events

    def _carry_out(self, effects: Effects, committer: Committer) -> bool:
        """Carry out the effects of a turn. Return True if the node ends."""
        sockets = self._sockets
        self._check_cluster()
        if self._audit is not None:
            # Before the answers leave.
            self._audit.write(self._core.auditor.log, self._now)
        else:
            self._core.auditor.log.drop()
        size = 0
        if effects.writes is not None and len(effects.writes):
            self._storage.write(effects.writes)
            size = effects.writes.size
        # What the turn sends does not wait for a sync in this thread.
        sync_here = bool(effects.token) and not self._settling and committer.may_sync_here(size)
        if effects.token and not sync_here:
            committer.begin(effects.token, size)
        for endpoint in effects.redials:
            sockets.redial(endpoint)
        sockets.send(effects.sends)
        self._core.sent(time.monotonic())
        self._log_levels.follow(self._core.context.settings.logger_levels)
        self._core.sends_dropped = sockets.dropped
        self._core.sends_waiting_bytes = sockets.waiting
        self._core.connections_closed = sockets.connections_closed
        for endpoint in effects.hangups:
            sockets.hang_up(endpoint)
        for peer in effects.kicks:
            sockets.kick(peer)
        if sync_here:
            committer.sync_here(effects.token, size)
            self._synced_here = True
        self._events.write(effects.notes, self._now)
        if effects.stop:
            raise StartError(effects.stop)
        if self._suspect and self._core.registered:
            # The name servers know of it now, and have taken this broker out of the ISRs.
            self._suspect = False
            self._storage.absolve()
        return effects.stop is not None

    def _check_cluster(self) -> None:
        """Check that the data belongs to this cluster, before a turn takes effect, and note where it
        is: a start from an older configuration finds it."""
        cluster_id = self._core.cluster_id
        if cluster_id and self._storage.folder.cluster_id != cluster_id:
            self._storage.folder.bind(cluster_id)
        servers = self._core.routes.name_servers
        if servers is not self._remembered:
            self._remembered = servers
            self._storage.folder.remember(self._core.known_servers())

    def _reclaim(self) -> None:
        work_for(self._config.id, KIND)
        while not self._done.wait(RECLAIM_S):
            self._storage.reclaim()


def _instant() -> Instant:
    return Instant(time.monotonic(), time.time_ns() // 1_000_000)
