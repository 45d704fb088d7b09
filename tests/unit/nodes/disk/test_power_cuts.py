"""The broker's real store under power cuts: what was synced stays, whatever else the disk did."""

from __future__ import annotations

import os
import random

import pytest

from logboom.nodes.disk.journal_records import RECORDS_START, read_header, scan_segment
from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.log.keys import queue_end, queue_key
from tests.chaos.machine import Machine
from tests.thorough import seeds

NODE = "broker-1"
PRELUDE = """
import os, random, sys
from pathlib import Path
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.disk import rocks_storage, write_journal
from logboom.nodes.disk.journal_files import JournalFiles
from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.log.keys import log_key

# Memtables and segments are full after some writes.
rocks_storage.LOG_BUFFER = rocks_storage.SMALL_BUFFER = 64 << 10
rocks_storage.SAMPLE_BYTES = 1
write_journal.SEGMENT_BYTES, write_journal.STEP_BYTES = 40 << 10, 12 << 10

def opened():
    return RocksStorage(Path(sys.argv[1]), "broker-1")

def one(number):
    writes = WriteSet()
    size = (40, 400, 6_000)[number % 3]
    writes.put("log", log_key(1, 0, number), number.to_bytes(8, "big") + bytes([number % 251]) * size)
    writes.put("state", b"end", number.to_bytes(8, "big"))
    return writes

def say(word):
    print(word, flush=True)
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine with a built shim."""
    return Machine(tmp_path_factory.mktemp("machine"))


class Bench:
    """One broker's store on a machine whose power fails."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self.path = machine.folder(name)

    def run(
        self, *lines: str, word: str = "", die_at: int | None = None, fail_sync: int | None = None
    ) -> list[str]:
        """Run Python beside the store and kill it at the end, or before; what it said."""
        code = "\n".join([PRELUDE, *lines])
        return self.machine.run(self.name, code, word, die_at=die_at, fail_sync=fail_sync)

    def shorten(self, left: int) -> None:
        """The journal, a single segment, ends behind so many records."""
        (file,) = (self.path / "db").glob("*.journal")
        content = file.read_bytes()
        header = read_header(content)
        assert header is not None
        ends = [RECORDS_START]
        ends += [record.at + record.size for record in scan_segment(header, content).records]
        os.truncate(file, ends[left])
        self.machine.forget(self.name)

    def cut(self, seed: int | None = None, *, reordered: bool = False) -> int:
        """The power fails."""
        rng = None if seed is None else random.Random(seed)
        return self.machine.cut_power(self.name, rng, reordered=reordered)

    def numbers(self) -> tuple[list[int], bool]:
        """The numbers of the writes that are there, and whether the store is suspect."""
        store = RocksStorage(self.path, NODE)
        try:
            found = []
            for key, entry in store.scan("log", queue_key(1, 0), queue_end(1, 0)):
                number = int.from_bytes(key[8:16], "big")
                assert entry[:8] == number.to_bytes(8, "big")
                assert set(entry[8:]) == {number % 251}
                found.append(number)
            end = store.get("state", b"end")
            assert end == (found[-1].to_bytes(8, "big") if found else None)
            return found, store.suspect
        finally:
            store.close()
            # Not opened behind the shim: what it remembers is no longer true.
            self.machine.forget(self.name)


def test_what_a_sync_said_is_on_disk(machine: Machine) -> None:
    bench = Bench(machine, "synced")
    bench.run(
        "store = opened()",
        "for number in range(5): store.write(one(number))",
        "store.sync()",
        "store.write(one(5))",
    )
    assert bench.cut() > 0
    assert bench.numbers() == ([0, 1, 2, 3, 4], False)


def test_what_an_opening_finds_is_on_disk_from_then_on(machine: Machine) -> None:
    """A killed process leaves its writes in the page cache; replicas count them as synced."""
    bench = Bench(machine, "opening")
    bench.run(
        "store = opened()",
        "for number in range(5): store.write(one(number))",
        "JournalFiles.sync = lambda files, handle: os.kill(os.getpid(), 9)",
        "store.sync()",
    )
    bench.run("store = opened()")
    bench.cut()
    assert bench.numbers() == ([0, 1, 2, 3, 4], False)


def test_a_store_that_was_absolved_is_not_suspect_again_for_the_same_loss(machine: Machine) -> None:
    bench = Bench(machine, "absolved")
    bench.run(*WRITES)
    bench.shorten(3)
    assert bench.run("store = opened()", "say(store.suspect)", "store.absolve()") == ["True"]
    bench.cut()
    assert bench.numbers() == ([0, 1, 2], False)


WRITES = (
    "store = opened()",
    "for number in range(5): store.write(one(number))",
    "store.sync()",
    "for number in range(5, 8): store.write(one(number))",
    "JournalFiles.sync = lambda files, handle: os.kill(os.getpid(), 9)",
    "store.sync()",
)
"""Eight writes, of which five were synced; the others are in the page cache."""


@pytest.mark.parametrize("left", [0, 3, 4, 5, 6, 8])
def test_q13_a_store_is_suspect_if_and_only_if_a_synced_write_is_gone(
    machine: Machine, left: int
) -> None:
    bench = Bench(machine, f"left-{left}")
    bench.run(*WRITES)
    bench.shorten(left)
    assert bench.numbers() == (list(range(left)), left < 5)


def test_q13_what_is_written_while_a_sync_runs_was_not_synced(machine: Machine) -> None:
    bench = Bench(machine, "meanwhile")
    bench.run(
        "store = opened()",
        "real = JournalFiles.sync",
        "def busy(files, handle):",
        "    real(files, handle)",
        "    store.write(one(1))",
        "store.write(one(0))",
        "JournalFiles.sync = busy",
        "store.sync()",
    )
    assert bench.numbers() == ([0], False)


@pytest.mark.parametrize("operation", [1, 2, 4, 9, 30])
def test_a_first_start_that_was_killed_is_begun_again(machine: Machine, operation: int) -> None:
    bench = Bench(machine, f"first-{operation}")
    assert bench.run("store = opened()", die_at=operation) == []
    assert bench.numbers() == ([], False)


@pytest.mark.parametrize("sync", [1, 13, 14, 16, 17, 18, 20])
def test_q14_a_sync_that_fails_is_told_in_one_line_and_never_tried_again(
    machine: Machine, sync: int
) -> None:
    """At whatever stage: an opening, a new store's first flush, or a sync of the loop."""
    bench = Bench(machine, f"fails-{sync}")
    said = bench.run(
        "from logboom.wire.errors import DataDamaged, StartError",
        "store = None",
        "try:",
        "    store = opened()",
        "    for number in range(3): store.write(one(number)); store.sync(); say(number)",
        "except (DataDamaged, StartError) as error:",
        "    say(type(error).__name__ + '|' + str(error).replace(' ', '_'))",
        "if store is not None:",
        "    try: store.sync()",
        "    except DataDamaged as error: say('second|' + str(error).replace(' ', '_'))",
        fail_sync=sync,
    )
    synced = [int(word) for word in said if word.isdigit()]
    first, *second = said[len(synced) :]
    if second:
        assert first.startswith("DataDamaged|the_store_in")
        assert second[0].endswith("has_failed_before:_start_anew")
    else:
        assert first.startswith("StartError|")
        assert "check" in first
    bench.cut()
    assert bench.numbers() == (synced, False)


