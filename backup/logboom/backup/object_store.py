"""The place of backups: a folder, or an object store that fsspec knows; the skin of this portion.

A file appears under its name only when it is whole. On a file system it is written beside, synced,
and renamed; an object store shows an object only once it is complete.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from logboom.backup.backup_format import MANIFEST, ReadableFile
from logboom.wire.errors import InvalidRequest, StartError, Unavailable
from logboom.wire.private_files import make_folder, open_private

PART: Final = ".part"
"""Suffix of a file that is being written."""
SLICE_BYTES: Final = 256 * 1024
"""Bytes of one write to a local file."""
LIBRARIES: Final = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs"}
"""Protocol → the library that fsspec needs for it."""
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class BackupStore:
    """The files of all backups under one URL."""

    def __init__(self, url: str) -> None:
        """Open a store; a folder need not exist yet.

        Args:
            url: a path, or a URL of any kind that fsspec knows. Credentials are taken from where its
                library takes them, such as the environment.

        Raises:
            StartError: a library is missing, or the URL cannot be used.
        """
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise StartError("backups need fsspec: pip install 'logboom[backup]'") from None
        self.url = url.rstrip("/") or url
        protocol = url.partition("://")[0] if "://" in url else "file"
        try:
            self._fs, root = url_to_fs(url)
        except ImportError:
            library = LIBRARIES.get(protocol, f"the library that fsspec needs for {protocol}")
            text = f"{url}: this kind of store needs its own library: pip install {library}"
            raise StartError(text) from None
        except ValueError as error:
            text = f"{url}: {error}: give a folder, or a URL such as s3://bucket/folder"
            raise StartError(text) from None
        self._root: str = str(root).rstrip("/")
        self.is_local = "file" in _protocols(self._fs)
        """True for a folder on this machine."""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def describe(self, name: str) -> str:
        """Return a file's name for people."""
        return f"{self.url}/{name}"

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn the errors of a store's library into ours.

        Raises:
            Unavailable: there is no space, or the store cannot be reached.
            InvalidRequest: it refuses.
        """
        where = self.describe(name)
        try:
            yield
        except PermissionError as error:
            text = (
                f"{where}: permission denied ({error.strerror or error}): check your rights there"
            )
            raise InvalidRequest(text) from None
        except NotADirectoryError:
            raise InvalidRequest(f"{where}: a part of this path is no folder") from None
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in _NO_ROOM:
                text = f"{where}: no space left: free some, and give the same command again"
                raise Unavailable(text, "DISK_FULL") from None
            text = f"{where}: {error.strerror or error}: check that it can be reached"
            raise Unavailable(text) from None

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def exists(self, name: str) -> bool:
        """Return True if there is such a file."""
        with self._errors(name):
            self._forget_listings()
            return bool(self._fs.isfile(self._path(name)))

    def read(self, name: str) -> bytes:
        """Return the content of a small file.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._errors(name):
            return bytes(self._fs.cat_file(self._path(name)))

    @contextmanager
    def open(self, name: str) -> Iterator[ReadableFile]:
        """Open a file to be read from its beginning.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._errors(name):
            file = self._fs.open(self._path(name), "rb")
        with file:
            yield _Guarded(cast("BinaryIO", file), partial(self._errors, name))

    def folders(self) -> list[str]:
        """Return the names of all folders, sorted."""
        with self._errors(""):
            self._forget_listings()
            try:
                found = self._fs.ls(self._root, detail=True)
            except FileNotFoundError:
                return []
        names = [str(each["name"]).rstrip("/") for each in found if each["type"] == "directory"]
        return sorted(name.rpartition("/")[2] for name in names)

    def files(self, folder: str) -> dict[str, int]:
        """Return name below the folder → size of all files in a folder."""
        with self._errors(folder):
            self._forget_listings()
            try:
                found = self._fs.find(self._path(folder), detail=True)
            except FileNotFoundError:
                return {}
        begin = self._path(folder).lstrip("/")
        return {
            str(path).lstrip("/")[len(begin) + 1 :]: int(each["size"] or 0)
            for path, each in sorted(found.items())
        }

    def _forget_listings(self) -> None:
        # Some libraries remember them, and other processes write and remove files, too.
        self._fs.invalidate_cache()

    def free_bytes(self) -> int | None:
        """Return the free bytes of a local folder; None for other stores."""
        if not self.is_local:
            return None
        at = Path(self._root)
        while not at.exists() and at != at.parent:
            at = at.parent
        return shutil.disk_usage(at).free

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Write a file, which appears when the block ends without an error."""
        path = self._path(name)
        if not self.is_local:
            with self._errors(name):
                with self._fs.open(path, "wb", autocommit=False) as file:
                    try:
                        yield cast("BinaryIO", file)
                    # Ctrl-C too: what is not whole must not appear.
                    except BaseException:
                        with suppress(OSError):  # the first error is the one to report
                            file.discard()
                            self._fs.rm_file(path)
                        raise
                file.commit()
            return
        part = Path(path + PART)
        with self._errors(name):
            make_folder(part.parent)
            try:
                with open_private(part) as file:
                    yield cast("BinaryIO", _Sliced(file))
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(path)
            # Ctrl-C too: nothing of the file stays.
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            _sync_folder(part.parent)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file, or put it in the place of one."""
        if self.is_local:
            with self.create(name) as file:
                file.write(content)
            return
        with self._errors(name):
            self._fs.pipe_file(self._path(name), content)

    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""
        with self._errors(name), suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def remove_folder(self, folder: str) -> None:
        """Remove a backup's folder, its manifest first: what is left is then no backup."""
        self.remove(f"{folder}/{MANIFEST}")
        with self._errors(folder), suppress(FileNotFoundError):
            self._fs.rm(self._path(folder), recursive=True)


class _Guarded:
    """A file whose errors name it."""

    def __init__(self, file: BinaryIO, errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._file = file
        self._errors = errors

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes."""
        with self._errors():
            return self._file.read(size)


class _Sliced:
    """A file that is written in small pieces: at several MiB a call, ext4 takes five times as long."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: bytes | memoryview) -> int:
        """Write all of the data."""
        view = memoryview(data)
        for at in range(0, len(view), SLICE_BYTES):
            self._file.write(view[at : at + SLICE_BYTES])
        return len(view)


def _protocols(fs: Any) -> tuple[str, ...]:
    protocol = fs.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
