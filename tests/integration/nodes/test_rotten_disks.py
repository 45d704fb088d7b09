"""Flipped bytes in the files of a real broker: found, healed from the others, byte for byte."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from logboom.client import Client, connect
from logboom.deploy import Cluster
from logboom.nodes.disk.journal_records import read_header, scan_segment
from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.log.keys import LAST_SIDE, log_key
from tests.integration.cli.command import logboom
from tests.integration.waiting import wait_until
from tests.thorough import few_of

QUEUES = 3
BROKERS = ("broker-1", "broker-2", "broker-3")


class Rotten:
    """Three brokers that hold everything; one of them has a bad disk."""

    def __init__(self, cluster: Cluster, boom: Client) -> None:
        self.cluster = cluster
        self.boom = boom
        self.sent: dict[bytes, tuple[int, int]] = {}
        """Value → (queue, offset) of all that was acknowledged."""
        self.victim = cluster.leader("flights", 0, 200.0)
        self.rng = random.Random(7)

    def produce(self, count: int) -> None:
        """Messages that go to blob files, and small ones that stay in tables."""
        with self.boom.producer(acks="all") as producer:
            waiting = []
            for number in range(len(self.sent), len(self.sent) + count):
                value = b"%d " % number + self.rng.randbytes(2_000 if number % 4 else 20)
                queue = number % QUEUES
                waiting.append((value, producer.send("flights", value, queue=queue)))
                if number % 50 == 0:
                    producer.flush()
            for value, future in waiting:
                result = future.result()
                self.sent[value] = (result.queue, result.offset)

    def folder(self, broker: str | None = None) -> Path:
        """Where a broker's RocksDB lies."""
        return self.cluster.data / (broker or self.victim) / "data" / "db"

    def settle_files(self) -> None:
        """A restart brings everything from the journal into tables and blob files."""
        self.cluster.stop(self.victim)
        self.cluster.start(self.victim)
        self.wait_in_sync()

    def flip(self, pattern: str, times: int = 3) -> None:
        """Flip bytes in the largest file of a kind."""
        file = max(self.folder().glob(pattern), key=lambda path: path.stat().st_size)
        size = file.stat().st_size
        header = read_header(file.read_bytes())
        if header is not None:
            # A journal ends before its file does.
            size = scan_segment(header, file.read_bytes()).end
        with file.open("r+b") as content:
            for _ in range(times):
                # Within the data, not in the last pages, where the tables' own index is.
                at = self.rng.randrange(size // 10, size * 7 // 10)
                content.seek(at)
                byte = content.read(1)
                content.seek(at)
                content.write(bytes([byte[0] ^ 0x10]))

    def counter(self, name: str) -> float:
        """One of the victim's counters; it begins anew with each process."""
        for stats in self.boom.admin.stats():
            if stats.node == self.victim and stats.counters is not None:
                value = stats.counters.get(name, 0)
                return value if isinstance(value, int | float) else 0
        return 0

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until it holds; a node that ended is started again, as a service manager does."""
        deadline = time.monotonic() + 200.0
        while not holds():
            assert time.monotonic() < deadline, f"{what}\n{self.cluster.log(self.victim)}"
            if not self.cluster.running(self.victim):
                self.restart()
            # Other processes' state changes without a signal to us.
            time.sleep(0.1)

    def restart(self) -> None:
        """Start the victim after it ended by itself."""
        self.cluster.start(self.victim)

    def wait_in_sync(self) -> None:
        """All replicas of all queues are in sync."""
        self.wait(
            lambda: all(
                len(self.cluster.queue("flights", queue).isr) == 3 for queue in range(QUEUES)
            ),
            "not all replicas are in sync again",
        )

    def wait_healed(self) -> None:
        """Nothing is damaged any more, and two passes over all that is stored find nothing.

        Readers check what they serve. Only the passes check also what nobody is served, such as the
        bytes around an entry in its file.
        """
        finds = -1.0
        while finds != self.counter("scrub_finds"):
            self.wait(lambda: self.counter("damaged") == 0, "something is still damaged")
            finds, passes = self.counter("scrub_finds"), self.counter("scrub_passes")
            self.wait(partial(self._scrubbed, passes + 2), "nothing is scrubbed")

    def _scrubbed(self, passes: float) -> bool:
        return self.counter("scrub_passes") >= passes

    def read(self) -> dict[bytes, tuple[int, int]]:
        """Everything, as a consumer gets it."""
        found: dict[bytes, tuple[int, int]] = {}
        with self.boom.consumer("flights", queues=list(range(QUEUES)), start="first") as consumer:
            while len(found) < len(self.sent):
                messages = consumer.poll(1_000, 200.0)
                assert messages, f"only {len(found)} of {len(self.sent)} can be read"
                found |= {bytes(m.value or b""): (m.queue, m.offset) for m in messages}
        return found

    def check(self) -> None:
        """All that was acknowledged is read; the three logs are alike."""
        assert self.read() == self.sent
        for broker in BROKERS:
            self.cluster.stop(broker)
        logs = [self._log(broker) for broker in BROKERS]
        assert logs[0] == logs[1] == logs[2]
        assert sum(map(len, logs[0].values())) > len(self.sent) * 20

    def _log(self, broker: str) -> dict[bytes, bytes]:
        storage = RocksStorage(self.folder(broker).parent, broker)
        try:
            end = log_key(LAST_SIDE, LAST_SIDE, 0)
            return dict(storage.scan("log", log_key(0, 0, 0), end))
        finally:
            storage.close()


@pytest.fixture
def rotten() -> Iterator[Rotten]:
    """A cluster with some thousand messages."""
    settings = {"scrub_every_s": 0.5, "scrub_bytes_per_s": 1 << 30}
    with (
        Cluster(name_servers=1, brokers=3, broker_settings=settings) as cluster,
        connect(cluster.endpoints) as boom,
    ):
        boom.admin.create_topic("flights", queues=QUEUES, replicas=3)
        made = Rotten(cluster, boom)
        made.produce(1_500)
        yield made


def test_q14_a_blob_file_of_a_running_broker(rotten: Rotten) -> None:
    rotten.settle_files()
    rotten.flip("*.blob")
    begun = time.monotonic()
    rotten.wait(lambda: rotten.counter("mended") > 0, "nothing was mended")
    sys.stderr.write(f"\nblob: healed {time.monotonic() - begun:.1f} s after the flip\n")
    rotten.produce(60)
    rotten.wait_healed()
    rotten.wait_in_sync()
    assert rotten.counter("stores_set_aside") == 0
    said = rotten.cluster.log(rotten.victim)
    assert re.search(r"damage_found topic=flights queue=\d offset=\d+ error=.*blob file", said)
    assert re.search(r"damage_mended topic=flights queue=\d", said)
    rotten.check()


@pytest.mark.parametrize("pattern", few_of(["*.blob", "*.sst"], ["*.blob"]))
def test_q14_files_of_a_stopped_broker(rotten: Rotten, pattern: str) -> None:
    rotten.settle_files()
    rotten.cluster.stop(rotten.victim)
    rotten.flip(pattern)
    rotten.produce(60)
    rotten.cluster.start(rotten.victim)
    rotten.wait_in_sync()
    rotten.wait_healed()
    rotten.wait(lambda: rotten.counter("scrub_passes") > 1, "it does not scrub")
    rotten.wait_in_sync()
    rotten.check()


@pytest.mark.thorough
def test_q14_a_table_of_a_running_broker(rotten: Rotten) -> None:
    rotten.settle_files()
    rotten.flip("*.sst")
    # What is in memory hides it until the next start.
    rotten.cluster.kill(rotten.victim)
    rotten.cluster.start(rotten.victim)
    rotten.produce(60)
    rotten.wait_in_sync()
    rotten.wait_healed()
    rotten.wait(lambda: rotten.counter("scrub_passes") > 1, "it does not scrub")
    rotten.wait_in_sync()
    rotten.check()


@pytest.mark.thorough
def test_q13_the_journal_of_a_killed_broker(rotten: Rotten) -> None:
    rotten.cluster.kill(rotten.victim)
    rotten.flip("*.journal")
    rotten.produce(60)
    rotten.cluster.start(rotten.victim)
    rotten.wait_in_sync()
    assert "was synced, but the journal ends at write" in rotten.cluster.log(rotten.victim)
    rotten.check()


@pytest.mark.thorough
def test_q14_a_store_that_cannot_be_opened(rotten: Rotten) -> None:
    rotten.settle_files()
    rotten.cluster.kill(rotten.victim)
    for file in rotten.folder().glob("MANIFEST-*"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0x10
        file.write_bytes(content)
    rotten.cluster.start(rotten.victim)
    rotten.wait_in_sync()
    rotten.wait(lambda: rotten.counter("stores_set_aside") == 1, "no store is set aside")
    assert (rotten.folder().parent / "damaged-1").is_dir()
    rotten.check()


def test_q14_a_damaged_only_copy_is_never_replaced_in_silence(rotten: Rotten) -> None:
    cluster, boom = rotten.cluster, rotten.boom
    boom.admin.create_topic("alone", queues=3, replicas=1)
    queue = next(n for n in range(3) if cluster.leader("alone", n, 200.0) == rotten.victim)
    with boom.producer() as producer:
        producer.send("alone", b"precious", queue=queue).result()
    rotten.settle_files()
    cluster.stop(rotten.victim)
    for file in rotten.folder().glob("MANIFEST-*"):
        file.write_bytes(file.read_bytes()[:20] + bytes(40))
    cluster.start(rotten.victim)
    rotten.wait_in_sync()
    # It does not come back empty: nobody leads, and all is still there for an operator.
    assert cluster.queue("alone", queue).leader is None
    assert any((rotten.folder().parent / "damaged-1").glob("*.sst"))
    assert re.search(r"MANIFEST-\d+ is damaged.*kept as damaged-1", cluster.log(rotten.victim))
    old = f"old stores of {rotten.victim}"
    results: dict[str, str] = {}

    def is_told() -> bool:
        told = logboom("doctor", "-o", "json", servers=cluster.endpoint(rotten.victim))
        assert told.code == 1
        results.update({row["check"]: row["result"] for row in told.json})
        return old in results

    # A busy broker may not answer within the two seconds that it is given.
    wait_until(is_told, "the old store is not told of")
    assert results[old] == "warning"
    assert results["every queue has a leader"] == "failed"
    # Unless an operator says so.
    boom.admin.alter_topic("alone", unclean_election=True)
    assert cluster.leader("alone", queue, 200.0) == rotten.victim
