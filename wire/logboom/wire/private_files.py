"""Files and folders that their owner alone can read: whatever a node, a backup or a job stores.

A process of our own restricts its umask, so RocksDB's files are private, too. A program that embeds
a node keeps its umask: there the modes are given, and what RocksDB writes lies in a private folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
OTHERS: Final = 0o077
"""The bits of a mode that let others than the owner in."""


def restrict_umask() -> None:
    """Let this process create nothing that others can read."""
    os.umask(OTHERS)


def make_folder(path: Path) -> None:
    """Create a folder, and the parents that it lacks, for the owner alone; leave existing ones.

    Raises:
        OSError: it cannot be created.
    """
    if path.is_dir():
        return
    if path.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def open_private(path: Path, *, append: bool = False) -> BinaryIO:
    """Open a file for writing, empty unless `append`, that the owner alone can read.

    Raises:
        OSError: it cannot be opened, or belongs to somebody else.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if append else os.O_TRUNC)
    handle = os.open(path, flags, FILE_MODE)
    file = os.fdopen(handle, "ab" if append else "wb")
    # An older version may have created it. Devices, such as /dev/null, are left as they are.
    mode = os.fstat(handle).st_mode
    if mode & OTHERS and stat.S_ISREG(mode):
        try:
            os.fchmod(handle, FILE_MODE)
        except OSError:
            file.close()
            raise
    return file


def write_private(path: Path, content: bytes) -> None:
    """Write a file that the owner alone can read.

    Raises:
        OSError: it cannot be written.
    """
    with open_private(path) as file:
        file.write(content)


def tighten(folder: Path) -> None:
    """Take the rights of others on a folder, and on all that is in it, away.

    Older versions left them there. What belongs to somebody else stays as it is, and so does a
    folder that is shared on purpose (sticky, as /tmp is). Links are not followed below the folder.
    """
    for path in [folder, *_below(folder)]:
        with suppress(OSError):
            mode = path.lstat().st_mode if path != folder else path.stat().st_mode
            shared = stat.S_ISLNK(mode) or mode & stat.S_ISVTX
            if mode & OTHERS and not shared:
                path.chmod(stat.S_IMODE(mode) & ~OTHERS)


def _below(folder: Path) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        yield from (Path(at, name) for name in (*folders, *files))


def exposed(folder: Path) -> str:
    """Return the path of a data folder if others can look into it, else "".

    Whatever lies in a folder that others cannot enter is private, too.
    """
    with suppress(OSError):
        if folder.stat().st_mode & OTHERS:
            return str(folder.absolute())
    return ""
