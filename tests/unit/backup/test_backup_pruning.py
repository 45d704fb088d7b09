"""Pruning keeps whatever a kept backup needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.backup import backup_pruning
from logboom.backup.backup_format import (
    STALE_S,
    Manifest,
    Progress,
    QueueRecord,
    SegmentRecord,
    StateRecord,
    TopicRecord,
)


def chain(incremental: list[bool]) -> list[Manifest]:
    """Backups, each of which has one more file; those that are not incremental have only theirs."""
    made: list[Manifest] = []
    records: list[SegmentRecord] = []
    for number, continues in enumerate(incremental):
        backup = f"2026010{number}T000000Z"
        base = made[-1].id if made and continues else ""
        at = (number * 10, 0)
        record = SegmentRecord(backup, f"1/0/{number}.seg", at, (at[0] + 10, 0), 1, 5, 0, 1, 10)
        records = [*records, record] if base else [record]
        queue = QueueRecord(0, records[0].begin, records[-1].end, 1, 1, at, b"", records)
        topics = [TopicRecord("flights", 1, [queue])]
        state = StateRecord(1, 1, 0)
        made.append(Manifest(backup, "cluster", base, 0, 0, "0.1.0", state, topics, 6))
    return made


def files_of(manifests: list[Manifest]) -> dict[str, dict[str, int]]:
    """What lies in the folders."""
    names = ["manifest.json", "state.msgpack"]
    return {
        each.id: {**dict.fromkeys(names, 1), f"1/0/{number}.seg": 5}
        for number, each in enumerate(manifests)
    }


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 9))
def test_all_that_is_kept_can_be_read(incremental: list[bool], keep: int) -> None:
    manifests = chain(incremental)
    files = files_of(manifests)
    plan = backup_pruning.plan_pruning(manifests, files, keep)
    left = {backup: dict(held) for backup, held in files.items() if backup not in plan.folders}
    for backup, names in plan.files.items():
        for name in names:
            del left[backup][name]
    kept = manifests[-keep:]
    assert plan.kept == [each.id for each in kept]
    for each in kept:
        assert "manifest.json" in left[each.id]
        for _, _, record in each.records():
            assert record.file in left[record.backup]
    # Of the others nothing is left that looks like a backup, or that nobody needs.
    needed = {record.backup for each in kept for _, _, record in each.records()}
    for backup in left.keys() - {each.id for each in kept}:
        assert backup in needed
        assert "manifest.json" not in left[backup]
    assert backup_pruning.plan_pruning(kept, left, keep).removed == []


def test_k4_what_a_kept_backup_needs_stays() -> None:
    manifests = chain([False, True, True])
    plan = backup_pruning.plan_pruning(manifests, files_of(manifests), 1)
    assert plan.folders == []
    assert plan.files == {each.id: ["manifest.json", "state.msgpack"] for each in manifests[:2]}


def test_older_unfinished_backups_go_and_newer_ones_stay() -> None:
    manifests = chain([False])
    files = files_of(manifests)
    files["20250101T000000Z"] = {"progress.json": 3, "1/0/0.seg": 4}
    files["20270101T000000Z"] = {"progress.json": 3}
    plan = backup_pruning.plan_pruning(manifests, files, 1)
    assert (plan.folders, plan.size) == (["20250101T000000Z"], 7)


def test_an_older_backup_that_is_still_written_stays() -> None:
    manifests = chain([False])
    written = "20250101T000000Z"
    files = files_of(manifests) | {written: {"progress.json": 3, "1/0/0.seg": 4}}
    begun = Progress(written, "cluster", "", 0, "somebody", 1_000, [])
    plan = backup_pruning.plan_pruning(manifests, files, 1, [begun], 1.0)
    assert (plan.removed, plan.folders, plan.files) == ([], [], {})
    plan = backup_pruning.plan_pruning(manifests, files, 1, [begun], 1.0 + STALE_S)
    assert plan.folders == [written]


@pytest.mark.parametrize("older", [False, True])
def test_k4_what_an_unfinished_backup_refers_to_stays(older: bool) -> None:
    manifests = chain([False, True, False])
    files = files_of(manifests)
    base = manifests[1]
    needs = [] if older else sorted(base.needs())
    begun = Progress("20270101T000000Z", "cluster", base.id, 0, "", 0, [], [], needs)
    plan = backup_pruning.plan_pruning(manifests, files, 1, [begun], 1e9)
    assert (plan.removed, plan.kept) == ([], [each.id for each in manifests])
    assert backup_pruning.plan_pruning(manifests, files, 1).removed == sorted(base.needs())
