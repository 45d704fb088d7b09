"""Which backups and files go when only the newest are kept, and their removal from a store.

Others may begin, continue or finish a backup meanwhile. Therefore what is to go first ceases to be a
backup, so that nobody refers to it any more; then the store is looked at again, and only what nobody
needs by then is removed (see docs/SAFETY.md, K4).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from logboom.backup.backup_format import MANIFEST, PROGRESS, Manifest, Progress
from logboom.backup.backup_reader import BackupReader


class PruningPlan(Struct, frozen=True):
    """What pruning removes."""

    kept: list[str]
    """Backups that can be restored afterwards, oldest first."""
    removed: list[str]
    """Backups that are gone afterwards; a folder stays as long as a kept backup needs its files."""
    folders: list[str]
    """Folders that are removed as a whole."""
    files: dict[str, list[str]]
    """Folder → files in it that no kept backup needs; the others stay."""
    size: int
    """Bytes that become free."""


class PrunableFiles(Protocol):
    """The files of all backups, as pruning needs them (`object_store.BackupStore`)."""

    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""

    def remove_folder(self, folder: str) -> None:
        """Remove a folder, its manifest first."""


def plan_pruning(
    manifests: Sequence[Manifest],
    files: Mapping[str, Mapping[str, int]],
    keep: int,
    begun: Collection[Progress] = (),
    now: float = 0,
) -> PruningPlan:
    """Return what to remove so that the newest `keep` backups, and all that they need, stay.

    Args:
        manifests: of all finished backups, oldest first.
        files: folder → its files → bytes, of all backups. Unfinished ones, and what earlier pruning
            left, go if they are older than the newest finished one.
        keep: at least 1.
        begun: unfinished backups. Those stay that a process still writes, however old, or that can
            be continued; so do all backups that they may refer to.
        now: seconds since 1970.
    """
    newest = manifests[-1].id if manifests else ""
    finished = {each.id: each for each in manifests}
    staying = [each for each in begun if each.id > newest or each.is_written(now)]
    whole = _held(staying, finished)
    latest = {each.id for each in manifests[-keep:]}
    kept = [each for each in manifests if each.id in latest | whole]
    needed = {(record.backup, record.file) for each in kept for _, _, record in each.records()}
    holders = {backup for backup, _ in needed}
    kept_ids = {each.id for each in kept}
    leaving = sorted(
        backup
        for backup in files
        if backup not in whole
        and backup not in kept_ids
        and (backup in finished or backup < newest)
    )
    folders, parts, size = [], {}, 0
    for backup in leaving:
        held = files.get(backup, {})
        if backup not in holders:
            folders.append(backup)
            size += sum(held.values())
            continue
        # It is no backup of its own any more: its manifest goes first.
        rest = sorted(name for name in held if (backup, name) not in needed)
        parts[backup] = rest
        size += sum(held[name] for name in rest)
    gone = [backup for backup in leaving if backup in folders or parts[backup]]
    return PruningPlan([each.id for each in kept], gone, folders, parts, size)


def _held(staying: Iterable[Progress], finished: Mapping[str, Manifest]) -> set[str]:
    """Return the folders of which no file goes: those of unfinished backups, and what they refer to."""
    held: set[str] = set()
    for each in staying:
        base = finished.get(each.base)
        held |= {each.id, each.base, *each.needs}
        # Older versions name the base alone.
        held |= base.needs() if base is not None else set()
    return held


def survey_pruning(
    reader: BackupReader, keep: int, now: float, of: Collection[str] | None = None
) -> PruningPlan:
    """Look at the store, and return what to remove; `of` names the only folders that may go."""
    # First who writes, then what is finished: no backup that is finished meanwhile is overlooked.
    begun = reader.all_progress()
    folders = [name for name in reader.folders() if of is None or name in of]
    files = {name: reader.store.files(name) for name in folders}
    return plan_pruning(reader.manifests(), files, keep, begun, now)


def prune(
    store: PrunableFiles, reader: BackupReader, plan: PruningPlan, keep: int, now: float
) -> PruningPlan:
    """Remove what a plan names, as far as nobody needs it by now; return what was removed."""
    for backup in plan.removed:
        store.remove(f"{backup}/{MANIFEST}")
        store.remove(f"{backup}/{PROGRESS}")
    done = survey_pruning(reader, keep, now, plan.removed)
    for folder, names in done.files.items():
        for name in names:
            store.remove(f"{folder}/{name}")
    for folder in done.folders:
        store.remove_folder(folder)
    if (done.folders, done.files.keys()) == (plan.folders, plan.files.keys()):
        return plan
    return msgspec.structs.replace(done, removed=plan.removed)
