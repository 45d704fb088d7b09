"""Stores with one damaged bit, set aside and recovered: all that is whole, and nothing else."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from logboom.nodes.disk.data_folder import FORMAT
from logboom.nodes.disk.journal_records import RECORDS_START, read_header, scan_segment
from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.salvage.recovery_marks import is_recovered
from logboom.nodes.salvage.store_recovery import RecoveryPlan, inspect, read_store_folder
from logboom.wire.errors import StartError
from tests.thorough import seeds
from tests.unit.nodes.disk.older_store import write_older_stores
from tests.unit.nodes.salvage.stores import BROKER, TOPIC, Writer, held, is_filler, view

DAMAGED_AT_MOST = 70
"""Entries that one bit may cost: what stands in one block of a table or a write-ahead log."""
MOST_OF_A_TURN = 2
"""Entries that one bit in the journal may cost: an entry, and one that borrows its body."""


def nothing(_done: int) -> None:
    """Progress that nobody looks at."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Writer]:
    """A store with tables, blob files, and a journal that was not flushed."""
    return written(tmp_path_factory.mktemp("whole") / "data")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Writer]:
    """The same in format 3: a write-ahead log in place of the journal."""
    with pytest.MonkeyPatch.context() as patch:
        write_older_stores(patch)
        return written(tmp_path_factory.mktemp("older") / "data")


def written(path: Path) -> tuple[Path, Writer]:
    """A store that was killed, and who wrote it."""
    writer = Writer(path)
    writer.write(160)
    writer.reopen()
    writer.write(60)
    writer.store.sync()
    killed = path.with_name("killed")
    shutil.copytree(path, killed)
    writer.close()
    return killed, writer


def set_aside(folder: Path) -> None:
    """As a broker does at its start."""
    (folder / "condemned").write_text("found damaged while it ran\n")
    store = RocksStorage(folder, BROKER)
    store.close()
    assert (folder / "damaged-1").is_dir()


def recover(folder: Path) -> RecoveryPlan:
    """Carry out the plan; it, closed."""
    plan = RecoveryPlan(read_store_folder(folder), view(), nothing)
    plan.carry_out(nothing)
    plan.close()
    return plan


