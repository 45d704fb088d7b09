"""Writing a backup from a leader in memory: its order, its cut, and what others do meanwhile."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from logboom.backup.backup_checks import verify
from logboom.backup.backup_format import (
    MANIFEST,
    PROGRESS,
    STATE,
    LogPosition,
    Progress,
    SegmentHead,
    SegmentWriter,
    TopicRecord,
    encode_manifest,
    segment_name,
)
from logboom.backup.backup_reader import BackupReader
from logboom.backup.backup_writer import BackupOptions, BackupWriter
from logboom.backup.object_store import BackupStore
from logboom.client import Client
from logboom.client.admin_flows.backup_flows import EntryRange, FetchedEntries
from logboom.wire.backup_messages import ClusterSnapshot, EntriesFetched
from logboom.wire.batch import encode_batch, stamp
from logboom.wire.errors import Unavailable
from logboom.wire.validation import crc32c
from logboom.wire.view import QueueView, TopicConfig, TopicView

EMPTY = ClusterSnapshot(5, "cluster", 9, 2, 1, 1, [], [], 1, [], [], [], [])
FLIGHTS = TopicView("flights", 1, TopicConfig(), [QueueView(["a"], "a", 3, 1, ["a"], [])], 1)
OLDER = "20240101T000000Z"


class Leader:
    """The administration of a cluster with one queue, whose log has an entry for each message."""

    def __init__(self, cluster: str = "cluster", entries: int = 6) -> None:
        self.cluster = cluster
        self.entries = entries
        self.start = 0
        self.views: list[TopicView] = [FLIGHTS]
        self.on_fetch: Callable[[EntryRange], None] = lambda _: None
        self.on_state: Callable[[], None] = lambda: None

    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self.cluster

    def topics(self) -> Sequence[TopicView]:
        """All topics."""
        return self.views

    def read_state(self) -> ClusterSnapshot:
        """The replicated state."""
        state = msgspec.structs.replace(EMPTY, topics=[*self.views])
        self.on_state()
        return state

    def fetch_entries(self, wanted: EntryRange) -> FetchedEntries:
        """The next entry, or where the log begins."""
        self.on_fetch(wanted)
        at = wanted.at[0]
        until = self.entries if wanted.until is None else wanted.until[0]
        begins = at < self.start
        frames = [] if begins or at >= until else [stamp(encode_batch([b"m"], now_ms=5), at, 3, 7)]
        at = self.start if begins else at + len(frames)
        head = EntriesFetched(
            0,
            "trimmed" if begins else "here",
            at,
            0,
            3 if at else -1,
            3,
            self.entries,
            0,
            self.start,
            at < until,
            count=len(frames),
            messages=len(frames),
            crc=crc32c(b"".join(frames)),
            log_bytes=100,
        )
        return FetchedEntries(head, [*frames])


class Noted(BackupStore):
    """A store in memory that notes what is done to it."""

    def __init__(self) -> None:
        super().__init__(f"memory://{uuid.uuid4().hex}")
        self.done: list[str] = []

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        self.done.append(f"write {name.partition('/')[2]}")
        super().write(name, content)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.done.append(f"remove {name.partition('/')[2]}")
        super().remove(name)


def writer(leader: Leader, store: BackupStore, *, incremental: bool = True) -> BackupWriter:
    """A run that writes a segment file for each entry."""
    client = cast("Client", SimpleNamespace(admin=leader))
    options = BackupOptions(segment_bytes=1, workers=1, incremental=incremental)
    return BackupWriter(client, store, options)


def progress(
    store: BackupStore,
    backup: str,
    owner: str = "other",
    cluster_id: str = "cluster",
    base: str = "",
    topics: Sequence[TopicRecord] = (),
) -> None:
    """Put the progress of a process there."""
    made = Progress(backup, cluster_id, base, 1, owner, int(time.time() * 1000), [*topics])
    store.write(f"{backup}/{PROGRESS}", encode_manifest(made))


def cursors_end(store: BackupStore) -> LogPosition:
    """From where on acknowledgements do not count, in the newest backup."""
    queue = BackupReader(store).manifest().queue(1, 0)
    assert queue is not None
    return queue.cursors_end


def test_the_manifest_comes_after_all_else_and_before_the_progress_goes() -> None:
    store = Noted()
    manifest = writer(Leader(), store).create()
    assert store.done[-2:] == [f"write {MANIFEST}", f"remove {PROGRESS}"]
    assert [each.split("-")[0] for each in store.done[:3]] == [
        "write claim",
        f"write {PROGRESS}",
        "remove claim",
    ]
    assert set(store.done[3:-2]) - {f"write {PROGRESS}"} == {f"write {STATE}"}
    assert verify(BackupReader(store), manifest).faults == []
    assert (len(manifest.topics[0].queues[0].segments), manifest.messages) == (6, 6)


def test_what_another_process_writes_is_left_alone() -> None:
    store = Noted()
    progress(store, OLDER)
    store.done.clear()
    with pytest.raises(Unavailable, match="another process writes backup") as busy:
        writer(Leader(), store).create()
    assert (busy.value.code, store.done) == ("BUSY", [])


@pytest.mark.parametrize("other", [{"base": "20230101T000000Z"}, {"cluster_id": "another"}])
def test_an_unfinished_backup_with_another_beginning_is_not_continued(
    other: dict[str, Any],
) -> None:
    store = Noted()
    progress(store, OLDER, owner="", **other)
    run = writer(Leader(), store)
    assert (run.create().id != OLDER, run.resumed) == (True, False)


def test_a_backup_that_another_process_took_over_gets_no_manifest() -> None:
    store, leader = Noted(), Leader()
    run = writer(leader, store)

    def take_over(wanted: EntryRange) -> None:
        if wanted.at == (4, 0):
            progress(store, run.id)

    leader.on_fetch = take_over
    with pytest.raises(Unavailable, match="another process writes backup"):
        run.create()
    assert BackupReader(store).ids() == []
    assert BackupReader(store).progress(run.id).owner == "other"


def test_a_file_that_was_removed_meanwhile_is_not_named() -> None:
    store, leader = Noted(), Leader()
    run = writer(leader, store)

    def prune(wanted: EntryRange) -> None:
        if wanted.at == (4, 0):
            store.remove(f"{run.id}/1/0/{0:020}-0.seg")

    leader.on_fetch = prune
    with pytest.raises(Unavailable, match="was removed or changed while this backup was made"):
        run.create()
    assert BackupReader(store).ids() == []


def test_only_whole_files_of_an_unfinished_backup_are_taken_over() -> None:
    store, leader = Noted(), Leader()
    first = writer(leader, store)

    def end(wanted: EntryRange) -> None:
        if wanted.at == (5, 0):
            raise Unavailable("the leader is gone")

    leader.on_fetch = end
    with pytest.raises(Unavailable, match="the leader is gone"):
        first.create()
    (_, second, *_) = sorted(name for name in store.files(first.id) if name.endswith(".seg"))
    damaged = store.read(f"{first.id}/{second}")[:-1]
    store.write(f"{first.id}/{second}", damaged)
    asked: list[LogPosition] = []
    leader.on_fetch = lambda wanted: asked.append(wanted.at)
    again = writer(leader, store)
    manifest = again.create()
    assert (again.resumed, manifest.id) == (True, first.id)
    assert sorted(set(asked))[:2] == [(-1, 0), (1, 0)], "the first file is whole"
    assert verify(BackupReader(store), manifest).faults == []


def test_a_backup_of_another_cluster_is_no_base() -> None:
    store = Noted()
    first = writer(Leader("another"), store).create()
    assert writer(Leader(), store).create().base == ""
    other = Leader("another")
    other.entries = 8
    third = writer(other, store).create()
    assert (third.base, third.needs()) == (first.id, {first.id, third.id})


def test_acknowledgements_count_up_to_the_end_that_was_noted_before_the_state_was_read() -> None:
    store, leader = Noted(), Leader()
    states = 0

    def grow() -> None:
        nonlocal states
        states += 1
        leader.entries += states == 2

    leader.on_state = grow
    manifest = writer(leader, store).create()
    assert (cursors_end(store), manifest.messages) == ((6, 0), 7)


def test_of_a_queue_that_was_made_meanwhile_no_acknowledgement_counts() -> None:
    store, leader = Noted(), Leader()
    leader.views = []

    def make() -> None:
        leader.views = [FLIGHTS]

    leader.on_state = make
    manifest = writer(leader, store).create()
    assert (cursors_end(store), manifest.messages) == ((0, 0), 6)


def test_where_retention_was_faster_all_acknowledgements_count() -> None:
    store, leader = Noted(), Leader()
    states = 0

    def trim() -> None:
        nonlocal states
        states += 1
        if states == 2:
            leader.start, leader.entries = 2, 8

    leader.on_state = trim
    writer(leader, store).create()
    assert cursors_end(store) == (8, 0), "the cursors are whole only after what was noted"


def test_damaged_copies_of_an_unfinished_backup_are_not_taken_over() -> None:
    store, leader = Noted(), Leader()
    first = writer(leader, store)

    def end(wanted: EntryRange) -> None:
        if wanted.at == (3, 0):
            raise Unavailable("the leader is gone")

    leader.on_fetch = end
    with pytest.raises(Unavailable, match="the leader is gone"):
        first.create()
    begun = BackupReader(store).progress(first.id)
    (queue,) = begun.topics[0].queues
    name = segment_name(1, 0, (0, 0), "copies")
    with store.create(f"{first.id}/{name}") as file:
        segment = SegmentWriter(file, SegmentHead("copies", 1, 0, (0, 0)))
        segment.finish()
    record = segment.record(first.id, name, -1)
    content = store.read(f"{first.id}/{name}")
    store.write(f"{first.id}/{name}", content[:-1] + bytes([content[-1] ^ 1]))
    queue = msgspec.structs.replace(queue, copies=[record])
    topics = [msgspec.structs.replace(begun.topics[0], queues=[queue])]
    progress(store, first.id, owner="", topics=topics)
    leader.on_fetch = lambda _: None
    again = writer(leader, store)
    manifest = again.create()
    assert (again.resumed, manifest.topics[0].queues[0].copies) == (True, [])
    assert verify(BackupReader(store), manifest).faults == []
