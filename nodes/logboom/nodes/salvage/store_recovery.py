"""Inspection of a broker's data folder, and recovery from stores that were set aside in it.

The broker is stopped meanwhile. The stores that were set aside are not changed. What is recovered
is written to the current store, only to queues that are empty there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from logboom.nodes.disk.data_folder import FORMAT
from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.log.keys import Position, log_key
from logboom.nodes.replica.replica import QueueKey
from logboom.nodes.salvage.found_queues import EntryChain, FoundEntry, FoundQueues, find_chain
from logboom.nodes.salvage.journal_segments import SegmentReport
from logboom.nodes.salvage.log_rewriter import find_kept_copies, rewrite_log
from logboom.nodes.salvage.store_files import StoreFiles
from logboom.wire.errors import StartError
from logboom.wire.view import TopicView

_IDENTITY: Final = "identity.json"
_TODAY: Final = "db"
SYNC_BYTES: Final = 64 * 1024 * 1024
SPARE: Final = 64 * 1024 * 1024
"""Bytes that are left free in addition to what is written."""

Progress = Callable[[int], None]
"""A callback that gets the bytes processed, repeatedly."""


class StoreFolder(NamedTuple):
    """A broker's data folder and its stores."""

    path: Path
    broker: str
    cluster: str
    """The cluster's id; "" if the broker never met one."""
    format: int
    today: Path
    """The store that the broker uses."""
    asides: list[Path]
    """The selected stores that were set aside as damaged, oldest first."""
    stores: list[Path]
    """The stores to inspect."""
    given_up: bool
    """True if the broker found `today` damaged while it ran; its next start sets it aside."""

    @property
    def size(self) -> int:
        """Size of these stores."""
        return sum(file.stat().st_size for store in self.stores for file in store.iterdir())


def read_store_folder(path: Path) -> StoreFolder:
    """Read a broker's data folder, given its path or that of one store in it, to be used alone.

    Raises:
        StartError: it is not a broker's data folder, or that of a newer program.
    """
    home, asides = path, _asides(path)
    if not (path / _IDENTITY).exists() and (path.absolute().parent / _IDENTITY).exists():
        home = path.absolute().parent
        asides = [] if path.name == _TODAY else [path]
    try:
        identity = json.loads((home / _IDENTITY).read_bytes())
        broker, version = str(identity["node"]), int(identity["format"])
        cluster = str(identity.get("cluster", ""))
    except (OSError, ValueError, KeyError, TypeError):
        text = f"{path} is no broker's data folder, since {_IDENTITY} is not there or not whole"
        raise StartError(f"{text}: name the folder that `data` is set to") from None
    if version > FORMAT:
        text = f"{home} has format {version}, this version reads up to {FORMAT}"
        raise StartError(f"{text}: use a newer logboom", "NEWER_FORMAT")
    today = home / _TODAY
    stores = [path] if home != path else [today, *asides]
    stores = [store for store in stores if store.is_dir()]
    if not stores:
        raise StartError(f"{path} holds no store: name the `data` folder of a broker")
    given_up = (home / "condemned").exists()
    return StoreFolder(home, broker, cluster, version, today, asides, stores, given_up)


def _asides(path: Path) -> list[Path]:
    """List the stores that were set aside, oldest first."""
    return sorted(path.glob("damaged-*"), key=lambda aside: (len(aside.name), aside.name))


class StoreReport(NamedTuple):
    """The contents of one store."""

    name: str
    store_id: str
    bytes: int
    queues: dict[QueueKey, EntryChain]
    torn: bool
    """True if its newest writes are not all readable."""
    journal: list[SegmentReport]
    """The segments of its journal, oldest first."""


def inspect(folder: StoreFolder, progress: Progress) -> list[StoreReport]:
    """Return what each store of the folder holds, the current one first.

    Raises:
        StartError: a file cannot be opened.
    """
    found, done = [], 0
    for path in folder.stores:
        with StoreFiles([path]) as files:
            finds = _find(files, progress, done)
            done += files.size
            chains = {key: find_chain(find) for key, find in sorted(finds.queues.items())}
            name = ", ".join(sorted(finds.store_ids)) or "unknown"
            found.append(
                StoreReport(path.name, name, files.size, chains, finds.torn, files.segments)
            )
    return found


def _find(files: StoreFiles, progress: Progress, done: int = 0) -> FoundQueues:
    def read(size: int) -> None:
        nonlocal done
        done += size
        progress(done)

    return files.find(read)


class QueuePlan(NamedTuple):
    """The plan for one queue."""

    key: QueueKey
    topic: str
    """The topic's name; "" if the cluster has no such topic."""
    chain: EntryChain
    left: str
    """Why it is not recovered; "" if it is."""
    beyond: tuple[int, int]
    """Messages kept by compaction before the log's start: those recovered, and those lost."""


