"""Data folders of every landed format open with today's code, and all messages are there."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from logboom.client import Client, Message, connect
from logboom.deploy import Cluster
from logboom.nodes.disk.data_folder import FORMAT
from tests.chaos.format_folders import BEGAN_MS, value

FORMATS = Path(__file__).parents[1] / "data" / "formats"


def test_today_s_format_has_its_folder() -> None:
    landed = sorted(int(path.name) for path in FORMATS.iterdir())
    # Format 3 is format 2 with what a recovery leaves: `tests/unit/nodes/salvage`.
    assert landed == [1, 2, FORMAT]


@pytest.mark.parametrize("landed", sorted(FORMATS.iterdir()), ids=lambda path: path.name)
def test_everything_in_it_is_read(landed: Path, tmp_path: Path) -> None:
    told = json.loads((landed / "content.json").read_text(encoding="utf-8"))
    with tarfile.open(landed / "cluster.tar.xz") as packed:
        # Before 3.11.4 Python knows no filters (Debian 12 has 3.11.2); from 3.12 on it wants one.
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(tmp_path)
    with Cluster(1, 1, tmp_path) as cluster, connect(cluster.endpoints) as boom:
        for topic in told["topics"]:
            for queue in range(told["queues"]):
                check(boom, topic, queue, told["count"], len(told["rounds"]))
        # It is at work, not only on show.
        with boom.producer() as producer:
            place = told["count"] * len(told["rounds"]) // told["queues"]
            assert producer.send("plain", b"after", queue=0).result().offset == place


def check(boom: Client, topic: str, queue: int, count: int, rounds: int) -> None:
    """Read a queue: each message as `format_folders` sent it."""
    places = [place for place in range(count) if place % 2 == queue]
    wanted = [
        (
            value(topic, number, place),
            b"key-%d" % place if place % 2 else None,
            "late" if place % 3 else None,
            {"round": b"%d" % number} if place % 5 else {},
            BEGAN_MS + place,
        )
        for number in range(rounds)
        for place in places
    ]
    with boom.consumer(topic, queues=[queue], start="first") as consumer:
        found: list[Message] = []
        while len(found) < len(wanted):
            messages = consumer.poll(len(wanted), 200.0)
            assert messages, f"{topic}/{queue}: {len(found)} of {len(wanted)}"
            found += messages
    assert [message.offset for message in found] == list(range(len(wanted)))
    assert [
        (m.value and bytes(m.value), m.key and bytes(m.key), m.tag, m.headers or {}, m.timestamp_ms)
        for m in found
    ] == wanted
