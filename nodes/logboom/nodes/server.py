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
import logging
import random
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from logboom.nodes.broker import Broker
from logboom.nodes.config import BrokerConfig, check_config, fill_advertised
from logboom.nodes.disk.committer import Committer
from logboom.nodes.disk.rocks_storage import RocksStorage, has_room
from logboom.nodes.subscriptions.entry_filter import load
from logboom.wire.actor import Call, Effects, Event, Instant, SyncFailed
from logboom.wire.errors import DataDamaged, StartError
from logboom.wire.sockets import Sockets

BUSY_POLL: Final = 0.05
"""Seconds between two checks while accepted connections are not read."""
RECLAIM_S: Final = 10.0
"""Seconds between two compactions of ranges that retention has removed."""
ROOM_POLL: Final = 0.5
"""Seconds between two checks for room while the file system is completely full."""
LAST_WORDS_MS: Final = 500
"""Milliseconds that the last answers may take to be sent."""
_log = logging.getLogger("logboom.nodes")


class BrokerProcess:
    """A broker with real sockets, disk and clocks. One thread calls `run`."""

    def __init__(self, config: BrokerConfig, cluster_key: bytes) -> None:
        """Bind the port and open the data folder.

        Raises:
            StartError: PORT_IN_USE, WRONG_DATA_FOLDER, NEWER_FORMAT or BAD_CONFIG, with a text of
                one line.
        """
        check_config(config)
        self._plug_ins = load(config.dispatch_filters)
        if not config.data:
            raise StartError("no `data` in the config: name a folder for this broker's store")
        self._config = config
        self._cluster_key = cluster_key
        self._stopping = False
        self._take_up(config.listen)

    def _take_up(self, listen: str) -> None:
        """Bind the port, open the store and create a core on it.

        Raises:
            StartError: see `__init__`.
        """
        self._sockets = Sockets({"main": listen})
        self._endpoint = self._sockets.endpoints["main"]
        try:
            self._storage = RocksStorage(Path(self._config.data), self._config.id)
            self._config = fill_advertised(self._config, self._endpoint)
            self._core = self._make_core()
        # This covers Ctrl-C too: the port is released, and the exception continues.
        except BaseException:
            self._sockets.close()
            raise
        self._sockets.kind_of = self._core.acceptor.kind_of
        self._asked_to_stop = False
        self._synced_here = False
        """True if the last turn was synced in this thread."""
        self._settling = False
        """True in the turn after that, which takes nothing but the sync."""
        self._suspect = self._storage.suspect
        self._done = threading.Event()

    def _make_core(self) -> Broker:
        """Create a core on the store, or on a new one if the old one cannot be read at all."""

        def core() -> Broker:
            rng = random.Random(secrets.randbits(128))
            incarnation = secrets.token_hex(16)
            return Broker(
                self._config, self._storage, rng, incarnation, self._cluster_key, self._plug_ins
            )

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
        """The host:port that is bound for clients and other brokers."""
        return self._endpoint

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until `stop`. `ready` is called once the port is served.

        Raises:
            LogboomError: the node had to end, since the disk failed, the data belongs to another
                cluster, or every name server refuses this broker.
        """
        while self._run(ready):
            ready = None
            if not self._await_room():
                return

    def _run(self, ready: Callable[[], None] | None) -> bool:
        """Serve until the node ends. Return True if it ends only until its file system has room."""
        committer = Committer(self._storage, self._sockets.wake)
        janitor = threading.Thread(target=self._reclaim, name="logboom-reclaim", daemon=True)
        janitor.start()
        _log.info("broker %s listens on %s", self._config.id, self.endpoint)
        try:
            if ready is not None:
                ready()
            self._serve(committer)
        except DataDamaged:
            if not self._storage.out_of_room:
                raise
        finally:
            self._done.set()
            committer.close()
            janitor.join()
            self._sockets.close(flush_ms=LAST_WORDS_MS)
            self._storage.close()
        return self._storage.out_of_room

    def _await_room(self) -> bool:
        """Start again once the file system has room. Return False if `stop` was called first."""
        folder = self._storage.folder.path
        _log.error(
            "the file system of %s is full to the last byte: this broker serves nothing until there is "
            "room again, and other brokers take over the queues that they hold too; free some space",
            folder,
        )
        # Iterators that the core has left would keep the old database open.
        del self._core
        gc.collect()
        while not self._stopping:
            # Nothing reports free space, so it has to be polled.
            time.sleep(ROOM_POLL)
            if not has_room(folder):
                continue
            try:
                self._take_up(self._endpoint)
            except (StartError, OSError) as error:
                _log.warning("the store cannot be opened yet: %s", error)
                continue
            _log.info("the file system of %s has room again", folder)
            return True
        return False

    def stop(self) -> None:
        """End `run` in an orderly way.

        This may be called from any thread and from signal handlers.
        """
        self._stopping = True
        self._sockets.wake()

    def _serve(self, committer: Committer) -> None:
        effects = self._handle([])
        while not self._carry_out(effects, committer):
            events = self._wait(committer)
            for event in events:
                if isinstance(event, SyncFailed):
                    raise DataDamaged(event.reason)
            effects = self._handle(events)

    def _handle(self, events: list[Event]) -> Effects:
        try:
            return self._core.handle(events, _instant())
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
        if committer.ended:
            timeout = 0.0
        events: list[Event] = [*self._sockets.poll(timeout, listening=not behind)]
        events += committer.take()
        if self._stopping and not self._asked_to_stop:
            self._asked_to_stop = True
            events.append(Call("stop"))
        return events

    def _carry_out(self, effects: Effects, committer: Committer) -> bool:
        """Carry out the effects of a turn. Return True if the node ends."""
        sockets = self._sockets
        self._check_cluster()
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
        self._core.sends_dropped = sockets.dropped
        self._core.sends_waiting_bytes = sockets.waiting
        self._core.connections_closed = sockets.connections_closed
        for endpoint in effects.hangups:
            sockets.hang_up(endpoint)
        if sync_here:
            committer.sync_here(effects.token, size)
            self._synced_here = True
        for note in effects.notes:
            _log.log(logging.getLevelNamesMapping()[note.severity.upper()], "%s", note.text)
        if effects.stop:
            raise StartError(effects.stop)
        if self._suspect and self._core.registered:
            # The name servers know of it now, and have taken this broker out of the ISRs.
            self._suspect = False
            self._storage.absolve()
        return effects.stop is not None

    def _check_cluster(self) -> None:
        """Check that the data belongs to this cluster, before a turn takes effect."""
        cluster_id = self._core.cluster_id
        if cluster_id and self._storage.folder.cluster_id != cluster_id:
            self._storage.folder.bind(cluster_id)

    def _reclaim(self) -> None:
        while not self._done.wait(RECLAIM_S):
            self._storage.reclaim()


def _instant() -> Instant:
    return Instant(time.monotonic(), time.time_ns() // 1_000_000)
