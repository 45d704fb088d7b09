"""The file of an audit log: appended to, turned over by size, readable for its owner alone.

Lines go to the operating system at once, and are not synced: a killed process loses none, and a
machine that loses power the last seconds. A file system without room, or any other error, does not
stop the node. The lines are lost then, their number stands in the file as soon as it can be written
again, and the node's log says so once a minute.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from logboom.wire.actor import Instant
from logboom.wire.audit_log import AuditLog, lost_line
from logboom.wire.errors import StartError
from logboom.wire.event_log import log_event
from logboom.wire.private_files import make_folder

FILE_NAME: Final = "audit.log"
KEPT_FILE_NAME: Final = "audit-admin.log"
MAX_FILE_BYTES: Final = 8 * 1024 * 1024
"""Size from which on a new file is begun."""
DEFAULT_FILES: Final = 4
"""Files that are kept, the current one included: audit.log, audit.log.1 to .3."""
MOST_FILES: Final = 1_000
"""More would take too long to rename."""
COMPLAINED_EVERY_S: Final = 60.0
"""Seconds between two complaints about a file that cannot be written."""
WITHOUT_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Errors that may be over in a moment."""


class AuditFiles:
    """The audit log of a node: all lines, and once more those about rights over the cluster.

    The second file is turned over by its own lines alone, so nobody with fewer rights can push them
    out.
    """

    def __init__(self, folder: Path, node: str, files: int = DEFAULT_FILES) -> None:
        """Open the files, or create them; so many of each are kept.

        Raises:
            StartError: BAD_CONFIG, if the folder cannot be written, except for want of room, or the
                number is out of range.
        """
        if not 2 <= files <= MOST_FILES:
            raise StartError(f"audit_files {files}: give 2 to {MOST_FILES}")
        self._all = AuditFile(folder, node, files=files)
        try:
            self._kept = AuditFile(folder, node, KEPT_FILE_NAME, files)
        except StartError:
            self._all.close()
            raise

    def write(self, log: AuditLog, now: Instant) -> None:
        """Append the lines of a turn; if that is not possible, count them."""
        self._all.write(log.take(), now)
        self._kept.write(log.take_kept(), now)

    def close(self, log: AuditLog) -> None:
        """Append the numbers that the log has not told yet, and close the files."""
        log.flush()
        self.write(log, log.now)
        self._all.close()
        self._kept.close()


class AuditFile:
    """A file of an audit log in a folder."""

    def __init__(
        self, folder: Path, node: str, name: str = FILE_NAME, files: int = DEFAULT_FILES
    ) -> None:
        """Open the file, or create it; so many are kept, this one included.

        Raises:
            StartError: BAD_CONFIG, if the folder cannot be written, except for want of room.
        """
        self.path = folder / name
        self.lost = 0
        """Lines that could not be written, since the start."""
        self._node = node
        self._files = files
        self._untold = 0
        """Lost lines whose number is not in the file yet."""
        self._file, self._size = -1, 0
        self._torn = False
        """True if the file ends within a line."""
        self._next_complaint = float("-inf")
        try:
            self._open()
        except OSError as error:
            if error.errno in WITHOUT_ROOM:
                return  # It is tried again with each line.
            raise StartError(
                f"the audit log {self.path} cannot be opened ({error.strerror}): let this user "
                "write there, or name another `audit_folder`",
                "BAD_CONFIG",
            ) from None

    def _open(self) -> None:
        make_folder(self.path.parent)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self.path, flags | os.O_NONBLOCK, 0o600)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            os.close(file)
            raise OSError(0, "it is no regular file")
        # Of an older file, or one that somebody has made.
        os.fchmod(file, 0o600)
        self._file, self._size = file, found.st_size

    def write(self, lines: Sequence[bytes], now: Instant) -> None:
        """Append lines; if that is not possible, count them."""
        if not lines:
            return
        try:
            self._write(lines, now)
        except OSError as error:
            self.lost += len(lines)
            self._untold += len(lines)
            if now.mono >= self._next_complaint:
                self._next_complaint = now.mono + COMPLAINED_EVERY_S
                log_event(
                    "audit_lost",
                    audit_log=str(self.path),
                    lost=self.lost,
                    error=error.strerror,
                    text="the audit log cannot be written; the node goes on. Free space, or name "
                    "another `audit_folder`",
                )

    def _write(self, lines: Sequence[bytes], now: Instant) -> None:
        if self._file < 0:
            self._open()
        if self._size >= MAX_FILE_BYTES:
            self._turn_over()
        said = b"".join(lines)
        if self._untold:
            said = lost_line(self._node, now, self._untold) + said
        if self._torn:
            said = b"\n" + said
        written = os.write(self._file, said)
        self._size += written
        if written < len(said):
            # The rest does not fit. What was written of it cannot be told from whole lines by a
            # reader, so a line end follows as soon as there is room.
            self._torn = True
            raise OSError(0, "no room for a whole line")
        self._torn = False
        self._untold = 0

    def _turn_over(self) -> None:
        """Begin a new file, and drop the oldest, also those of a time when more were kept."""
        self.close()
        name = self.path.name
        for path in self.path.parent.glob(f"{name}.*"):
            number = path.suffix[1:]
            if number.isdecimal() and self._files <= int(number) < MOST_FILES:
                # The lines of now matter more.
                with contextlib.suppress(OSError):
                    path.unlink()
        names = [name, *(f"{name}.{number}" for number in range(1, self._files))]
        for newer, older in reversed([*pairwise(names)]):
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(newer).replace(self.path.with_name(older))
        self._open()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            # The number may be given to another file at once: it must not be written to again.
            file, self._file = self._file, -1
            os.close(file)