class RecoveryPlan:
    """The plan of a recovery. Its files are open until `close`."""

    def __init__(
        self, folder: StoreFolder, topics: Mapping[int, TopicView], progress: Progress
    ) -> None:
        """Read everything.

        Args:
            folder: the folder whose set-aside stores are read.
            topics: the topics of the cluster, by id.
            progress: gets the bytes that were read.

        Raises:
            StartError: there is nothing to recover from, or a file cannot be opened.
        """
        self.folder = folder
        self._known = _asides(folder.path)
        self._topics = topics
        sources = [*folder.asides, *([folder.today] if folder.given_up else [])]
        if not sources:
            raise StartError(
                f"{folder.path} holds no store that was set aside, so there is nothing to recover: "
                "a broker that finds its store damaged keeps it there as damaged-1"
            )
        self._files = StoreFiles(sources)
        try:
            self._finds = _find(self._files, progress)
            today = {} if folder.given_up else _ends(folder.today)
        # Ctrl-C included: close the files, and let the error pass.
        except BaseException:
            self._files.close()
            raise
        self.queues = [
            QueuePlan(
                key,
                *_judged(key, chain, folder.broker, topics, today),
                self._finds.queues[key].beyond(chain.start) if self._compacts(key) else (0, 0),
            )
            for key, chain in sorted(
                (key, find_chain(find)) for key, find in self._finds.queues.items()
            )
        ]

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._files.close()

    @property
    def wanted(self) -> list[QueuePlan]:
        """The queues that are recovered."""
        return [queue for queue in self.queues if not queue.left]

    @property
    def torn(self) -> bool:
        """True if the newest writes are not all readable: queues may have been longer than found."""
        return self._finds.torn

    @property
    def size(self) -> int:
        """Size of everything that is recovered."""
        return sum(queue.chain.size for queue in self.wanted)

    def carry_out(self, progress: Progress) -> None:
        """Write what is recovered to the current store, synced on return.

        After a crash it starts over, queue by queue.

        Raises:
            StartError: the broker is running, the disk lacks space, or the current store is damaged
                too.
            DataDamaged: the disk refuses, or an intact entry is no longer readable.
        """
        size = self.size
        space = os.statvfs(self.folder.path)
        free = space.f_bavail * space.f_frsize
        if free < size + SPARE:
            text = f"{size} bytes come back, but {free} are free in {self.folder.path}"
            raise StartError(f"{text}: free some first; nothing was changed")
        with closing(RocksStorage(self.folder.path, self.folder.broker)) as storage:
            # Opening has set aside a store that was given up; its files are open here nevertheless.
            if len(_asides(self.folder.path)) != len(self._known) + self.folder.given_up:
                text = "the store of today was damaged too and has just been set aside"
                raise StartError(f"{text}: run the command again, to recover from it as well")
            done = unsynced = 0
            for queue in self.wanted:
                kept = None
                if self._compacts(queue.key):
                    find = self._finds.queues[queue.key]
                    kept = find_kept_copies(find, queue.chain.start, self._files.value)
                for writes in rewrite_log(queue.key, queue.chain, self._reader(queue.key), kept):
                    storage.write(writes)
                    done, unsynced = done + writes.size, unsynced + writes.size
                    progress(min(done, size))
                    if unsynced >= SYNC_BYTES:
                        storage.sync()
                        unsynced = 0
            storage.sync()

    def _compacts(self, key: QueueKey) -> bool:
        topic = self._topics.get(key[0])
        return topic is not None and topic.config.compaction

    def _reader(self, key: QueueKey) -> Callable[[Position, FoundEntry], bytes]:
        return lambda place, held: self._finds.entry(log_key(*key, *place), held.value)


def _ends(today: Path) -> dict[QueueKey, Position]:
    """Return the ends of queues with content in the current store, except unfinished recoveries."""
    if not today.is_dir():
        return {}
    with StoreFiles([today]) as files:
        finds = files.find(lambda _size: None)
    return {
        key: find_chain(find).end
        for key, find in finds.queues.items()
        if not find.under_way and find_chain(find).end > Position(0)
    }


def _judged(
    key: QueueKey,
    chain: EntryChain,
    broker: str,
    topics: Mapping[int, TopicView],
    today: Mapping[QueueKey, Position],
) -> tuple[str, EntryChain, str]:
    """Return the topic's name, the chain, and why the queue is not recovered, if it is not."""
    topic = topics.get(key[0])
    if topic is None or key[1] >= len(topic.queues):
        return "", chain, "the topic was deleted"
    view = topic.queues[key[1]]
    left = ""
    if broker not in view.replicas:
        left = f"{broker} is no replica of it"
    elif view.leader is not None:
        left = f"{view.leader} leads it: replicas heal from there"
    elif others := sorted({*view.isr, *view.eligible} - {broker}):
        left = f"{', '.join(others)} may hold all of it: start that first"
    elif key in today:
        left = f"it has gone on since, to offset {today[key].offset}"
    return topic.name, chain, left
