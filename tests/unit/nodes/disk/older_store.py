"""Stores as formats 1 to 3 had them: writes go to RocksDB's write-ahead log, and to no journal."""

from __future__ import annotations

import pytest
from rocksdict import WriteOptions

from logboom.nodes.disk import data_folder, rocks_storage
from logboom.nodes.disk.rocks_storage import RocksStorage


def write_older_stores(patch: pytest.MonkeyPatch) -> None:
    """Let this process write stores of format 3."""

    def sync(self: RocksStorage) -> None:
        inside = vars(self)
        inside["_unrecorded"].clear()
        inside["_database"].flush_wal(True)
        self.folder.put_synced(inside["_number"])

    patch.setattr(rocks_storage, "_unlogged", WriteOptions)
    patch.setattr(data_folder, "FORMAT", 3)
    patch.setattr(RocksStorage, "sync", sync)
