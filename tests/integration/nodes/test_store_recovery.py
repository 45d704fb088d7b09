"""Queues with one copy, in a store that was damaged and set aside: what is whole comes back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logboom.client import Client, connect
from logboom.deploy import Cluster
from tests.integration.cli.command import logboom
from tests.integration.waiting import wait_until
from tests.thorough import few_of

QUEUES = 4
VICTIM = "broker-1"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One name server, two brokers."""
    with Cluster(name_servers=1, brokers=2, data=tmp_path) as running:
        yield running


class Sent:
    """What was acknowledged."""

    def __init__(self, boom: Client, cluster: Cluster) -> None:
        self.boom = boom
        self.cluster = cluster
        self.values: dict[tuple[str, int, int], bytes] = {}
        self.rng = random.Random(5)

    def produce(self, topic: str, count: int, queues: int = QUEUES) -> None:
        """Batches for blob files and batches that stay in tables."""
        with self.boom.producer(acks="all") as producer:
            for number in range(count):
                value = b"%d " % len(self.values) + self.rng.randbytes(1_500 if number % 3 else 30)
                sent = producer.send(topic, value, queue=number % QUEUES).result()
                self.values[topic, sent.queue, sent.offset] = value

    def read(self, topic: str) -> dict[tuple[str, int, int], bytes]:
        """Everything that can be read of a topic."""
        found = {}
        for queue in range(QUEUES):
            offset = 0
            while True:
                result = self.boom.pull(topic, queue=queue, offset=offset, max_messages=500)
                for message in result.messages:
                    found[topic, queue, message.offset] = message.value or b""
                if result.next_offset <= offset:
                    break
                offset = result.next_offset
        return found


def flip(path: Path, at: int) -> None:
    """Change one bit."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0x20
    path.write_bytes(content)


def largest(db: Path, pattern: str) -> Path:
    return max(db.glob(pattern), key=lambda file: file.stat().st_size)


def middle(pattern: str) -> Callable[[Path], None]:
    def damage(db: Path) -> None:
        path = largest(db, pattern)
        flip(path, path.stat().st_size // 2)

    return damage


def end(pattern: str) -> Callable[[Path], None]:
    def damage(db: Path) -> None:
        path = largest(db, pattern)
        flip(path, path.stat().st_size - 20)

    return damage


def several(db: Path) -> None:
    """One bit in each kind of file."""
    for damage in (middle("*.sst"), middle("*.blob"), middle("MANIFEST-*"), middle("CURRENT")):
        damage(db)


DAMAGES: dict[str, tuple[Callable[[Path], None], bool]] = {
    "footer": (end("*.sst"), False),
    "each": (several, True),
}
"""Name → what damages the store, and whether messages are lost by it. The unit tests go through each
kind of file."""


def set_aside(cluster: Cluster, damage: Callable[[Path], None]) -> Path:
    """Damage the victim's store, and let the broker keep it aside; its data folder."""
    folder = cluster.data / VICTIM / "data"
    cluster.stop(VICTIM)
    damage(folder / "db")
    # What RocksDB would notice one day; not every damage stops its opening.
    (folder / "condemned").write_text("found damaged while it ran\n")
    cluster.start(VICTIM)
    cluster.stop(VICTIM)
    assert (folder / "damaged-1").is_dir()
    return folder


def store(*words: str) -> list[dict[str, Any]]:
    done = logboom("store", *words, "-o", "json")
    assert done.code == 0, done.err
    found: list[dict[str, Any]] = done.json
    return found


def wait_led(boom: Client, topic: str) -> None:
    """Wait until each of its queues has a leader."""

    def led() -> bool:
        return all(queue.leader is not None for queue in boom.admin.describe_topic(topic).queues)

    wait_until(led, f"leaders of {topic}", 200)


@pytest.mark.parametrize("kind", few_of(DAMAGES, ["each"]))
def test_every_message_that_is_whole_comes_back_at_its_offset(cluster: Cluster, kind: str) -> None:
    damage, loses = DAMAGES[kind]
    servers = ",".join(cluster.endpoints)
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("single", queues=QUEUES, replicas=1)
        boom.admin.create_topic("double", queues=QUEUES, replicas=2)
        sent = Sent(boom, cluster)
        sent.produce("single", 150)
        sent.produce("double", 40)
        # A restart brings all of this into tables and blob files; the rest stays in the log.
        cluster.stop(VICTIM)
        cluster.start(VICTIM)
        wait_led(boom, "single")
        sent.produce("single", 90)
        folder = set_aside(cluster, damage)

        held = {row["store"]: row for row in store("inspect", str(folder), "-s", servers)}
        plan = store("recover", str(folder), "-s", servers)
        wanted = {
            (row["topic"], row["queue"]): row for row in plan if row["result"] == "to recover"
        }
        assert wanted
        assert {topic for topic, _ in wanted} == {"single"}
        assert any(row["topic"] == "double" and "heal" in row["result"] for row in plan)
        assert held["damaged-1"]["broker"] == VICTIM
        done = store("recover", str(folder), "-s", servers, "--yes")
        assert {row["result"] for row in done if row["topic"] == "single"} == {"recovered"}
        cluster.start(VICTIM)
        wait_led(boom, "single")

        lost = {
            ("single", queue, offset)
            for (_, queue), row in wanted.items()
            for first, behind in row["lost_offsets"]
            for offset in range(first, behind)
        }
        assert bool(lost) == loses
        assert len(lost) < 60
        whole = {place: value for place, value in sent.values.items() if place not in lost}
        assert sent.read("single") | sent.read("double") == whole
        ends = {queue: end for queue, (_, end) in boom.admin.offsets("single").items()}
        assert ends == {
            queue: 1 + max(offset for t, q, offset in sent.values if (t, q) == ("single", queue))
            for queue in range(QUEUES)
        }
        # All other readers pass over what is lost, also where it is the last that they asked for.
        for queue, end in ends.items():
            ranges = list(boom.read_range("single", queue, 0, end))
            offsets = [at for part in ranges for at in range(part.base_offset, part.next_offset)]
            assert offsets == [at for t, q, at in sorted(whole) if (t, q) == ("single", queue)]
        for _, queue, offset in sorted(lost)[:3]:
            assert list(boom.read_range("single", queue, offset, offset + 1)) == []
        everything = {place for place in whole if place[0] == "single"}
        with boom.consumer("single", group="late", start="first") as member:
            seen = set[tuple[str, int, int]]()
            while len(seen) < len(everything):
                found = member.poll(500, 200.0)
                assert found
                seen |= {(m.topic, m.queue, m.offset) for m in found}
                for message in found:
                    member.ack(message)
            member.commit()
            wait_until(
                lambda: boom.admin.committed("late", "single") == ends, "the group is at the end"
            )
        assert seen == everything
        fresh = Sent(boom, cluster)
        fresh.produce("single", 20)
        assert all(offset >= ends[queue] for _, queue, offset in fresh.values)
        assert sent.read("single") == {
            place: value for place, value in (whole | fresh.values).items() if place[0] == "single"
        }
