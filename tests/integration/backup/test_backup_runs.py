"""One run of a backup: it is continued, it has limits, and whatever is in its way is said."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.backup.backup_checks import verify
from logboom.backup.backup_format import MANIFEST, PROGRESS, Manifest, encode_manifest
from logboom.backup.backup_reader import BackupReader
from logboom.backup.backup_writer import BackupOptions, BackupWriter, QueueCopier
from logboom.backup.object_store import BackupStore
from logboom.client import Client, connect
from logboom.client.admin_flows.backup_flows import EntryRange
from logboom.deploy.cluster_key import read_key
from logboom.deploy.embedded import Embedded
from logboom.deploy.layout import KEY_FILE
from logboom.wire.errors import (
    DataDamaged,
    InvalidRequest,
    Refused,
    StartError,
    Unavailable,
    UnknownResource,
)
from logboom.wire.view import TopicView
from tests.integration.backup.backup_contents import BackupContents
from tests.integration.waiting import wait_until

SMALL = BackupOptions(segment_bytes=3_000, workers=2)
"""Many small files."""


@pytest.fixture
def operator(node: Embedded) -> Iterator[Client]:
    """A client with the cluster key."""
    with connect(node.endpoints, cluster_key=read_key(node.data / KEY_FILE)) as client:
        yield client


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BackupStore:
    """An empty store."""
    if request.param == "folder":
        return BackupStore(str(tmp_path / "backups"))
    return BackupStore(f"memory://{uuid.uuid4().hex}")


class Interrupted(Exception):
    """Somebody pressed Ctrl-C."""


def topic_of(boom: Client, batches: int = 30) -> str:
    """A new topic of two queues with batches of 1 KB."""
    name = f"t{uuid.uuid4().hex[:8]}"
    boom.admin.create_topic(name, queues=2)
    fill(boom, name, batches)
    return name


def fill(boom: Client, topic: str, batches: int) -> None:
    """Send batches of 1 KB, one after the other, so that each is one."""
    with boom.producer() as producer:
        for number in range(batches):
            value = b"%d-" % number + uuid.uuid4().hex.encode() * 30
            producer.send(topic, value, queue=number % 2).result(60)


def back_up(boom: Client, store: BackupStore, topic: str, **changes: object) -> Manifest:
    """Back up one topic."""
    options = BackupOptions(**{"topics": [topic], "segment_bytes": 3_000, **changes})  # type: ignore[arg-type] # of the options
    return BackupWriter(boom, store, options).create()


def interrupt(boom: Client, store: BackupStore, topic: str, after: int) -> BackupWriter:
    """Begin a backup that is interrupted after so many bytes."""

    def stop(done: int, _total: int) -> None:
        if done >= after:
            raise Interrupted

    options = BackupOptions(topics=[topic], segment_bytes=3_000, workers=1)
    writer = BackupWriter(boom, store, options, stop)
    with pytest.raises(Interrupted):
        writer.create()
    return writer


def is_sound(store: BackupStore, manifest: Manifest) -> bool:
    """Whether a backup can be read back."""
    return verify(BackupReader(store), manifest).faults == []


def test_a_queue_that_waits_for_its_leader_ends_with_the_backup(
    operator: Client, store: BackupStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else Ctrl-C, or the failure of another queue, would wait for what may never come."""
    options = BackupOptions(topics=[topic_of(operator)], workers=2)
    writer = BackupWriter(operator, store, options)
    waits = threading.Event()

    def copy(_copier: QueueCopier, _topic: TopicView, number: int, _noted: object) -> None:
        if number == 0:
            waits.set()
            writer.pause(threading.TIMEOUT_MAX)
        assert waits.wait(60)
        raise InvalidRequest("the other queue cannot be copied")

    monkeypatch.setattr(QueueCopier, "copy", copy)
    with pytest.raises(InvalidRequest, match="the other queue"):
        writer.create()


def test_an_interrupted_backup_is_continued(operator: Client, store: BackupStore) -> None:
    topic = topic_of(operator)
    writer = interrupt(operator, store, topic, 12_000)
    reader = BackupReader(store)
    assert (reader.ids(), reader.unfinished()) == ([], [writer.id])
    assert not [name for name in store.files(writer.id) if name.endswith(".part")]
    before = set(store.files(writer.id))
    assert len(before) > 3
    fill(operator, topic, 4)
    again = BackupWriter(operator, store, BackupOptions(topics=[topic], segment_bytes=3_000))
    manifest = again.create()
    assert (manifest.id, again.resumed) == (writer.id, True)
    assert (reader.ids(), reader.unfinished()) == ([writer.id], [])
    assert before - {PROGRESS} <= set(store.files(writer.id))
    assert PROGRESS not in store.files(writer.id)
    assert is_sound(store, manifest)
    assert sum(BackupContents(reader).values(topic).values()) == 34