WORKLOAD = """
rng = random.Random(sys.argv[2])
store = opened()
first = int.from_bytes(store.get("state", b"end") or (2**64 - 1).to_bytes(8, "big"), "big") + 1 & 2**64 - 1
say(f"open:{first}")
for number in range(first, first + 60):
    store.write(one(number))
    if rng.random() < 0.4:
        store.sync()
        say(f"synced:{number}")
    if rng.random() < 0.05:
        # All families, at one point.
        store._database.compact_range(None, None)
    if rng.random() < 0.05:
        store.close()
        store = opened()
        say(f"synced:{number}")
"""


@pytest.mark.parametrize("reordered", [False, True])
@pytest.mark.parametrize("seed", seeds(4))
def test_q1_power_fails_anywhere_and_nothing_that_was_synced_goes(
    machine: Machine, seed: int, reordered: bool
) -> None:
    rng = random.Random(seed)
    bench = Bench(machine, f"anywhere-{seed}-{reordered}")
    synced = -1
    for life in range(3):
        said = bench.run(WORKLOAD, word=f"{seed}-{life}", die_at=rng.randrange(1, 400))
        for word in said:
            kind, _, number = word.partition(":")
            synced = max(synced, int(number) - (kind == "open"))
        if rng.random() < 0.8:
            bench.cut(rng.randrange(1 << 30) if rng.random() < 0.8 else None, reordered=reordered)
        if life == 2 or rng.random() < 0.3:
            found, suspect = bench.numbers()
            assert found == list(range(len(found)))
            assert len(found) > synced
            # Pages that were written in another order look like damage: nobody can tell.
            assert reordered or not suspect
            synced = len(found) - 1
