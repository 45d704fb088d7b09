"""Two backup commands at once: whatever one does between two steps of the other, backups are whole.

The store runs the other command as a whole before each of its accesses in turn, so that no
interleaving of one command with all of another is left out. `docs/internals/backup.md` has the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import BinaryIO

import msgspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from logboom.backup import backup_format, backup_writer
from logboom.backup.backup_checks import verify
from logboom.backup.backup_format import (
    MANIFEST,
    PROGRESS,
    STATE,
    Manifest,
    ReadableFile,
    StateRecord,
)
from logboom.backup.backup_pruning import PruningPlan, prune, survey_pruning
from logboom.backup.backup_reader import BackupReader
from logboom.backup.object_store import BackupStore
from logboom.wire.errors import InvalidRequest, Unavailable
from tests.unit.backup.test_backup_writer import FLIGHTS, Leader, Noted, writer

MOST_STEPS = 400
EMPTY_MANIFEST = Manifest("", "", "", 0, 0, "", StateRecord(0, 0, 0), [], 0)
LATER_S = 1_000.0
"""After which an unfinished backup is nobody's."""


class Stepped(BackupStore):
    """A place at which something happens before one of this process's accesses."""

    def __init__(self, url: str, step: int, happens: Callable[[], None]) -> None:
        super().__init__(url)
        self.left = step
        self._happens = happens

    def _step(self) -> None:
        self.left -= 1
        if self.left == -1:
            self._happens()

    def exists(self, name: str) -> bool:
        """Return True if there is such a file."""
        self._step()
        return super().exists(name)

    def read(self, name: str) -> bytes:
        """Return a file."""
        self._step()
        return super().read(name)

    @contextmanager
    def open(self, name: str) -> Iterator[ReadableFile]:
        """Open a file."""
        self._step()
        with super().open(name) as file:
            yield file

    def folders(self) -> list[str]:
        """Return all folders."""
        self._step()
        return super().folders()

    def files(self, folder: str) -> dict[str, int]:
        """Return the files of a folder."""
        self._step()
        return super().files(folder)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Write a file; the step is that at which it appears."""
        with super().create(name) as file:
            yield file
            self._step()

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        self._step()
        super().write(name, content)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._step()
        super().remove(name)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder."""
        self._step()
        super().remove_folder(folder)


def sound(store: BackupStore) -> list[str]:
    """The ids of all finished backups, each of which is whole."""
    reader = BackupReader(store)
    for manifest in reader.manifests():
        faults = [
            each
            for each in verify(reader, manifest).faults
            if "no manifest names" not in each.fault
        ]
        assert faults == []
    return reader.ids()


def at_each_step(
    prepare: Callable[[BackupStore], None],
    other: Callable[[BackupStore], object],
    run: Callable[[BackupStore], bool],
) -> list[bool]:
    """Run a command as often as it has steps, each time with the other before another step.

    After each run all backups are whole. Returns what the runs returned.
    """
    results = []
    for step in range(MOST_STEPS):
        # All such stores of a process are one, and their listings read all of it.
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]
        store = Noted()
        prepare(store)

        def happen(plain: BackupStore = store) -> None:
            other(plain)

        stepped = Stepped(store.url, step, happen)
        results.append(run(stepped))
        sound(store)
        if stepped.left >= 0:
            return results
    raise AssertionError("it does not end")


def create(store: BackupStore, entries: int = 6, *, incremental: bool = True) -> Manifest:
    """Make a backup as another process."""
    leader = Leader()
    leader.entries = entries
    return writer(leader, store, incremental=incremental).create()


def create_or_refuse(store: BackupStore) -> bool:
    """Make an incremental backup; False: it was refused, and nothing looks like a backup of it."""
    try:
        made = create(store, 4)
    except Unavailable:
        return False
    # Who removes all but the newest may remove this one too.
    assert made.id in BackupReader(store).ids() or len(BackupReader(store).ids()) == 1
    return True


def is_busy(run: Callable[[], object]) -> bool:
    """Whether a command is refused because another process is at it."""
    try:
        run()
    except Unavailable as error:
        return error.code == "BUSY"
    return False


def two(store: BackupStore) -> None:
    """A complete backup, and one that continues it."""
    create(store, 1)
    create(store, 2)


def prune_to(store: BackupStore, keep: int = 1, after_s: float = 0) -> PruningPlan:
    """Remove all but the newest, by a clock that may be ahead."""
    reader, now = BackupReader(store), time.time() + after_s
    return prune(store, reader, survey_pruning(reader, keep, now), keep, now)


def complete_and_prune(store: BackupStore, after_s: float = 0) -> None:
    """Make a complete backup, after which only that one is kept."""
    create(store, 3, incremental=False)
    prune_to(store, 1, after_s)