def copied(whole: tuple[Path, Writer], tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    shutil.copytree(whole[0], folder)
    return folder


@pytest.mark.parametrize("landed", [3, FORMAT])
def test_a_store_that_is_whole_comes_back_byte_for_byte(
    whole: tuple[Path, Writer], older: tuple[Path, Writer], tmp_path: Path, landed: int
) -> None:
    source = older if landed < FORMAT else whole
    folder = copied(source, tmp_path)
    assert read_store_folder(folder).format == landed
    set_aside(folder)
    plan = recover(folder)
    assert [(queue.topic, queue.left, queue.chain.lost) for queue in plan.queues] == [
        ("single", "", 0),
        ("single", "", 0),
    ]
    assert held(folder) == source[1].entries
    assert read_store_folder(folder).format == FORMAT


LOGS = ["*.journal", "*.log"]
FILES = ["*.sst", "*.blob", *LOGS, "MANIFEST-*", "CURRENT", "OPTIONS-*", "IDENTITY"]


@pytest.mark.parametrize("pattern", FILES)
@pytest.mark.parametrize("seed", seeds(4))
def test_q14_one_flipped_bit_costs_what_stands_there_and_is_told(
    whole: tuple[Path, Writer],
    older: tuple[Path, Writer],
    tmp_path: Path,
    pattern: str,
    seed: int,
) -> None:
    rng = random.Random(f"{pattern} {seed}")
    whole = older if pattern == "*.log" else whole
    folder = copied(whole, tmp_path)
    files = [file for file in sorted((folder / "db").glob(pattern)) if file.stat().st_size]
    file = max(files, key=lambda each: each.stat().st_size) if seed < 2 else rng.choice(files)
    content = bytearray(file.read_bytes())
    begin, end = 0, len(content)
    if pattern == "*.journal" and (header := read_header(bytes(content))) is not None:
        # Behind the end there are only zeros.
        begin, end = RECORDS_START, scan_segment(header, bytes(content)).end
    content[rng.randrange(begin, end)] ^= 1 << rng.randrange(8)
    file.write_bytes(content)
    set_aside(folder)
    plan = recover(folder)
    entries = whole[1].entries
    lost = {
        (queue.key[1], offset)
        for queue in plan.queues
        for gap in queue.chain.gaps
        for offset in range(gap.first, gap.end)
    }
    found = held(folder)
    kept = {place: entry for place, entry in found.items() if not is_filler(entry)}
    # Nothing but what was written, and all of it that is not named as lost.
    assert all(entries[place] == entry for place, entry in kept.items())
    ends = {queue.key[1]: queue.chain.end for queue in plan.queues}
    missing = {place for place in entries if place not in kept}
    assert len(missing) < DAMAGED_AT_MOST
    for queue, place in missing:
        is_control = not whole_messages(entries[queue, place])
        beyond = plan.torn and place >= ends[queue]
        assert is_control or beyond or (queue, place.offset) in lost
    assert plan.torn or ends == whole[1].ends()
    assert plan.torn == (pattern in LOGS)
    if pattern in FILES[4:]:
        assert found == entries
    if pattern == "*.journal":
        # A damaged record takes nothing else along.
        assert len(missing) <= MOST_OF_A_TURN


def whole_messages(entry: bytes) -> int:
    """Messages in an entry."""
    return int.from_bytes(entry[36:40], "little")


@pytest.mark.parametrize("pattern", ["*.sst", "*.blob", *LOGS])
def test_a_file_that_is_gone_costs_what_stood_in_it(
    whole: tuple[Path, Writer], older: tuple[Path, Writer], tmp_path: Path, pattern: str
) -> None:
    whole = older if pattern == "*.log" else whole
    folder = copied(whole, tmp_path)
    max((folder / "db").glob(pattern), key=lambda each: each.stat().st_size).unlink()
    set_aside(folder)
    recover(folder)
    kept = {place: entry for place, entry in held(folder).items() if not is_filler(entry)}
    assert 0 < len(kept) < len(whole[1].entries)
    assert kept.items() <= whole[1].entries.items()


def test_inspect_tells_of_each_store_and_changes_nothing(
    whole: tuple[Path, Writer], tmp_path: Path
) -> None:
    folder = copied(whole, tmp_path)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    (today,) = inspect(read_store_folder(folder), nothing)
    assert today.name == "db"
    assert set(today.queues) == {(TOPIC, 0), (TOPIC, 1)}
    messages = sum(chain.messages for chain in today.queues.values())
    assert messages == sum(end.offset for end in whole[1].ends().values())
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    set_aside(folder)
    (segment,) = today.journal
    assert segment.records == segment.last - segment.first + 1 > 60
    assert not segment.torn
    names = [store.name for store in inspect(read_store_folder(folder), nothing)]
    assert names == ["db", "damaged-1"]
    aside = read_store_folder(folder / "damaged-1")
    assert aside.path == folder
    assert [store.queues for store in inspect(aside, nothing)] == [today.queues]


@pytest.mark.parametrize(
    ("topics", "reason"),
    [
        ({}, "the topic was deleted"),
        (view(leader="broker-2"), "broker-2 leads it"),
        (view(isr=("broker-2",)), "broker-2 may hold all of it"),
        (view(eligible=("broker-2",)), "broker-2 may hold all of it"),
    ],
)
def test_what_lives_elsewhere_is_left_alone(
    whole: tuple[Path, Writer], tmp_path: Path, topics: dict[int, object], reason: str
) -> None:
    folder = copied(whole, tmp_path)
    set_aside(folder)
    plan = RecoveryPlan(read_store_folder(folder), topics, nothing)  # type: ignore[arg-type]  # as above
    assert plan.wanted == []
    assert all(queue.left.startswith(reason) for queue in plan.queues)
    plan.carry_out(nothing)
    plan.close()
    store = RocksStorage(folder, BROKER)
    assert list(store.scan("log", b"", b"\xff" * 21)) == []
    store.close()


def test_a_queue_that_has_gone_on_is_never_overwritten(
    whole: tuple[Path, Writer], tmp_path: Path
) -> None:
    folder = copied(whole, tmp_path)
    set_aside(folder)
    fresh = Writer(folder, queues=1, seed=9)
    fresh.write(5)
    fresh.close()
    plan = recover(folder)
    assert [queue.left.startswith("it has gone on since") for queue in plan.queues] == [True, False]
    found = held(folder)
    assert {p: e for p, e in found.items() if p[0] == 0} == fresh.entries
    assert {p: e for p, e in found.items() if p[0] == 1} == {
        place: entry for place, entry in whole[1].entries.items() if place[0] == 1
    }


def test_a_recovery_that_was_cut_off_is_begun_again(
    whole: tuple[Path, Writer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(whole, tmp_path)
    set_aside(folder)
    monkeypatch.setattr("logboom.nodes.salvage.log_rewriter.WRITE_BYTES", 20_000)

    class Stopped(Exception):
        pass

    def stop(done: int) -> None:
        if done > 60_000:
            raise Stopped

    plan = RecoveryPlan(read_store_folder(folder), view(), nothing)
    with pytest.raises(Stopped):
        plan.carry_out(stop)
    plan.close()
    # A broker that is started now finds a sound log, and asks nobody to lead it.
    part = held(folder)
    assert 0 < len(part) < len(whole[1].entries)
    store = RocksStorage(folder, BROKER)
    assert not is_recovered(store, (TOPIC, 0))
    store.close()
    assert [queue.left for queue in recover(folder).queues] == ["", ""]
    assert held(folder) == whole[1].entries
    store = RocksStorage(folder, BROKER)
    assert is_recovered(store, (TOPIC, 0))
    assert is_recovered(store, (TOPIC, 1))
    store.close()


def test_several_stores_that_were_set_aside_count_together(
    whole: tuple[Path, Writer], tmp_path: Path
) -> None:
    folder = copied(whole, tmp_path)
    set_aside(folder)
    recover(folder)
    # What came back is damaged too, in one place, and the old store in another.
    rng = random.Random(4)
    RocksStorage(folder, BROKER).close()
    for store in ("db", "damaged-1"):
        blob = max((folder / store).glob("*.blob"), key=lambda each: each.stat().st_size)
        content = bytearray(blob.read_bytes())
        content[rng.randrange(len(content))] ^= 1
        blob.write_bytes(content)
    (folder / "condemned").write_text("again\n")
    RocksStorage(folder, BROKER).close()
    assert [aside.name for aside in read_store_folder(folder).asides] == ["damaged-1", "damaged-2"]
    recover(folder)
    assert held(folder) == whole[1].entries


def test_a_store_that_was_given_up_needs_no_start_in_between(
    whole: tuple[Path, Writer], tmp_path: Path
) -> None:
    folder = copied(whole, tmp_path)
    (folder / "condemned").write_text("given up by an operator\n")
    recover(folder)
    assert [aside.name for aside in read_store_folder(folder).asides] == ["damaged-1"]
    assert not read_store_folder(folder).given_up
    assert held(folder) == whole[1].entries


def test_a_store_of_today_that_is_damaged_too_is_set_aside_first(
    whole: tuple[Path, Writer], tmp_path: Path
) -> None:
    folder = copied(whole, tmp_path)
    set_aside(folder)
    manifest = next((folder / "db").glob("MANIFEST-*"))
    manifest.write_bytes(b"nothing that could be read")
    plan = RecoveryPlan(read_store_folder(folder), view(), nothing)
    with pytest.raises(StartError, match="run the command again"):
        plan.carry_out(nothing)
    plan.close()
    recover(folder)
    assert held(folder) == whole[1].entries


def test_errors_say_what_to_do(whole: tuple[Path, Writer], tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no broker's data folder"):
        read_store_folder(tmp_path)
    folder = copied(whole, tmp_path)
    with pytest.raises(StartError, match="nothing to recover"):
        RecoveryPlan(read_store_folder(folder), view(), nothing)
    set_aside(folder)
    plan = RecoveryPlan(read_store_folder(folder), view(), nothing)
    running = RocksStorage(folder, BROKER)
    with pytest.raises(StartError, match="in use"):
        plan.carry_out(nothing)
    running.close()
    plan.close()
    (folder / "identity.json").write_text('{"format": 99, "node": "broker-1"}')
    with pytest.raises(StartError, match="newer logboom"):
        read_store_folder(folder)
