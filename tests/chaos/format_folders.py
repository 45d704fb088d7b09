"""Makes the data folders that stay for good: `python -m tests.chaos.format_folders`.

A cluster of one name server and one broker writes what today's format can hold; then its folders
are packed into `tests/data/formats/<format>/`, where `test_formats` opens them with the code of
the day. To be run once when a new format lands, before anything is changed again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logboom.client import Client, connect
from logboom.deploy import Cluster
from logboom.nodes.disk.data_folder import FORMAT

if TYPE_CHECKING:
    from logboom.client import Producer, Transaction

FOLDER: Final = Path("tests/data/formats")
TRANSACTED: Final = "transacted"
"""The topic whose rounds are one transaction each."""
TOPICS: Final = {"plain": "none", "fast": "lz4", "small": "zstd", TRANSACTED: "none"}
"""Topic → how its producer compresses."""
QUEUES: Final = 2
COUNT: Final = 60
"""Messages of each topic and round."""
ROUNDS: Final = ("in tables", "in the journal")
BEGAN_MS: Final = 1_700_000_000_000
NOT_OURS: Final = ("LOG", "OPTIONS-", "rocksdict-config", "LOCK", "node.", "shim")
"""Files that RocksDB and our nodes write anew at each start; they tell of the machine."""


def fill(boom: Client, number: int) -> None:
    """Send one round to every topic: with and without key, tag and headers."""
    for topic, compression in TOPICS.items():
        with boom.producer(compression=compression) as producer, ExitStack() as stack:
            sender: Producer | Transaction = producer
            if topic == TRANSACTED:
                sender = stack.enter_context(producer.transaction())
            sent = [
                sender.send(
                    topic,
                    value(topic, number, place),
                    key=b"key-%d" % place if place % 2 else None,
                    queue=place % QUEUES,
                    tag="late" if place % 3 else None,
                    headers={"round": b"%d" % number} if place % 5 else None,
                    timestamp_ms=BEGAN_MS + place,
                )
                for place in range(COUNT)
            ]
            stack.close()
            for future in sent:
                future.result()


def value(topic: str, number: int, place: int) -> bytes:
    """What message `place` of a round says."""
    return f"{topic}, round {number}, message {place}".encode() * (1 + place % 4)


def make(folder: Path) -> None:
    """Write the folders of a cluster that ended by a kill, as tables and a journal."""
    with Cluster(1, 1, folder) as cluster:
        with connect(cluster.endpoints) as boom:
            for topic in TOPICS:
                boom.admin.create_topic(topic, queues=QUEUES, replicas=1, retention_ms=-1)
            fill(boom, 0)
        for name in reversed(cluster.nodes):
            # What a broker has in memory becomes a table when it stops.
            cluster.stop(name)
        for name in cluster.nodes:
            cluster.start(name, wait=False)
        cluster.wait_ready()
        with connect(cluster.endpoints) as boom:
            boom.admin.alter_topic(next(iter(TOPICS)), queues=QUEUES + 1)
            fill(boom, 1)
        for name in reversed(cluster.nodes):
            cluster.kill(name)


def pack(folder: Path, into: Path) -> None:
    """Pack everything that is ours into one file."""
    into.mkdir(parents=True, exist_ok=True)

    def ours(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return None if Path(entry.name).name.startswith(NOT_OURS) else entry

    with tarfile.open(into / "cluster.tar.xz", "w:xz") as packed:
        packed.add(folder, ".", filter=ours)
    told = {"format": FORMAT, "topics": TOPICS, "queues": QUEUES, "count": COUNT, "rounds": ROUNDS}
    (into / "content.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    """Make the folders of today's format."""
    if "--named" not in sys.argv:
        # RocksDB writes the name of the machine into its tables: it shall be a name of no machine.
        named = f"hostname machine; exec {sys.executable} -m tests.chaos.format_folders --named"
        return subprocess.run(["unshare", "--uts", "sh", "-c", named], check=False).returncode
    folder = Path(tempfile.gettempdir(), "logboom-format")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        make(folder)
        pack(folder, FOLDER / str(FORMAT))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
