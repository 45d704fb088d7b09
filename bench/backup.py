"""Backups to a local folder and back, beside `cp` of the same bytes; increments, and memory."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from bench.figures import Figure, compared
from bench.idle import resident_mb
from bench.references import Reference
from logboom.backup.backup_checks import verify
from logboom.backup.backup_reader import BackupReader
from logboom.backup.backup_writer import BackupOptions, BackupWriter
from logboom.backup.object_store import BackupStore
from logboom.backup.restore import Restore
from logboom.backup.restore_plan import RestoreOptions, plan_restore
from logboom.client import Client, connect
from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.deploy.layout import KEY_FILE

if TYPE_CHECKING:
    from logboom.backup.backup_format import Manifest

QUEUES: Final = 8
BATCH: Final = 100
VALUE_BYTES: Final = 1_000
SPEED: Final = 0.5
"""Part of the speed of `cp` that a backup has to reach."""
INCREMENT: Final = 0.05
"""Part of the first backup's bytes that one after 1 % new data may have."""
MEMORY: Final = 1.2
"""Multiple of its memory that a node may have while it is backed up."""
SAMPLE_S: Final = 0.02


class _Memory:
    """The greatest memory of some processes within a block, in multiples of that before it."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._before = {name: resident_mb(pid) for name, pid in pids.items()}
        self._most = dict(self._before)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            for name, pid in self._pids.items():
                self._most[name] = max(self._most[name], resident_mb(pid))

    def growth(self, prefix: str) -> float:
        """Return the worst of the nodes whose names begin so."""
        return max(
            self._most[name] / self._before[name] for name in self._pids if name.startswith(prefix)
        )


def rows(size_mb: int, rounds: int) -> list[Figure]:
    """Back up a cluster of one broker again and again, each time completely.

    Args:
        size_mb: MiB of messages.
        rounds: How many times.
    """
    with (
        tempfile.TemporaryDirectory(prefix="logboom-bench-") as folder,
        Cluster(name_servers=1, brokers=1) as cluster,
        connect(cluster.endpoints, cluster_key=read_key(cluster.data / KEY_FILE)) as boom,
    ):
        boom.admin.create_topic("stored", queues=QUEUES)
        _fill(boom, size_mb * 2**20)
        root = Path(folder)
        first = _back_up(boom, root / "first")
        source = root / "first" / first.id
        same = Reference(
            "cp of the same bytes, MiB/s", lambda: _copied(source, root / "copy", first)
        )
        pids = {name: cluster.pid(name) for name in cluster.nodes}
        with _Memory(pids) as memory:
            speed, durable = same.beside(
                rounds, lambda number: [_timed(boom, root / f"round{number}")] * 2
            )
        (read,) = same.beside(rounds, lambda _: [_verified(root / "first", first)])
        with _Memory(pids) as restoring:
            (back,) = same.beside(
                rounds, lambda number: [_restored(boom, root / "first", first, f"copy{number}")]
            )
        _fill(boom, size_mb * 2**20 // 100)
        second = _back_up(boom, root / "first")
        assert second.base == first.id
        share = second.new_bytes / first.new_bytes
    return [
        compared(f"backup of {first.size / 2**20:,.0f} MiB to a folder", speed, "MiB/s", SPEED),
        compared("  … beside cp and sync", durable, "MiB/s"),
        compared("  … verified", read, "MiB/s"),
        compared("  … restored beside the topic", back, "MiB/s", SPEED),
        Figure("  … memory of the broker meanwhile", restoring.growth("broker-"), "x"),
        Figure("  … a second one after 1 % new data, bytes", share, "x", INCREMENT, "less"),
        Figure("  … memory of the broker, worst", memory.growth("broker-"), "x", MEMORY, "less"),
        Figure("  … of the name server, worst", memory.growth("name-"), "x", MEMORY, "less"),
    ]


def _fill(boom: Client, size: int) -> None:
    """Send messages whose values do not compress."""
    values = [
        bytes((number * 7 + at) % 251 for at in range(VALUE_BYTES)) for number in range(BATCH)
    ]
    with boom.producer() as producer:
        sent = [
            producer.send_many("stored", values, queue=number % QUEUES)
            for number in range(-(-size // (BATCH * VALUE_BYTES)))
        ]
        for future in sent:
            future.result(120)


def _back_up(boom: Client, folder: Path) -> Manifest:
    return BackupWriter(boom, BackupStore(str(folder)), BackupOptions()).create()


def _timed(boom: Client, folder: Path) -> float:
    """Return MiB/s of a complete backup."""
    begun = time.monotonic()
    made = _back_up(boom, folder)
    spent = time.monotonic() - begun
    shutil.rmtree(folder)
    return made.size / 2**20 / spent


def _verified(folder: Path, manifest: Manifest) -> float:
    """Return MiB/s of verifying a backup."""
    begun = time.monotonic()
    check = verify(BackupReader(BackupStore(str(folder))), manifest)
    assert check.faults == []
    return check.size / 2**20 / (time.monotonic() - begun)


def _restored(boom: Client, folder: Path, manifest: Manifest, name: str) -> float:
    """Return MiB/s of a restore under another name, until it may be read."""
    reader = BackupReader(BackupStore(str(folder)))
    state = reader.state(manifest)
    begun = time.monotonic()
    options = RestoreOptions(new_name=name)
    plan = plan_restore(manifest, state, boom.admin.read_state(), options)
    report = Restore(boom, reader, manifest, state, plan).run()
    spent = time.monotonic() - begun
    boom.admin.delete_topic(name)
    return report.size / 2**20 / spent


def _copied(source: Path, target: Path, manifest: Manifest) -> tuple[float, float]:
    """Return MiB/s of `cp`, and of `cp` and `sync`: a backup is on the disk when it ends."""
    begun = time.monotonic()
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    copied = time.monotonic() - begun
    files = [str(path) for path in target.rglob("*") if path.is_file()]
    subprocess.run(["sync", *files], check=True)
    synced = time.monotonic() - begun
    shutil.rmtree(target)
    return manifest.size / 2**20 / copied, manifest.size / 2**20 / synced
