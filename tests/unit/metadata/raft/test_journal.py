"""The raft journal on a real RocksDB: kill, power loss, damage, foreign folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logboom.metadata.raft.journal import RocksJournal
from logboom.metadata.raft.journal_store import Entry, JournalError


def opened(path: Path, *, create: bool = False, node: str = "name-1") -> RocksJournal:
    return RocksJournal(path, node, "cluster-a", create=create)


def entry(index: int, term: int = 1) -> Entry:
    return b"\x00command %d" % index, index, term


def filled(path: Path, count: int) -> RocksJournal:
    """A fresh journal with `count` entries, each synced in a turn of its own."""
    journal = opened(path, create=True)
    for index in range(1, count + 1):
        journal.put_entry(entry(index))
        journal.put_commit(index)
        journal.sync()
    return journal


def killed(journal: RocksJournal, path: Path, copy: Path) -> Path:
    """What is on the disk while the process still runs: the folder after kill -9."""
    shutil.copytree(path, copy)
    journal.close()
    return copy


def wal_of(path: Path) -> Path:
    return max((path / "journal").glob("*.log"), key=lambda file: file.stat().st_size)


def test_everything_synced_is_read_again(tmp_path: Path) -> None:
    journal = filled(tmp_path / "a", 5)
    journal.put_vote(7, "name-2")
    journal.cut_from(4)
    journal.put_entry(entry(4, term=7))
    journal.cut_below(2)
    journal.sync()
    after = opened(killed(journal, tmp_path / "a", tmp_path / "b"))
    stored = after.load()
    assert stored.entries == [entry(2), entry(3), entry(4, term=7)]
    assert (stored.term, stored.voted_for, stored.commit_index) == (7, "name-2", 5)
    after.close()


def test_a_turn_that_was_not_synced_leaves_no_trace(tmp_path: Path) -> None:
    journal = filled(tmp_path / "a", 3)
    journal.put_entry(entry(4))
    journal.put_vote(9, None)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    journal.close()
    after = opened(tmp_path / "b")
    stored = after.load()
    assert [at for _, at, _ in stored.entries] == [1, 2, 3]
    assert stored.term == 0
    after.close()


def test_close_syncs_and_may_be_called_twice(tmp_path: Path) -> None:
    journal = opened(tmp_path / "a", create=True)
    journal.put_entry(entry(1))
    journal.close()
    journal.close()
    after = opened(tmp_path / "a")
    assert after.load().entries == [entry(1)]
    after.close()


def test_a_commit_index_alone_asks_for_no_sync_but_rides_along(tmp_path: Path) -> None:
    journal = filled(tmp_path / "a", 2)
    journal.put_commit(2)
    assert not journal.unsynced
    journal.put_entry(entry(3))
    assert journal.unsynced
    journal.sync()
    assert not journal.unsynced
    after = opened(killed(journal, tmp_path / "a", tmp_path / "b"))
    assert after.load().commit_index == 2
    after.close()


def test_any_flipped_bit_in_the_log_is_refused(tmp_path: Path) -> None:
    journal = filled(tmp_path / "a", 30)
    folder = killed(journal, tmp_path / "a", tmp_path / "b")
    wal = wal_of(folder)
    raw = wal.read_bytes()
    for position in range(0, len(raw), 61):
        work = tmp_path / f"flip-{position}"
        shutil.copytree(folder, work)
        bad = bytearray(raw)
        bad[position] ^= 1 << (position % 8)
        (work / "journal" / wal.name).write_bytes(bad)
        with pytest.raises(JournalError, match="damaged"):
            opened(work)


def test_a_cut_off_log_is_refused_when_what_it_lost_was_synced(tmp_path: Path) -> None:
    """RocksDB opens it as if the tail were a torn write; the file `synced` knows better."""
    journal = filled(tmp_path / "a", 30)
    folder = killed(journal, tmp_path / "a", tmp_path / "b")
    wal = wal_of(folder)
    wal.write_bytes(wal.read_bytes()[:-5])
    with pytest.raises(JournalError, match="was synced, but only"):
        opened(folder)


def test_a_torn_write_of_a_turn_that_was_not_synced_is_dropped(tmp_path: Path) -> None:
    journal = filled(tmp_path / "a", 4)
    synced = (tmp_path / "a" / "synced").read_bytes()
    journal.put_entry(entry(5))
    journal.sync()
    folder = killed(journal, tmp_path / "a", tmp_path / "b")
    # The power failed inside the fifth turn: its bytes are torn and its sync never returned.
    (folder / "synced").write_bytes(synced)
    wal = wal_of(folder)
    wal.write_bytes(wal.read_bytes()[:-5])
    after = opened(folder)
    assert [at for _, at, _ in after.load().entries] == [1, 2, 3, 4]
    after.close()


def refusal(path: Path, last: int) -> str:
    """Why a folder is not opened; "" if it is, with the entries 1 to `last`."""
    try:
        journal = opened(path)
    except JournalError as error:
        return str(error)
    assert [at for _, at, _ in journal.load().entries] == [*range(1, last + 1)]
    journal.close()
    return ""


def test_damage_in_a_table_file_is_refused(tmp_path: Path) -> None:
    """Wherever it is: in entries, in the index, or in what RocksDB reads first of all."""
    filled(tmp_path / "a", 30).close()
    opened(tmp_path / "a").close()
    table = max((tmp_path / "a" / "journal").glob("*.sst"), key=lambda file: file.stat().st_size)
    raw = table.read_bytes()
    refused: list[str] = []
    for position in range(20, len(raw), 97):
        bad = bytearray(raw)
        bad[position] ^= 4
        table.write_bytes(bad)
        # Nothing that is read lies where it is not.
        refused.append(refusal(tmp_path / "a", 30))
    refused = [text for text in refused if text]
    assert len(refused) > 10
    assert [text for text in refused if "is damaged" not in text] == []


def copied(path: Path, copy: Path) -> Path:
    """A copy of a folder in use, in which a compaction may remove a table at any moment."""
    while True:
        try:
            return shutil.copytree(path, copy)
        except shutil.Error:
            shutil.rmtree(copy)


def test_damage_that_a_compaction_meets_is_told_in_the_same_words(tmp_path: Path) -> None:
    filled(tmp_path / "a", 1).close()
    refused: list[str] = []
    for index in range(2, 8):
        # Each opening makes a table of what the log held; the fourth lets them be merged.
        journal = opened(tmp_path / "a")
        journal.put_entry(entry(index))
        journal.sync()
        folder = copied(tmp_path / "a", tmp_path / f"{index}")
        journal.close()
        for table in (folder / "journal").glob("*.sst"):
            work = tmp_path / f"{index}-{table.stem}"
            shutil.copytree(folder, work)
            raw = bytearray(table.read_bytes())
            raw[20] ^= 4
            (work / "journal" / table.name).write_bytes(raw)
            refused.append(refusal(work, index))
    refused = [text for text in refused if text]
    assert len(refused) >= 5
    assert [text for text in refused if "is damaged" not in text] == []


@pytest.mark.parametrize("lost", ["journal", "synced", "identity.json"])
def test_a_lost_part_of_the_folder_is_refused(tmp_path: Path, lost: str) -> None:
    filled(tmp_path / "a", 3).close()
    part = tmp_path / "a" / lost
    if part.is_dir():
        shutil.rmtree(part)
    else:
        part.unlink()
    with pytest.raises(JournalError, match=r"damaged|missing"):
        opened(tmp_path / "a")
    if lost == "identity.json":
        with pytest.raises(JournalError, match=r"identity.json is missing"):
            opened(tmp_path / "a", create=True)


def test_a_folder_of_another_node_or_cluster_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "a", 1).close()
    with pytest.raises(JournalError, match="is of node name-1, not name-2"):
        opened(tmp_path / "a", node="name-2")
    with pytest.raises(JournalError, match="is of cluster cluster-a, not cluster-b"):
        RocksJournal(tmp_path / "a", "name-1", "cluster-b", create=False)


def test_a_folder_follows_the_mark_of_its_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    filled(folder, 1).close()
    RocksJournal(folder, "name-1", "cluster-b", create=False, former=["cluster-a"]).close()
    with pytest.raises(JournalError, match="is of cluster cluster-b, not cluster-a"):
        opened(folder)
    running = RocksJournal(folder, "name-1", "cluster-b", create=False)
    running.name_cluster("cluster-c")
    running.close()
    again = RocksJournal(folder, "name-1", "cluster-c", create=False)
    assert len(again.load().entries) == 1
    again.close()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "a", 1).close()
    identity = tmp_path / "a" / "identity.json"
    identity.write_text(identity.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(JournalError, match="has format 2, this program knows 1: upgrade it"):
        opened(tmp_path / "a")


def test_an_empty_folder_needs_an_explicit_creation(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="joins again under a new raft id"):
        opened(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    opened(tmp_path / "a", create=True).close()
    opened(tmp_path / "a").close()


def test_r9_a_journal_has_an_id_and_joins_until_it_is_told_otherwise(tmp_path: Path) -> None:
    founder = opened(tmp_path / "a", create=True)
    assert founder.journal_id
    assert not founder.joining
    founder.close()
    joiner = RocksJournal(tmp_path / "b", "name-4", "cluster-a", create=False, joins=True)
    drawn = joiner.journal_id
    assert drawn not in ("", founder.journal_id)
    joiner.close()
    # It joins on until it is in the group, however often it starts.
    again = RocksJournal(tmp_path / "b", "name-4", "cluster-a", create=False, joins=True)
    assert (again.journal_id, again.joining) == (drawn, True)
    again.end_joining()
    again.close()
    last = RocksJournal(tmp_path / "b", "name-4", "cluster-a", create=False, joins=True)
    assert (last.journal_id, last.joining) == (drawn, False)
    last.close()


def test_a_folder_of_an_older_release_gets_an_id_and_has_joined(tmp_path: Path) -> None:
    opened(tmp_path / "a", create=True).close()
    (tmp_path / "a" / "identity.json").write_text(
        '{"format": 1, "node": "name-1", "cluster": "cluster-a"}'
    )
    first = opened(tmp_path / "a")
    assert first.journal_id
    assert not first.joining
    first.close()
    second = opened(tmp_path / "a")
    assert second.journal_id == first.journal_id
    second.close()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    journal = filled(tmp_path / "a", 1)
    with pytest.raises(JournalError, match="in use by another process"):
        opened(tmp_path / "a")
    journal.close()


def test_the_snapshot_is_replaced_whole(tmp_path: Path) -> None:
    journal = filled(tmp_path / "a", 1)
    assert journal.load_snapshot() is None
    journal.save_snapshot(b"first")
    # A kill while the second one is written leaves a part of it under another name.
    (tmp_path / "a" / "snapshot.new").write_bytes(b"sec")
    after = opened(killed(journal, tmp_path / "a", tmp_path / "b"))
    assert after.load_snapshot() == b"first"
    assert not (tmp_path / "b" / "snapshot.new").exists()
    after.save_snapshot(b"second")
    assert after.load_snapshot() == b"second"
    after.close()


def test_a_power_loss_that_emptied_the_bindings_own_file_does_not_matter(tmp_path: Path) -> None:
    filled(tmp_path / "a", 3).close()
    (tmp_path / "a" / "journal" / "rocksdict-config.json").write_bytes(b"")
    after = opened(tmp_path / "a")
    assert len(after.load().entries) == 3
    after.close()


def test_a_torn_end_of_the_manifest_was_never_synced(tmp_path: Path) -> None:
    """RocksDB appends to it when it flushes, and the power fails before its sync is done."""
    journal = filled(tmp_path / "a", 5)
    (manifest,) = (tmp_path / "a" / "journal").glob("MANIFEST-*")
    copy = killed(journal, tmp_path / "a", tmp_path / "b")
    torn = copy / "journal" / manifest.name
    record = torn.read_bytes()[-40:]
    with torn.open("ab") as file:
        # Its last page was not written.
        file.write(record[:20] + bytes(20) + record)
    after = opened(copy)
    assert after.load().entries == [entry(index) for index in range(1, 6)]
    after.close()


def test_r9_a_damaged_manifest_hides_nothing_that_was_synced(tmp_path: Path) -> None:
    """Wherever it is cut or flipped: the member has all it synced, or refuses to start."""
    journal = filled(tmp_path / "a", 5)
    copy = killed(journal, tmp_path / "a", tmp_path / "b")
    (manifest,) = (copy / "journal").glob("MANIFEST-*")
    content = manifest.read_bytes()
    outcomes = set()
    for place in range(0, len(content), max(1, len(content) // 6)):
        flipped = bytearray(content)
        flipped[place] ^= 0x10
        for number, spoiled in enumerate((content[:place], content + b"?", bytes(flipped))):
            work = tmp_path / f"{place}-{number}"
            shutil.copytree(copy, work)
            (work / "journal" / manifest.name).write_bytes(spoiled)
            try:
                after = opened(work)
            except JournalError:
                outcomes.add("refused")
                continue
            assert after.load().entries == [entry(index) for index in range(1, 6)]
            outcomes.add("whole")
            after.close()
    assert outcomes == {"refused", "whole"}
