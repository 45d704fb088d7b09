"""The files of a store that is stopped, set aside or damaged; they are only read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from logboom.nodes.disk.journal_files import READ_BYTES, read_piece
from logboom.nodes.disk.journal_records import SUFFIX
from logboom.nodes.salvage.blob_files import blob_rows
from logboom.nodes.salvage.found_queues import FoundQueues, Value
from logboom.nodes.salvage.journal_segments import SegmentReport, journal_rows, report_segment
from logboom.nodes.salvage.store_rows import StoreRow
from logboom.nodes.salvage.table_files import table_rows
from logboom.nodes.salvage.write_ahead_logs import write_ahead_rows
from logboom.wire.errors import StartError

_READERS: Final[dict[str, Callable[[bytes], Iterator[StoreRow] | Iterator[StoreRow | None]]]] = {
    ".sst": table_rows,
    ".blob": blob_rows,
    ".log": write_ahead_rows,
    SUFFIX: journal_rows,
}


class StoreFiles:
    """All files with rows of one or several stores, open until `close`."""

    def __init__(self, folders: list[Path]) -> None:
        """Open the files.

        Raises:
            StartError: one of them cannot be opened.
        """
        self._files: list[tuple[int, str]] = []
        self.size = 0
        """Size of all files."""
        self.segments: list[SegmentReport] = []
        """The journal, in its order, once `find` has read it."""
        try:
            for folder in folders:
                for path in sorted(folder.iterdir()):
                    if path.suffix in _READERS:
                        self._files.append((os.open(path, os.O_RDONLY), path.suffix))
                        self.size += path.stat().st_size
        except OSError as error:
            self.close()
            text = f"cannot read {error.filename or folders[0]} ({error.strerror})"
            raise StartError(f"{text}: check its permissions and the disk") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. Idempotent."""
        for handle, _ in self._files:
            os.close(handle)
        self._files = []

    def value(self, value: Value) -> bytes:
        """Read a value from its position; zeros where the disk refuses."""
        if isinstance(value, bytes):
            return value
        file, at, size = value
        return read_piece(self._files[file][0], at, size)

    def find(self, progress: Callable[[int], None]) -> FoundQueues:
        """Read everything; `progress` gets the bytes of each file that was read."""
        finds = FoundQueues(self.value)
        for number, (handle, suffix) in enumerate(self._files):
            size = os.fstat(handle).st_size
            content = b"".join(
                read_piece(handle, at, min(READ_BYTES, size - at))
                for at in range(0, size, READ_BYTES)
            )
            finds.take(number, _READERS[suffix](content), content)
            if suffix == SUFFIX and (segment := report_segment(content)) is not None:
                self.segments.append(segment)
            progress(size)
        finds.settle()
        self.segments.sort()
        return finds