def test_what_a_continued_backup_takes_over_was_verified(
    operator: Client, store: BackupStore
) -> None:
    topic = topic_of(operator)
    writer = interrupt(operator, store, topic, 15_000)
    first, *_ = [name for name in store.files(writer.id) if name.endswith(".seg")]
    name = f"{writer.id}/{first}"
    content = store.read(name)
    store.write(name, content[:-40])
    store.write(f"{writer.id}/9/9/left over.seg", b"of somebody")
    manifest = back_up(operator, store, topic)
    assert manifest.id == writer.id
    assert store.files(writer.id)[first] == len(content)
    assert is_sound(store, manifest)
    assert sum(BackupContents(BackupReader(store)).values(topic).values()) == 30


def test_nobody_continues_what_another_process_writes(operator: Client, store: BackupStore) -> None:
    topic = topic_of(operator)
    begun = threading.Event()
    go_on = threading.Event()

    def wait(_done: int, _total: int) -> None:
        begun.set()
        go_on.wait(60)

    options = BackupOptions(topics=[topic], segment_bytes=3_000)
    writer = BackupWriter(operator, store, options, wait)
    thread = threading.Thread(target=writer.create)
    thread.start()
    try:
        assert begun.wait(60)
        with pytest.raises(Unavailable, match="another process writes") as error:
            back_up(operator, store, topic)
        assert error.value.code == "BUSY"
    finally:
        go_on.set()
        thread.join()
    assert BackupReader(store).ids() == [writer.id]


def test_an_incremental_backup_has_only_what_is_new(operator: Client, store: BackupStore) -> None:
    topic = topic_of(operator)
    first = back_up(operator, store, topic)
    fill(operator, topic, 2)
    second = back_up(operator, store, topic)
    third = back_up(operator, store, topic)
    assert (first.base, second.base, third.base) == ("", first.id, second.id)
    assert second.messages == third.messages == 32
    assert second.new_bytes - second.state.size < 4_000
    assert third.new_bytes == third.state.size
    assert third.needs() == {first.id, second.id, third.id}
    complete = back_up(operator, store, topic, incremental=False)
    assert (complete.base, complete.needs()) == ("", {complete.id})
    contents = [BackupContents(BackupReader(store), each.id) for each in (third, complete)]
    assert contents[0].values(topic) == contents[1].values(topic)


def test_what_retention_removed_before_it_was_copied_is_said(
    operator: Client, store: BackupStore
) -> None:
    topic = topic_of(operator, 4)
    back_up(operator, store, topic)
    fill(operator, topic, 40)
    operator.admin.alter_topic(topic, retention_bytes=1)
    deadline = time.monotonic() + 120
    while operator.admin.offsets(topic)[0][0] <= 2:
        assert time.monotonic() < deadline, "retention removes what is old"
        fill(operator, topic, 2)
        time.sleep(0.2)  # retention looks now and then
    manifest = back_up(operator, store, topic)
    assert any("retention removed offsets 2 to" in note for note in manifest.notes)
    assert is_sound(store, manifest)
    queue = manifest.topics[0].queues[0]
    assert queue.begin[0] > 2
    assert {record.backup for record in queue.segments} <= {manifest.id}


def test_patterns_choose_topics(operator: Client, store: BackupStore) -> None:
    topic = topic_of(operator, 2)
    other = topic_of(operator, 2)
    manifest = back_up(operator, store, topic[:-1] + "?")
    assert [each.name for each in manifest.topics] == [topic]
    assert other not in [each.name for each in manifest.topics]
    with pytest.raises(InvalidRequest, match=r"no topic is called 'nothing\*'"):
        back_up(operator, store, "nothing*")
    assert BackupReader(store).folders() == [manifest.id]


def test_a_topic_that_is_deleted_meanwhile_is_left_out(
    operator: Client, store: BackupStore
) -> None:
    topic = topic_of(operator)
    back_up(operator, store, topic)
    operator.admin.delete_topic(topic)
    other = topic_of(operator, 2)
    manifest = back_up(operator, store, other)
    assert [each.name for each in manifest.topics] == [other]