@pytest.mark.parametrize("after_s", [0, LATER_S])
def test_k4_a_backup_whose_base_is_pruned_meanwhile_is_whole_or_fails(after_s: float) -> None:
    was_begun: list[bool] = []

    def other(store: BackupStore) -> None:
        was_begun.append(bool(BackupReader(store).unfinished()))
        complete_and_prune(store, after_s)

    results = at_each_step(two, other, create_or_refuse)
    assert results[-1]
    if not after_s:
        # Who is known to write one can go on.
        begun = [made for made, known in zip(results, was_begun, strict=False) if known]
        assert begun
        assert all(begun)


def test_k4_a_backup_that_is_made_while_somebody_prunes_is_whole() -> None:
    def three(store: BackupStore) -> None:
        two(store)
        create(store, 3, incremental=False)

    def incremental(store: BackupStore) -> None:
        # Its base is the newest, or that of another cluster is newer than its base.
        create(store, 4)
        create(store, 4)

    assert all(at_each_step(three, incremental, lambda store: bool(prune_to(store))))


def test_k4_who_prunes_by_an_old_plan_removes_nothing_that_is_needed_by_now() -> None:
    store = Noted()
    two(store)
    create(store, 3, incremental=False)
    reader = BackupReader(store)
    first, second, _ = reader.manifests()
    plan = survey_pruning(reader, 1, 0)
    assert plan.removed == [first.id, second.id]
    # One that began before the third was finished continues the second.
    begun = backup_format.Progress("20990101T000000Z", "cluster", second.id, 0, "x", 0, [])
    begun = msgspec.structs.replace(begun, needs=sorted(second.needs()))
    store.write(f"{begun.id}/{PROGRESS}", backup_format.encode_manifest(begun))
    done = prune(store, reader, plan, 1, 1e9)
    assert (done.folders, done.files) == ([], {})
    assert all(record.file in store.files(record.backup) for _, _, record in second.records())
    # It is protected from whoever comes later, too, although its base is no backup any more.
    assert prune_to(store).folders == []


def test_k4_of_two_that_begin_at_once_one_writes() -> None:
    """Both choose the same folder, and the second is done before the first begins there."""
    store = Noted()
    others: list[Manifest] = []
    choose = backup_writer.new_id

    def chosen(taken: Iterable[str], _now: float) -> str:
        folder = choose(taken, 1.7e9)
        if not others:
            others.append(EMPTY_MANIFEST)
            others.append(create(store, 7))
        return folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backup_writer, "new_id", chosen)
        assert is_busy(lambda: create(store, 6))
    assert sound(store) == [others[-1].id]
    assert BackupReader(store).manifest().messages == 7


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("incremental", [False, True])
def test_k4_of_two_that_are_made_at_once_each_is_whole_or_fails(
    monkeypatch: pytest.MonkeyPatch, *, incremental: bool, stale: bool
) -> None:
    # Both begin within a second, and the first may stand still for longer than a minute.
    monkeypatch.setattr(
        backup_writer, "time", SimpleNamespace(time=lambda: 1.7e9, monotonic=time.monotonic)
    )
    if stale:
        monkeypatch.setattr(backup_format, "STALE_S", 0.0)
    refused: list[bool] = []

    def other(store: BackupStore) -> None:
        refused.append(is_busy(lambda: create(store, 5, incremental=incremental)))

    results = at_each_step(two, other, create_or_refuse)
    assert len(results) > 20
    if stale:
        assert not any(refused[1:])


def test_k4_of_two_that_continue_the_same_backup_each_is_whole_or_fails() -> None:
    def interrupted(store: BackupStore) -> None:
        leader = Leader()

        def end(wanted: object) -> None:
            if getattr(wanted, "at", None) == (1, 0):
                raise Unavailable("the leader is gone")

        leader.on_fetch = end
        with pytest.raises(Unavailable, match="the leader is gone"):
            writer(leader, store).create()

    def other(store: BackupStore) -> None:
        is_busy(lambda: create(store, 5))

    at_each_step(interrupted, other, create_or_refuse)


def test_who_prunes_while_somebody_prunes_keeps_the_same() -> None:
    def many(store: BackupStore) -> None:
        two(store)
        create(store, 3, incremental=False)
        create(store, 4)

    def run(store: BackupStore) -> bool:
        prune_to(store, 2)
        return True

    at_each_step(many, prune_to, run)
    at_each_step(many, lambda store: prune_to(store, 3), run)


@pytest.mark.parametrize("other", ["create", "prune"])
def test_a_list_has_all_backups_while_others_are_made_and_removed(other: str) -> None:
    def act(store: BackupStore) -> None:
        if other == "create":
            create(store, 4)
        else:
            prune_to(store)

    def three(store: BackupStore) -> None:
        two(store)
        create(store, 3, incremental=False)

    def run(store: BackupStore) -> bool:
        reader = BackupReader(store)
        finished, unfinished = reader.found()
        assert unfinished == []
        known = [reader.find_manifest(each) for each in finished]
        assert known[-1] is not None
        return len(finished) >= (3 if other == "create" else 1)

    assert all(at_each_step(three, act, run))


