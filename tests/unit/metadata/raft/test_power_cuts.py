"""The raft journal on a disk whose power fails: no entry and no vote that was synced goes."""

from __future__ import annotations

import os
import random

import pytest

from logboom.metadata.raft.journal import RocksJournal
from logboom.metadata.raft.journal_store import JournalError
from tests.chaos.machine import Machine
from tests.thorough import seeds

LIFE = """
import random, sys
from pathlib import Path
from logboom.metadata.raft.journal import RocksJournal

path, rng = Path(sys.argv[1]), random.Random(sys.argv[2])
journal = RocksJournal(path, "name-1", "cluster", create=not (path / "identity.json").exists())
stored = journal.load()
print(f"{len(stored.entries)}:{stored.term}", flush=True)
for index in range(len(stored.entries) + 1, len(stored.entries) + 40):
    journal.put_entry((b"command" * rng.choice((1, 1000)), index, 1))
    journal.put_vote(index, "name-2")
    if rng.random() < 0.6:
        journal.sync()
        print(f"{index}:{index}", flush=True)
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine with a built shim."""
    return Machine(tmp_path_factory.mktemp("machine"))


def held(machine: Machine, name: str) -> tuple[int, int]:
    """How many entries are there, and the term of the last vote."""
    journal = RocksJournal(machine.folder(name), "name-1", "cluster", create=False)
    stored = journal.load()
    journal.close()
    machine.forget(name)
    return len(stored.entries), stored.term


@pytest.mark.parametrize("seed", seeds(3))
def test_r8_what_was_synced_survives_a_power_cut_at_any_operation(
    machine: Machine, seed: int
) -> None:
    rng = random.Random(seed)
    name = f"name-{seed}"
    synced = (0, 0)
    for life in range(3):
        # The first life gets as far as having an identity.
        die_at = rng.randrange(60 if life == 0 else 1, 250)
        said = machine.run(name, LIFE, f"{seed}-{life}", die_at=die_at)
        places = [
            (int(entries), int(term)) for entries, _, term in (s.partition(":") for s in said)
        ]
        synced = max([synced, *places])
        machine.cut_power(name, rng if rng.random() < 0.7 else None)
        found = held(machine, name)
        assert found >= synced
        assert found[0] == found[1]
        synced = found


THREE_TURNS = """
import sys
from pathlib import Path
from logboom.metadata.raft.journal import RocksJournal

journal = RocksJournal(Path(sys.argv[1]), "name-1", "cluster", create=True)
wal = max((Path(sys.argv[1]) / "journal").glob("*.log"), key=lambda file: int(file.stem))
for index in range(1, 4):
    journal.put_entry((b"command", index, 1))
    journal.sync()
    print(wal.stat().st_size)
"""


@pytest.mark.parametrize("left", range(4))
def test_r9_a_journal_is_refused_if_and_only_if_a_synced_turn_is_gone(
    machine: Machine, left: int
) -> None:
    name = f"left-{left}"
    sizes = [0, *map(int, machine.run(name, THREE_TURNS))]
    wal = max((machine.folder(name) / "journal").glob("*.log"), key=lambda file: int(file.stem))
    os.truncate(wal, sizes[left])
    if left < 3:
        with pytest.raises(JournalError, match="was synced, but only"):
            held(machine, name)
    else:
        assert held(machine, name)[0] == 3