def test_half_of_a_topic_that_was_deleted_is_not_kept(
    operator: Client, store: BackupStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = topic_of(operator, 4), topic_of(operator, 2)
    copy = QueueCopier.copy

    def delete(copier: QueueCopier, which: TopicView, number: int, noted: Any) -> None:
        if (which.name, number) == (topic, 1):
            operator.admin.delete_topic(topic)
            wait_until(lambda: is_gone(which, number), "its queues are gone")
        copy(copier, which, number, noted)

    def is_gone(which: TopicView, number: int) -> bool:
        try:
            operator.admin.fetch_entries(EntryRange(which.name, which.id, number))
        except UnknownResource:
            return True
        return False

    monkeypatch.setattr(QueueCopier, "copy", delete)
    options = BackupOptions(topics=[topic, other], workers=1)
    manifest = BackupWriter(operator, store, options).create()
    assert [each.name for each in manifest.topics] == [other]
    assert [note for note in manifest.notes if topic in note]
    assert is_sound(store, manifest)


def test_acknowledgements_of_a_queue_that_was_made_later_do_not_count(
    operator: Client, store: BackupStore
) -> None:
    topic = f"t{uuid.uuid4().hex[:8]}"

    class Slow(BackupWriter):
        """A topic is made after all ends were noted, and before the state is read."""

        def _note_ends(self, topics: Any) -> Any:
            noted = super()._note_ends(topics)
            operator.admin.create_topic(topic, queues=1)
            return noted

        def _write_state(self, state: Any) -> None:
            super()._write_state(state)
            fill_one(operator, topic)

    topic_of(operator, 1)
    manifest = Slow(operator, store, BackupOptions()).create()
    (queue,) = [q for each in manifest.topics if each.name == topic for q in each.queues]
    assert (queue.begin, queue.cursors_end) == ((0, 0), (0, 0))
    assert queue.end > (0, 0)


def fill_one(boom: Client, topic: str) -> None:
    """Send one message."""
    with boom.producer() as producer:
        producer.send(topic, b"value", queue=0).result(60)


def test_two_processes_do_not_continue_the_same_backup(
    operator: Client, store: BackupStore
) -> None:
    topic = topic_of(operator)
    interrupt(operator, store, topic, 12_000)
    refused: list[str] = []

    class First(BackupWriter):
        """While it verifies what is there, somebody gives the same command."""

        def _is_whole(self, *arguments: Any) -> bool:
            if not refused:
                with pytest.raises(Unavailable, match="another process writes") as error:
                    back_up(operator, store, topic)
                refused.append(error.value.code)
            return super()._is_whole(*arguments)

    options = BackupOptions(topics=[topic], segment_bytes=3_000)
    writer = First(operator, store, options)
    manifest = writer.create()
    assert (refused, writer.resumed) == (["BUSY"], True)
    assert is_sound(store, manifest)


@pytest.mark.parametrize("loss", ["another owner", "removed", "a file"])
def test_a_backup_that_was_lost_to_another_process_is_not_finished(
    operator: Client, store: BackupStore, loss: str
) -> None:
    topic = topic_of(operator)

    class Loser(BackupWriter):
        """Its machine was suspended, say, just before the end."""

        def _finish(self, *arguments: Any) -> Manifest:
            if loss == "removed":
                store.remove_folder(self.id)
            elif loss == "a file":
                store.remove(f"{self.id}/{next(n for n in store.files(self.id) if '.seg' in n)}")
            else:
                progress = BackupReader(store).progress(self.id)
                other = msgspec.structs.replace(progress, owner="another")
                store.write(f"{self.id}/{PROGRESS}", encode_manifest(other))
            return super()._finish(*arguments)

    writer = Loser(operator, store, BackupOptions(topics=[topic], segment_bytes=3_000))
    with pytest.raises(Unavailable, match=r"another process|was removed") as error:
        writer.create()
    assert (error.value.code == "BUSY") == (loss != "a file")
    assert BackupReader(store).ids() == []
    if loss == "another owner":
        assert BackupReader(store).progress(writer.id).owner == "another"


def test_who_has_no_right_is_told_before_anything_is_written(
    boom: Client, store: BackupStore
) -> None:
    topic = topic_of(boom, 1)
    with pytest.raises(Refused, match="cluster key"):
        back_up(boom, store, topic)
    assert store.folders() == []


def test_a_full_disk_is_said_before_anything_is_written(
    operator: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_of(operator, 1)
    store = BackupStore(str(tmp_path / "backups"))
    monkeypatch.setattr(store, "free_bytes", lambda: 1_000_000)
    with pytest.raises(Unavailable, match="0 MiB free") as error:
        back_up(operator, store, topic)
    assert error.value.code == "DISK_FULL"
    assert store.folders() == []


def test_a_disk_that_becomes_full_is_said(tmp_path: Path) -> None:
    store = BackupStore(str(tmp_path))
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    (tmp_path / "file.part").symlink_to("/dev/full")
    with pytest.raises(Unavailable, match="no space left: free some") as error:
        store.write("file", b"content")
    assert error.value.code == "DISK_FULL"
    assert list(tmp_path.iterdir()) == []


def test_unusable_places_are_refused() -> None:
    with pytest.raises(StartError, match="pip install s3fs"):
        BackupStore("s3://bucket/folder")
    with pytest.raises(StartError, match="s3://bucket/folder"):
        BackupStore("nonsense://folder")
    with pytest.raises(InvalidRequest, match="no folder"):
        BackupStore("/dev/null/backups").write("file", b"content")


def test_a_newer_backup_is_no_base_and_is_not_removed(operator: Client, store: BackupStore) -> None:
    topic = topic_of(operator, 2)
    manifest = back_up(operator, store, topic)
    name = f"{manifest.id}/{MANIFEST}"
    newer = json.loads(store.read(name)) | {"format": 99}
    store.write(name, json.dumps(newer).encode())
    with pytest.raises(StartError, match="format 99"):
        back_up(operator, store, topic)
    store.write(name, b"{}")
    with pytest.raises(DataDamaged):
        back_up(operator, store, topic)
