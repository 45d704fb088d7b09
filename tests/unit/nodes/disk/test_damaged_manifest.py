"""The broker's store with a MANIFEST that was cut, flipped, or torn by a power failure."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.log.keys import queue_end, queue_key
from logboom.wire.errors import StartError
from logboom.wire.rocksdb_log import torn_from

NODE = "broker-1"
WRITER = """
import os, shutil, sys
from pathlib import Path
from logboom.nodes.log.keys import log_key
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.disk import rocks_storage, write_journal
from logboom.nodes.disk.rocks_storage import RocksStorage

# A segment for each sync, used again as soon as its write is flushed.
write_journal.SEGMENT_BYTES = rocks_storage.SAMPLE_BYTES = 1
path = Path(sys.argv[1])
store = RocksStorage(path, "broker-1")
for number in range(8):
    writes = WriteSet()
    writes.put("log", log_key(1, 0, number), number.to_bytes(8, "big") * 400)
    writes.put("state", b"end", number.to_bytes(8, "big"))
    store.write(writes)
    store.sync()
    if str(number) in sys.argv[2:]:
        shutil.copytree(path, path.with_name(f"{path.name}-{number}"))
        store._flush()
os.kill(os.getpid(), 9)
"""
"""Writes, flushes behind some of the writes, after it has copied the folder, and is killed."""


class Outcome(NamedTuple):
    """What an opening found."""

    numbers: list[int]
    suspect: bool
    store_id: str


def write(path: Path, *flushes: int) -> None:
    """Eight synced writes."""
    words = [sys.executable, "-c", WRITER, str(path), *map(str, flushes)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL


def look(path: Path) -> Outcome:
    store = RocksStorage(path, NODE)
    try:
        entries = store.scan("log", queue_key(1, 0), queue_end(1, 0))
        numbers = [int.from_bytes(entry[:8], "big") for _, entry in entries]
        return Outcome(numbers, store.suspect, store.store_id)
    finally:
        store.close()


def manifest_of(path: Path) -> Path:
    return path / "db" / (path / "db" / "CURRENT").read_text().strip()


def spoiled(content: bytes, step: int) -> list[bytes]:
    """The content cut, and with a flipped bit, at places all over it, and cut behind records."""
    ends = {torn_from(content[:end] + b"?") or 0 for end in range(len(content))}
    found = [content[:end] for end in sorted(ends)[::3]]
    for place in range(0, len(content), step):
        flipped = bytearray(content)
        flipped[place] ^= 0x10
        found += [content[:place], bytes(flipped)]
    return found


@pytest.mark.parametrize("flushes", [(), (2, 5)])
def test_q14_no_damage_to_the_manifest_deletes_anything_without_a_word(
    tmp_path: Path, flushes: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """The store is whole, or set aside with all of its files, or suspect; never silently less."""
    write(tmp_path / "a", *flushes)
    content = manifest_of(tmp_path / "a").read_bytes()
    before = {file.name for file in (tmp_path / "a" / "db").iterdir()}
    data = {name for name in before if name.endswith((".sst", ".blob", ".journal"))}
    outcomes = set()
    for number, damaged in enumerate(spoiled(content, len(content) // 6)):
        path = tmp_path / f"damaged-{number}"
        shutil.copytree(tmp_path / "a", path)
        manifest = manifest_of(path)
        manifest.write_bytes(damaged)
        caplog.clear()
        outcome = look(path)
        if outcome.numbers == list(range(8)) and not outcome.suspect:
            outcomes.add("whole")
            continue
        assert outcome.numbers == []
        assert "is damaged" in caplog.text
        assert "store recover" in caplog.text
        aside = path / "damaged-1"
        assert data <= {file.name for file in aside.iterdir()}
        outcomes.add("aside")
        # It is no loss of the new store.
        assert look(path)._replace(numbers=[]) == outcome
    assert "aside" in outcomes


def test_q14_a_manifest_that_ends_too_early_behind_a_whole_record_removes_no_tables(
    tmp_path: Path,
) -> None:
    """RocksDB would take the tables for what an unfinished flush has left."""
    write(tmp_path / "a", 2, 5)
    today, path = tmp_path / "a" / "db", tmp_path / "a-5"
    # As the store was before its last flush, but for its journal, which has gone on.
    for file in (path / "db").glob("*.journal"):
        file.unlink()
    for file in [*today.glob("*.journal"), *today.glob("*.sst"), *today.glob("*.blob")]:
        shutil.copy(file, path / "db")
    shutil.copy(tmp_path / "a" / "synced", path)
    data = {file.name for file in (path / "db").iterdir() if file.suffix in (".sst", ".blob")}
    assert look(path).numbers == []
    assert data <= {file.name for file in (path / "damaged-1").iterdir()}


def whole(manifest: bytes) -> bool:
    return torn_from(manifest) is None


@pytest.mark.parametrize("how", ["nothing", "half", "a hole", "flipped", "zeros", "no last page"])
def test_q13_a_torn_end_of_the_manifest_was_never_synced(tmp_path: Path, how: str) -> None:
    """The power fails while RocksDB appends to it, as it does for each flush."""
    write(tmp_path / "a", 5)
    manifest = manifest_of(tmp_path / "a-5")
    before, after = manifest.read_bytes(), manifest_of(tmp_path / "a").read_bytes()
    assert after.startswith(before)
    behind = after[len(before) :]
    # What a flush appends; a compaction follows, which removes its table.
    appended = behind[: next(end for end in range(1, len(behind)) if whole(before + behind[:end]))]
    half = len(appended) // 2
    torn = {
        "nothing": b"",
        "half": appended[:half],
        "a hole": appended[: half // 2] + bytes(half) + appended[half // 2 + half :],
        "flipped": appended[:-3] + bytes([appended[-3] ^ 1]) + appended[-2:],
        "zeros": bytes(len(appended)),
        "no last page": appended[:half].ljust(len(appended), b"\0"),
    }[how]
    manifest.write_bytes(before + torn)
    outcome = look(tmp_path / "a-5")
    assert outcome.numbers == list(range(6))
    assert not outcome.suspect
    assert not list((tmp_path / "a-5").glob("damaged-*"))


def test_a_store_that_another_process_has_open_is_not_touched(tmp_path: Path) -> None:
    """Its MANIFEST may just be half written, and its newest write may have no number in `synced`."""
    write(tmp_path)
    manifest = manifest_of(tmp_path)
    with manifest.open("ab") as file:
        file.write(b"half")
    content = manifest.read_bytes()
    words = (
        "import fcntl, sys",
        "file = open(sys.argv[1], 'a')",
        "fcntl.lockf(file, fcntl.LOCK_EX)",
        "print(flush=True)",
        "sys.stdin.read()",
    )
    child = subprocess.Popen(
        [sys.executable, "-c", "\n".join(words), str(tmp_path / "db" / "LOCK")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"\n"
    with pytest.raises(StartError, match="is in use"):
        RocksStorage(tmp_path, NODE)
    child.communicate()
    assert manifest.read_bytes() == content
    assert look(tmp_path).numbers == list(range(8))