def test_a_backup_that_is_finished_while_it_is_looked_for_is_not_missed() -> None:
    """Between two looks of a list, a backup gets its manifest and loses its progress."""
    for step in range(MOST_STEPS):
        store = Noted()
        made = create(store)
        encoded, begun = store.read(f"{made.id}/{MANIFEST}"), b"{}"
        store.remove(f"{made.id}/{MANIFEST}")
        store.write(f"{made.id}/{PROGRESS}", begun)

        def finish(
            plain: BackupStore = store, content: bytes = encoded, name: str = made.id
        ) -> None:
            plain.write(f"{name}/{MANIFEST}", content)
            plain.remove(f"{name}/{PROGRESS}")

        stepped = Stepped(store.url, step, finish)
        finished, unfinished = BackupReader(stepped).found()
        assert [*finished, *unfinished] == [made.id]
        if stepped.left >= 0:
            return
    raise AssertionError("it does not end")


def test_who_verifies_or_shows_a_backup_that_is_pruned_meanwhile_is_told() -> None:
    def three(store: BackupStore) -> None:
        two(store)
        create(store, 3, incremental=False)

    def run(store: BackupStore) -> bool:
        reader = BackupReader(store)
        second = reader.ids()[:2][-1]
        try:
            manifest = reader.manifest(second)
            reader.state(manifest)
            assert verify(reader, manifest).faults == []
        except InvalidRequest as error:
            return "there is no finished backup" not in error.text
        return True

    results = at_each_step(three, prune_to, run)
    assert {True, False} <= set(results)


# ── a base that is broken ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("which", [0, 2, 5])
@pytest.mark.parametrize("fault", ["missing", "truncated"])
def test_k4_a_backup_does_not_rest_on_a_file_that_is_not_whole(which: int, fault: str) -> None:
    store, leader = Noted(), Leader()
    base = writer(leader, store).create()
    record = base.topics[0].queues[0].segments[which]
    name = f"{record.backup}/{record.file}"
    content = store.read(name)
    store.remove(name)
    if fault == "truncated":
        store.write(name, content[:-1])
    leader.entries = 8
    made = writer(leader, store).create()
    assert verify(BackupReader(store), made).faults == []
    assert (made.base, made.messages) == (base.id, 8)
    assert [note for note in made.notes if record.file in note and base.id in note]
    kept = [each for each in made.topics[0].queues[0].segments if each.backup == base.id]
    assert len(kept) == which, "what comes before it need not be copied again"
    third = writer(leader, store).create()
    assert third.notes == []


def test_k4_an_interrupted_backup_does_not_rest_on_a_base_that_was_damaged_since() -> None:
    store, leader = Noted(), Leader()
    base = writer(leader, store).create()
    leader.entries = 9

    def end(wanted: object) -> None:
        if getattr(wanted, "at", None) == (8, 0):
            raise Unavailable("the leader is gone")

    leader.on_fetch = end
    with pytest.raises(Unavailable, match="the leader is gone"):
        writer(leader, store).create()
    record = base.topics[0].queues[0].segments[3]
    store.remove(f"{record.backup}/{record.file}")
    leader.on_fetch = lambda _: None
    again = writer(leader, store)
    made = again.create()
    assert again.resumed
    assert verify(BackupReader(store), made).faults == []


def test_k4_a_file_of_the_base_that_goes_meanwhile_is_noticed() -> None:
    store, leader = Noted(), Leader()
    base = writer(leader, store).create()
    leader.entries = 8
    record = base.topics[0].queues[0].segments[0]

    def lose(wanted: object) -> None:
        if getattr(wanted, "at", None) == (7, 0):
            store.remove(f"{record.backup}/{record.file}")

    leader.on_fetch = lose
    with pytest.raises(Unavailable, match="was removed or changed while this backup was made"):
        writer(leader, store).create()
    assert BackupReader(store).ids() == [base.id]


def test_k4_a_state_that_another_process_wrote_is_noticed() -> None:
    store, leader = Noted(), Leader()
    run = writer(leader, store)
    leader.on_fetch = lambda wanted: (
        store.write(f"{run.id}/{STATE}", b"of another") if run.id else None
    )
    with pytest.raises(Unavailable, match="was removed or changed"):
        run.create()
    assert BackupReader(store).ids() == []


def test_a_topic_that_is_being_restored_is_left_out() -> None:
    store, leader = Noted(), Leader()
    other = msgspec.structs.replace(FLIGHTS, name="old", id=2, restoring="20240101T000000Z of x")

    def refuse(wanted: object) -> None:
        assert getattr(wanted, "topic", "") == "flights"

    leader.views = [FLIGHTS, other]
    leader.on_fetch = refuse
    made = writer(leader, store).create()
    assert [topic.name for topic in made.topics] == ["flights"]
    assert made.notes == ["topic old is being restored from 20240101T000000Z of x: it is left out"]
