"""One run of a restore: it is continued or given up, and whatever is in its way is said."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.backup.backup_format import Manifest
from logboom.backup.backup_reader import BackupReader
from logboom.backup.backup_writer import BackupOptions, BackupWriter
from logboom.backup.object_store import BackupStore
from logboom.backup.restore import Restore, RestoreReport, abandon_restore, check_files
from logboom.backup.restore_plan import RestoreOptions, RestorePlan, backup_mark, plan_restore
from logboom.client import Client, connect
from logboom.deploy.cluster_key import read_key
from logboom.deploy.embedded import Embedded
from logboom.deploy.layout import KEY_FILE
from logboom.wire.errors import DataDamaged, Refused, TimedOut, Unavailable


@pytest.fixture
def operator(node: Embedded) -> Iterator[Client]:
    """A client with the cluster key."""
    with connect(node.endpoints, cluster_key=read_key(node.data / KEY_FILE)) as client:
        yield client


class Interrupted(Exception):
    """Somebody pressed Ctrl-C."""


class Backed:
    """A topic of two queues with batches of 1 KB, and its backup in small files."""

    def __init__(self, boom: Client, folder: Path) -> None:
        self.boom = boom
        self.topic = f"t{uuid.uuid4().hex[:8]}"
        boom.admin.create_topic(self.topic, queues=2)
        with boom.producer() as producer:
            for number in range(30):
                value = b"%d-" % number + uuid.uuid4().hex.encode() * 30
                producer.send(self.topic, value, queue=number % 2).result(60)
        self.values = values(boom, self.topic)
        self.store = BackupStore(str(folder))
        self.reader = BackupReader(self.store)
        options = BackupOptions(topics=[self.topic], segment_bytes=3_000)
        self.manifest: Manifest = BackupWriter(boom, self.store, options).create()

    @property
    def copy(self) -> str:
        """The name under which it is restored."""
        return f"{self.topic}-2"

    def plan(self) -> RestorePlan:
        """What a restore beside the topic does."""
        state, target = self.reader.state(self.manifest), self.boom.admin.read_state()
        return plan_restore(self.manifest, state, target, RestoreOptions(new_name=self.copy))

    def restore(self, stop_after: int = 1 << 60) -> RestoreReport:
        """Restore it, or be interrupted after so many bytes."""

        def progress(done: int) -> None:
            if done >= stop_after:
                raise Interrupted

        state = self.reader.state(self.manifest)
        return Restore(
            self.boom, self.reader, self.manifest, state, self.plan(), progress, workers=1
        ).run()


def values(boom: Client, topic: str) -> Counter[bytes]:
    """How often each value can be read from a topic."""
    found: Counter[bytes] = Counter()
    for queue, (at, end) in boom.admin.offsets(topic).items():
        while at < end:
            pulled = boom.pull(topic, queue, at, max_messages=1_000)
            found.update(bytes(message.value or b"") for message in pulled.messages)
            at = pulled.next_offset
    return found


def test_an_interrupted_restore_is_continued(operator: Client, tmp_path: Path) -> None:
    backed = Backed(operator, tmp_path)
    with pytest.raises(Interrupted):
        backed.restore(stop_after=12_000)
    assert operator.admin.describe_topic(backed.copy).restoring == backup_mark(backed.manifest)
    with (
        operator.producer(delivery_timeout_s=1) as producer,
        pytest.raises((TimedOut, Unavailable)),
    ):
        producer.send(backed.copy, b"too early").result(30)
    report = backed.restore()
    assert report.resumed
    assert values(operator, backed.copy) == backed.values
    assert operator.admin.describe_topic(backed.copy).restoring == ""
    operator.admin.delete_topic(backed.copy)


def test_a_damaged_file_is_named_and_the_restore_waits_for_a_good_one(
    operator: Client, tmp_path: Path
) -> None:
    backed = Backed(operator, tmp_path)
    last = backed.manifest.topics[0].queues[1].segments[-1]
    path = tmp_path / last.backup / last.file
    content = path.read_bytes()
    path.write_bytes(content[:1_000] + bytes([content[1_000] ^ 1]) + content[1_001:])
    check_files(backed.reader, backed.plan())
    with pytest.raises(DataDamaged, match=last.file):
        backed.restore()
    assert operator.admin.describe_topic(backed.copy).restoring
    path.write_bytes(content)
    backed.restore()
    assert values(operator, backed.copy) == backed.values
    operator.admin.delete_topic(backed.copy)


def test_a_restore_is_given_up(operator: Client, tmp_path: Path) -> None:
    backed = Backed(operator, tmp_path)
    with pytest.raises(Interrupted):
        backed.restore(stop_after=12_000)
    assert abandon_restore(operator, "another") == []
    assert abandon_restore(operator, backup_mark(backed.manifest)) == [backed.copy]
    backed.restore()
    assert values(operator, backed.copy) == backed.values
    operator.admin.delete_topic(backed.copy)


@pytest.mark.parametrize("fault", ["missing", "truncated"])
def test_files_that_lack_are_named_before_anything_is_changed(
    operator: Client, tmp_path: Path, fault: str
) -> None:
    backed = Backed(operator, tmp_path)
    first = backed.manifest.topics[0].queues[0].segments[0]
    path = tmp_path / first.backup / first.file
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataDamaged, match=fault) as refused:
        check_files(backed.reader, backed.plan())
    assert first.file in refused.value.text


def test_who_has_no_right_changes_nothing(node: Embedded, operator: Client, tmp_path: Path) -> None:
    backed = Backed(operator, tmp_path)
    plan = backed.plan()
    state = backed.reader.state(backed.manifest)
    with connect(node.endpoints) as anybody, pytest.raises(Refused):
        Restore(anybody, backed.reader, backed.manifest, state, plan).run()
    assert backed.copy not in {topic.name for topic in operator.admin.topics()}
