"""A cluster is backed up three times while everything goes on: each backup is a true cut."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from logboom.backup.backup_checks import verify
from logboom.backup.backup_reader import BackupReader
from logboom.backup.backup_writer import BackupOptions, BackupWriter
from logboom.backup.object_store import BackupStore
from logboom.client import Client, connect
from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.deploy.layout import KEY_FILE
from tests.integration.backup.backup_contents import BackupContents
from tests.integration.waiting import wait_until

TOPICS = ("plain", "debits", "credits", "later", "work", "results")

SLOWLY = BackupOptions(workers=1, bytes_per_s=60_000)
"""So slow that much happens between the first queue that is read and the last."""


class Load:
    """What clients do at once, and what each was told was done."""

    def __init__(self, endpoints: str) -> None:
        self._endpoints = endpoints
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []
        self.plain: list[bytes] = []
        self.committed: list[bytes] = []
        self.later: list[bytes] = []
        self.group: dict[int, int] = {}
        """Queue of `plain` → committed offset."""
        self.acked: list[bytes] = []

    def __enter__(self) -> Load:  # noqa: PYI034 - nobody derives from it
        for work in (self._send, self._transact, self._delay, self._consume, self._subscribe):
            thread = threading.Thread(target=self._run, args=(work,), name=work.__name__)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[Client], Iterator[None]]) -> None:
        try:
            with connect(self._endpoints, timeout_s=60) as boom:
                for _ in work(boom):
                    if self._ended.is_set():
                        return
        except BaseException as error:  # noqa: BLE001 - told by `check`
            self.errors.append(error)

    def _send(self, boom: Client) -> Iterator[None]:
        with boom.producer() as producer:
            for number in range(1_000_000):
                values = [b"p%d-%d" % (number, each) for each in range(20)]
                producer.send_many("plain", values, queue=number % 3).result(60)
                work = [b"w%d-%d" % (number, each) for each in range(5)]
                producer.send_many("work", work, queue=number % 2).result(60)
                self.plain += values
                yield

    def _transact(self, boom: Client) -> Iterator[None]:
        with boom.producer() as producer:
            for number in range(1_000_000):
                value = b"t%d" % number
                with producer.transaction("transfers") as txn:
                    txn.send("debits", value, queue=number % 2)
                    txn.send("credits", value, queue=number % 3)
                    txn.send("credits", value, queue=(number + 1) % 3)
                    if number % 5 == 4:
                        txn.abort()
                if number % 5 != 4:
                    self.committed.append(value)
                yield

    def _delay(self, boom: Client) -> Iterator[None]:
        with boom.producer() as producer:
            for number in range(1_000_000):
                value = b"d%d" % number
                producer.send("later", value, delay_s=(number % 4) * 2.0).result(60)
                self.later.append(value)
                yield

    def _consume(self, boom: Client) -> Iterator[None]:
        with boom.consumer("plain", group="readers") as consumer:
            while True:
                found = consumer.poll(100, timeout_s=0.2)
                for message in found:
                    consumer.ack(message)
                consumer.commit()
                for message in found:
                    before = self.group.get(message.queue, 0)
                    self.group[message.queue] = max(before, message.offset + 1)
                yield

    def _subscribe(self, boom: Client) -> Iterator[None]:
        """Copy what is to be done into the results, and acknowledge it then."""
        with (
            boom.producer() as producer,
            boom.subscribe("work", subscription="workers", type="shared", start="first") as worker,
        ):
            while True:
                found = worker.poll(50, timeout_s=0.2)
                done = [producer.send("results", bytes(message.value or b"")) for message in found]
                for each in done:
                    each.result(60)
                worker.ack(found)
                worker.flush(60)
                self.acked += [bytes(message.value or b"") for message in found]
                yield

    def wait_for(self, transactions: int) -> None:
        """Wait until as many were committed, and something of all else was done."""

        def done() -> bool:
            rest = self.acked and self.group and self.later
            return bool(self.errors or (len(self.committed) > transactions and rest))

        wait_until(done, "all clients work")

    def check(self) -> None:
        """Fail if a client has failed."""
        for error in self.errors:
            raise error


class Done:
    """What was acknowledged before a backup began."""

    def __init__(self, load: Load) -> None:
        self.plain, self.committed = set(load.plain), set(load.committed)
        self.later, self.group = set(load.later), dict(load.group)
        self.acked = set(load.acked)


@contextmanager
def cluster(
    name_servers: int, brokers: int, topics: Sequence[str] = TOPICS
) -> Iterator[tuple[Cluster, Client]]:
    """A cluster, and an operator's client."""
    with ExitStack() as stack:
        nodes = stack.enter_context(Cluster(name_servers=name_servers, brokers=brokers))
        key = read_key(nodes.data / KEY_FILE)
        boom = stack.enter_context(connect(nodes.endpoints, cluster_key=key, timeout_s=60))
        for topic, queues in zip(topics, (3, 2, 3, 2, 2, 2), strict=False):
            boom.admin.create_topic(topic, queues=queues)
        yield nodes, boom


def check(contents: BackupContents, done: Done) -> None:
    """Everything that was acknowledged before is there, and nothing by half."""
    plain = contents.values("plain")
    assert done.plain <= plain.keys()
    assert set(plain.values()) == {1}
    debits, credited = contents.values("debits"), contents.values("credits")
    assert done.committed <= debits.keys()
    # All or nothing, in all queues of both topics; and never what was aborted.
    assert set(debits.values()) == {1}
    assert credited == dict.fromkeys(debits, 2)
    assert not [value for value in debits if int(value[1:]) % 5 == 4]
    later = contents.values("later") + contents.delayed("later")
    assert done.later <= later.keys()
    assert set(later.values()) == {1}
    groups = {each.group.name: each for each in contents.state.groups}
    (offsets,) = [each for each in groups["readers"].offsets if each.topic == "plain"]
    for queue, committed in enumerate(offsets.committed):
        assert max(0, committed) <= contents.queues["plain", queue].end
        assert committed >= done.group.get(queue, 0)
    results = contents.values("results")
    acked = set()
    for (topic, _), held in contents.queues.items():
        if topic == "work":
            for offset in held.acked.get("workers", ()):
                assert offset < held.end
                acked.add(held.value(offset))
    # What is acknowledged has its result, and what was confirmed before is acknowledged.
    assert acked <= results.keys()
    assert done.acked <= acked


@pytest.mark.parametrize(
    ("name_servers", "brokers"), [(1, 2), pytest.param(3, 3, marks=pytest.mark.thorough)]
)
def test_three_backups_under_load_are_true_cuts(
    name_servers: int, brokers: int, tmp_path: Path
) -> None:
    store = BackupStore(str(tmp_path / "backups"))
    reader = BackupReader(store)
    with cluster(name_servers, brokers) as (nodes, boom), Load(",".join(nodes.endpoints)) as load:
        befores = {}
        for number in range(3):
            load.wait_for((number + 1) * 5)
            load.check()
            done = Done(load)
            manifest = BackupWriter(boom, store, SLOWLY).create()
            befores[manifest.id] = done
            assert manifest.notes == []
        load.check()
    ids = reader.ids()
    assert list(befores) == ids
    for backup, before in zip(ids, ["", *ids], strict=False):
        contents = BackupContents(reader, backup)
        assert contents.manifest.base == before
        assert verify(reader, contents.manifest).faults == []
        check(contents, befores[backup])
    # Each has only what is new.
    last = reader.manifest(ids[-1])
    assert last.needs() == set(ids)
    assert last.new_bytes < last.size
    assert time.time() * 1000 > last.ended_ms >= last.begun_ms
