"""What was backed up under load is restored: an independent reader finds it, in whole."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from logboom.backup.backup_reader import BackupReader
from logboom.backup.backup_writer import BackupOptions, BackupWriter
from logboom.backup.object_store import BackupStore
from logboom.backup.restore import Restore, RestoreReport
from logboom.backup.restore_plan import RestoreOptions, plan_restore
from logboom.client import Client
from logboom.wire.errors import AlreadyExists, LogboomError
from tests.integration.backup.test_backups_under_load import SLOWLY, Done, Load, cluster
from tests.integration.waiting import wait_until


def restore(
    boom: Client, reader: BackupReader, backup: str = "", **options: object
) -> RestoreReport:
    """Restore a backup."""
    manifest = reader.manifest(backup)
    state = reader.state(manifest)
    wanted = RestoreOptions(**options)  # type: ignore[arg-type] # of the options
    plan = plan_restore(manifest, state, boom.admin.read_state(), wanted)
    return Restore(boom, reader, manifest, state, plan).run()


def values(boom: Client, topic: str) -> Counter[bytes]:
    """How often each value can be read from a topic, message by message."""
    found: Counter[bytes] = Counter()
    for queue, (at, end) in boom.admin.offsets(topic).items():
        while at < end:
            pulled = boom.pull(topic, queue, at, max_messages=1_000)
            found.update(bytes(message.value or b"") for message in pulled.messages)
            at = pulled.next_offset
    return found


def left_to_do(boom: Client) -> set[bytes]:
    """What the subscription has not acknowledged: everything that a new consumer gets."""
    found: set[bytes] = set()
    with boom.subscribe("work", subscription="workers", type="shared", start="first") as worker:

        def nothing_left() -> bool:
            while messages := worker.poll(200, timeout_s=0.3):
                found.update(bytes(message.value or b"") for message in messages)
                worker.ack(messages)
            worker.flush(200)
            queues = boom.admin.subscriptions.describe("work", "workers")
            return not any(queue.state.unacked for queue in queues)

        wait_until(nothing_left, "the subscription has acknowledged everything")
    return found


def check(boom: Client, done: Done) -> None:
    """Everything that was acknowledged before the cut is there, and nothing by half."""
    plain = values(boom, "plain")
    assert done.plain <= plain.keys()
    assert set(plain.values()) == {1}
    wait_until(lambda: not boom.admin.transactions().transactions, "all is decided")
    debits, credited = values(boom, "debits"), values(boom, "credits")
    assert done.committed <= debits.keys()
    assert set(debits.values()) == {1}
    assert credited == dict.fromkeys(debits, 2)
    assert not [value for value in debits if int(value[1:]) % 5 == 4]
    # Messages that were delayed come at their time.
    wait_until(lambda: done.later <= values(boom, "later").keys(), "delayed messages come")
    assert set(values(boom, "later").values()) == {1}
    ends = boom.admin.offsets("plain")
    for queue, committed in boom.admin.committed("readers", "plain").items():
        assert (committed or 0) <= ends[queue][1]
        assert (committed or 0) >= done.group.get(queue, 0)
    results = values(boom, "results")
    acked = values(boom, "work").keys() - left_to_do(boom)
    assert acked <= results.keys()
    assert done.acked <= acked


def work_on(boom: Client) -> None:
    """The cluster serves as if nothing had happened."""
    with boom.producer() as producer:
        producer.send("plain", b"after", queue=0).result(60)
        with producer.transaction("transfers") as txn:
            txn.send("debits", b"t1000001", queue=0)
            txn.send("credits", b"t1000001", queue=0)
            txn.send("credits", b"t1000001", queue=1)
    assert values(boom, "plain")[b"after"] == 1
    assert values(boom, "credits")[b"t1000001"] == 2
    seen: set[bytes] = set()
    with boom.consumer("plain", group="readers") as consumer:

        def read() -> bool:
            for message in consumer.poll(500, timeout_s=0.5):
                seen.add(bytes(message.value or b""))
                consumer.ack(message)
            return b"after" in seen

        wait_until(read, "the group reads what is new")


@pytest.mark.parametrize(
    ("name_servers", "brokers"), [(1, 1), pytest.param(3, 3, marks=pytest.mark.thorough)]
)
def test_a_cluster_that_is_gone_is_restored(
    name_servers: int, brokers: int, tmp_path: Path
) -> None:
    store = BackupStore(str(tmp_path / "backups"))
    reader = BackupReader(store)
    befores: dict[str, Done] = {}
    options = SLOWLY if brokers > 1 else BackupOptions(bytes_per_s=400_000)
    with cluster(name_servers, brokers) as (nodes, boom), Load(",".join(nodes.endpoints)) as load:
        for number in range(3):
            load.wait_for((number + 1) * 5)
            load.check()
            done = Done(load)
            befores[BackupWriter(boom, store, options).create().id] = done
        load.check()
        boom.admin.alter_settings({"replace_after_s": 1234})
        boom.admin.set_default_quota(topics=77)
        befores[BackupWriter(boom, store, options).create().id] = befores[reader.ids()[-1]]
        topics = {topic.name: topic.id for topic in boom.admin.topics()}
    last = reader.ids()[-1]
    for backup in [last] if brokers < 3 else reader.ids():
        with cluster(name_servers, brokers, topics=()) as (_, boom):
            report = restore(boom, reader, backup)
            assert report.offsets_cut == []
            assert {topic.name: topic.id for topic in boom.admin.topics()} == topics
            if backup == last:
                settings = {each.name: each.value for each in boom.admin.list_settings()}
                assert settings == {"replace_after_s": "1234"}
                assert boom.admin.default_quota().topics == 77
            check(boom, befores[backup])
            work_on(boom)
            with pytest.raises(AlreadyExists, match="--as"):
                restore(boom, reader, backup)
            # An earlier state of one topic, beside what is there now.
            first = reader.ids()[0]
            restore(boom, reader, first, topics=["plain"], new_name="plain-2")
            again = values(boom, "plain-2")
            assert befores[first].plain <= again.keys()
            assert b"after" not in again
            assert boom.admin.committed("readers", "plain-2").keys() == {0, 1, 2}


@pytest.mark.thorough
def test_a_restore_outlives_a_leader_that_is_killed(tmp_path: Path) -> None:
    store = BackupStore(str(tmp_path / "backups"))
    reader = BackupReader(store)
    with cluster(1, 3, topics=()) as (nodes, boom):
        boom.admin.create_topic("wide", queues=3, replicas=3)
        with boom.producer() as producer:
            for number in range(60):
                value = b"%d-" % number + os.urandom(20_000)
                producer.send("wide", value, queue=number % 3).result(60)
        before = values(boom, "wide")
        manifest = BackupWriter(boom, store, BackupOptions(segment_bytes=50_000)).create()
        state = reader.state(manifest)
        killed: list[str] = []

        def kill_a_leader(done: int) -> None:
            if not killed and done > manifest.size // 3:
                leader = boom.admin.describe_topic("wide-2").queues[0].leader
                assert leader is not None
                killed.append(leader)
                nodes.kill(leader)

        def run() -> RestoreReport:
            wanted = RestoreOptions(new_name="wide-2")
            plan = plan_restore(manifest, state, boom.admin.read_state(), wanted)
            return Restore(boom, reader, manifest, state, plan, kill_a_leader, workers=1).run()

        try:
            run()
        except LogboomError:
            # The same command again.
            assert killed
            report = run()
            assert report.resumed
        assert killed
        assert values(boom, "wide-2") == before
        nodes.start(killed[0])

        def in_sync() -> bool:
            queues = boom.admin.describe_topic("wide-2").queues
            return all(len(queue.isr) == 3 for queue in queues)

        wait_until(in_sync, "the broker that was killed has all that was restored")
        for other in nodes.nodes:
            if other.startswith("broker") and other != killed[0]:
                nodes.kill(other)
                wait_until(lambda: values(boom, "wide-2") == before, "the others have it, too")
                nodes.start(other)
                wait_until(in_sync, "all are in sync")
