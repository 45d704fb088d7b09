"""Whatever happens between two backups, the newest has exactly what can be read."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from pathlib import Path

import pytest

from logboom.backup.backup_checks import verify
from logboom.backup.backup_pruning import prune, survey_pruning
from logboom.backup.backup_reader import BackupReader
from logboom.backup.backup_writer import BackupOptions, BackupWriter
from logboom.backup.object_store import BackupStore
from logboom.client import Client
from logboom.wire.batch import open_batch, peek
from tests.integration.backup.backup_contents import BackupContents
from tests.integration.backup.test_backup_runs import interrupt, operator
from tests.integration.waiting import wait_until
from tests.thorough import few_of

__all__ = ["operator"]


def read(boom: Client, topic: str) -> Counter[bytes]:
    """How often each value can be read."""
    found: Counter[bytes] = Counter()
    for queue, (at, end) in boom.admin.offsets(topic).items():
        while at < end:
            result = boom.pull(topic, queue, at, max_messages=1_000)
            found.update(bytes(message.value or b"") for message in result.messages)
            at = result.next_offset
    return found


def act(boom: Client, topic: str, rng: random.Random) -> None:
    """Send something, plainly or in a transaction."""
    with boom.producer() as producer:
        for _ in range(rng.randrange(1, 6)):
            values = [uuid.uuid4().hex.encode() for _ in range(rng.randrange(1, 30))]
            if rng.random() < 0.5:
                producer.send_many(topic, values, queue=rng.randrange(3)).result(60)
                continue
            with producer.transaction() as txn:
                for value in values:
                    txn.send(topic, value, queue=rng.randrange(3))
                if rng.random() < 0.3:
                    txn.abort()


@pytest.mark.parametrize("seed", few_of(range(20), (0, 13)))
def test_the_newest_backup_has_what_can_be_read(
    operator: Client, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    topic = f"t{uuid.uuid4().hex[:8]}"
    operator.admin.create_topic(topic, queues=3)
    store = BackupStore(str(tmp_path))
    reader = BackupReader(store)
    for _ in range(8):
        act(operator, topic, rng)
        if rng.random() < 0.3:
            # It may be done before it would be interrupted.
            if sum(read(operator, topic).values()) > 50 and not reader.ids():
                interrupt(operator, store, topic, 1)
            act(operator, topic, rng)
        options = BackupOptions(
            topics=[topic],
            incremental=rng.random() < 0.8,
            segment_bytes=rng.choice([500, 5_000, 1 << 20]),
            workers=rng.randrange(1, 4),
        )
        manifest = BackupWriter(operator, store, options).create()
        assert BackupContents(reader).values(topic) == read(operator, topic)
        if rng.random() < 0.3:
            keep = rng.randrange(1, 4)
            prune(store, reader, survey_pruning(reader, keep, 0), keep, 0)
        assert verify(reader, manifest).faults == []


def test_copies_of_a_compacted_topic_are_in_the_backup(operator: Client, tmp_path: Path) -> None:
    topic = f"t{uuid.uuid4().hex[:8]}"
    operator.admin.create_topic(topic, queues=1, compaction=True, retention_bytes=1)
    with operator.producer() as producer:

        def send(keys: int) -> None:
            for key in range(keys):
                value = uuid.uuid4().hex.encode() * 100
                producer.send(topic, value, key=b"k%d" % key).result(60)

        def removed() -> bool:
            send(5)
            return operator.admin.offsets(topic)[0][0] > 60

        send(60)
        wait_until(removed, "retention removes what is old", pause_s=0.2)
    store = BackupStore(str(tmp_path))
    manifest = BackupWriter(operator, store, BackupOptions(topics=[topic])).create()
    reader = BackupReader(store)
    assert verify(reader, manifest).faults == []
    (queue,) = manifest.topics[0].queues
    assert queue.begin[0] > 60
    copied = {}
    for copy in reader.copies(manifest.topics[0].id, queue):
        head = peek(copy.batch)
        bits = int.from_bytes(copy.bits, "little") if copy.bits else (1 << head.count) - 1
        columns = open_batch(bytes(copy.batch), head)
        for number in range(head.count):
            if bits >> number & 1 and head.base_offset + number < queue.begin[0]:
                copied[head.base_offset + number] = columns.key(number)
    # The latest of each key that is only there any more: k5 to k59 at least.
    assert {b"k%d" % key for key in range(5, 60)} <= set(copied.values())
    assert len(set(copied.values())) == len(copied)
    # Later backups take the copies over: what was superseded since is in the log.

    again = BackupWriter(operator, store, BackupOptions(topics=[topic])).create()
    assert again.topics[0].queues[0].copies == queue.copies or again.notes
