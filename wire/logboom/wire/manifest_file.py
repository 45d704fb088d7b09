"""The MANIFEST of a RocksDB database on disk: which one it is, and its torn end.

RocksDB appends to it and syncs. A power failure in between may leave an end that was never synced:
half a record, which RocksDB overlooks, or a record with a page that was not written, at which it
refuses the whole database.
"""

from __future__ import annotations

import os
from pathlib import Path

from logboom.wire.rocksdb_log import torn_from


def manifest_name(folder: Path) -> str:
    """Return the name of the MANIFEST of the database in `folder`; "" if its file CURRENT has none."""
    try:
        name = (folder / "CURRENT").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return name if name.startswith("MANIFEST-") and (folder / name).is_file() else ""


def cut_torn_manifest(folder: Path) -> bool:
    """Cut the MANIFEST behind its last whole record; durable on return.

    True if anything was cut. Whether that had been synced the caller has to find out. A file of
    which no record is whole stays as it is.

    Raises:
        OSError: the disk refused.
    """
    name = manifest_name(folder)
    if not name:
        return False
    path = folder / name
    end = torn_from(path.read_bytes())
    if not end:
        return False
    with path.open("r+b") as file:
        file.truncate(end)
        os.fsync(file.fileno())
    return True
