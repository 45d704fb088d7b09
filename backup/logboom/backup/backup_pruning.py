"""Which backups and files go when only the newest are kept; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from logboom.backup.backup_format import Manifest


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


def plan_pruning(
    manifests: Sequence[Manifest],
    files: Mapping[str, Mapping[str, int]],
    keep: int,
    written: Collection[str] = (),
) -> PruningPlan:
    """Return what to remove so that the newest `keep` backups, and all that they need, stay.

    Args:
        manifests: of all finished backups, oldest first.
        files: folder → its files → bytes, of all backups. Unfinished ones, and what earlier pruning
            left, go if they are older than the newest finished one.
        keep: at least 1.
        written: unfinished ones that a process still writes; they stay, however old.
    """
    kept = list(manifests[-keep:])
    finished = {each.id for each in manifests}
    needed = {(record.backup, record.file) for each in kept for _, _, record in each.records()}
    holders = {backup for backup, _ in needed} | {each.id for each in kept}
    newest = manifests[-1].id if manifests else ""
    leaving = sorted(
        backup
        for backup in finished.union(files) - {each.id for each in kept}
        if backup in finished or (backup < newest and backup not in written)
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
