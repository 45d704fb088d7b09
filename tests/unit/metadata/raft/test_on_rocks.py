"""A raft node on the real journal: killed at every stage, it comes back with what it answered."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import msgspec

from logboom.metadata.raft.journal import RocksJournal
from logboom.metadata.raft.raft_config import RaftConfig, SubmitOutcome
from logboom.metadata.raft.raft_node import RaftNode
from logboom.metadata.raft.raft_state import RaftCallbacks


class Alone:
    """The only member of its group, in virtual time."""

    def __init__(self, folder: Path, *, create: bool) -> None:
        self.items: list[bytes] = []
        self.outcomes: list[SubmitOutcome] = []
        self.time = 1.0
        self.journal = RocksJournal(folder, "a", "cluster", create=create)
        self.node = RaftNode(
            "a",
            ["a"],
            self.journal,
            RaftCallbacks(
                apply=self.apply,
                snapshot=lambda: msgspec.msgpack.encode(self.items),
                restore=self.restore,
                clock=lambda: self.time,
            ),
            random.Random(1),
            RaftConfig(compact_entries=10),
        )
        while not self.node.is_leader:
            self.turn()

    def apply(self, command: bytes) -> bytes:
        self.items.append(command)
        return b""

    def restore(self, state: bytes) -> None:
        self.items = msgspec.msgpack.decode(state, type=list[bytes])

    def turn(self) -> None:
        self.time += 0.01
        self.node.tick(self.time)
        self.node.sync()

    def submit(self, command: bytes) -> None:
        answered = len(self.outcomes)
        self.node.submit(command, self.outcomes.append)
        while len(self.outcomes) == answered:
            self.turn()
        assert self.outcomes[-1].applied


def test_what_was_answered_survives_a_kill_before_during_and_after_compactions(
    tmp_path: Path,
) -> None:
    alone = Alone(tmp_path / "live", create=True)
    for number in range(35):
        alone.submit(b"%d" % number)
        # The files as kill -9 would leave them now.
        shutil.copytree(tmp_path / "live", tmp_path / f"{number}")
    assert alone.node.status()["snapshots_taken"] == 3
    alone.node.close()
    for number in range(35):
        after = Alone(tmp_path / f"{number}", create=False)
        after.submit(b"more")
        assert after.items == [*[b"%d" % at for at in range(number + 1)], b"more"]
        after.node.close()


def test_a_snapshot_file_with_a_kill_before_the_trim_is_taken_up(tmp_path: Path) -> None:
    alone = Alone(tmp_path / "live", create=True)
    for number in range(20):
        if alone.node.status()["snapshots_taken"] == 0:
            shutil.rmtree(tmp_path / "before", ignore_errors=True)
            shutil.copytree(tmp_path / "live", tmp_path / "before")
            kept = list(alone.items)
        alone.submit(b"%d" % number)
    alone.node.close()
    shutil.copy(tmp_path / "live" / "snapshot", tmp_path / "before" / "snapshot")
    after = Alone(tmp_path / "before", create=False)
    after.submit(b"more")
    assert after.items[: len(kept)] == kept
    assert after.items[-1] == b"more"
    after.node.close()
