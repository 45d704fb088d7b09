"""The file of a console's viewers: of mode 0600, read again when it changes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from logboom.console.viewer_records import (
    MAX_VIEWERS,
    SignedInBook,
    ViewerRecord,
    format_viewers,
    parse_viewers,
)
from logboom.console.viewers import Viewer
from logboom.wire.errors import LogboomError, StartError
from logboom.wire.private_files import make_folder
from logboom.wire.secret_files import read_secret

LOOK_S: Final = 1.0
"""Seconds between two looks at the file while the console runs."""
_MODE: Final = 0o600


def read_viewers(path: Path) -> dict[str, ViewerRecord]:
    """Return the viewers in a file; none if there is no file.

    Raises:
        StartError: it cannot be read, others can read it, or its content is not valid.
    """
    if not os.path.lexists(path):
        return {}
    content = read_secret(path, "the file of viewers")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise StartError(f"{path} is no file of viewers: it is not text") from None
    return parse_viewers(text, str(path))


def write_viewers(path: Path, viewers: Mapping[str, ViewerRecord]) -> None:
    """Write the file anew, durably and at one stroke.

    Raises:
        StartError: it cannot be written, or there are too many viewers.
    """
    if len(viewers) > MAX_VIEWERS:
        raise StartError(f"a console has {MAX_VIEWERS} viewers at most: remove some")
    new = path.with_name(f".{path.name}.new")
    try:
        make_folder(path.parent)
        new.unlink(missing_ok=True)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, _MODE)
                file.write(format_viewers(viewers).encode("utf-8"))
                file.flush()
                os.fsync(handle)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StartError(f"cannot write {path} ({error.strerror})") from None


class ViewersFile:
    """The viewers of a console that runs: who is removed is signed out within a second."""

    must_sign_in = True

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            StartError: it cannot be used.
        """
        self.path = path
        self._book = SignedInBook(read_viewers(path))
        self._seen = _state_of(path)
        self._next_look = time.monotonic() + LOOK_S

    @property
    def viewers(self) -> Mapping[str, ViewerRecord]:
        """The viewers by name."""
        self._follow()
        return self._book.viewers

    def find(self, name: str) -> Viewer | None:
        """Return the viewer of a session, or None if it must sign in."""
        self._follow()
        return self._book.find(name)

    def _follow(self) -> None:
        """Read the file again if it has changed. What cannot be used lets nobody in."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        state = _state_of(self.path)
        if state == self._seen:
            return
        self._seen = state
        try:
            self._book.replace(read_viewers(self.path))
        except LogboomError:
            self._book.replace({})


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
