"""The small disk of one broker, which can be filled: a tmpfs, or without root a part of this disk."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any, Final

RESERVE: Final = 64 * 1024 * 1024
"""`disk_reserve_bytes` of the broker on a disk of its own."""
ROOM_BYTES: Final = 4 * 1024 * 1024 * 1024
"""Bytes that the broker may use before its disk is full."""
PIECE: Final = 1024 * 1024
BITE: Final = 256 * PIECE
"""Bytes that are taken at once when it is filled."""


def unmount_below(folder: Path) -> None:
    """Unmount what a run that was killed has left below `folder`."""
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        kind, where = line.split()[0], Path(line.split()[1])
        if kind == "tmpfs" and folder in where.parents:
            subprocess.run(["umount", "--lazy", str(where)], check=False)


class SmallDisk:
    """What `folder`, a broker's, lies on."""

    def __init__(self, folder: Path, room: int = ROOM_BYTES) -> None:
        """Mount a tmpfs at `folder` if that is allowed; `room` is for the broker's use."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(folder)]
        self.own = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        """Whether it is a file system of its own."""
        self._reserve = RESERVE if self.own else max(RESERVE, self._free() - room)
        self._ballast = folder / "ballast"

    def _free(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    @property
    def settings(self) -> dict[str, Any]:
        """What the broker's config file says of it."""
        return {"disk_reserve_bytes": self._reserve, "disk_reserve_percent": 0.0}

    def fill(self, *, wholly: bool) -> str:
        """Fill it up to below the reserve, or (a disk of its own) to the last byte; what was done."""
        wholly = wholly and self.own
        left = 0 if wholly else self._reserve // 2 if self.own else self._reserve - PIECE
        with self._ballast.open("wb") as ballast:
            # In pieces, as the broker writes meanwhile.
            try:
                while (more := min(BITE, self._free() - left)) > 0:
                    os.posix_fallocate(ballast.fileno(), ballast.seek(0, os.SEEK_END), more)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        return "full to the last byte" if wholly else "below its reserve"

    def empty(self) -> None:
        """Make room again."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it; its content goes."""
        if self.own:
            subprocess.run(["umount", str(self._folder)], check=False)
            self.own = False
