"""A registry of this user's running clusters, so that commands find them from any folder.

There is one file per cluster in `$XDG_STATE_HOME/logboom/clusters`, named after the cluster's
folder and containing its path. It is only a hint: the reader has to check that the nodes run.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from logboom.wire.private_files import make_folder, write_private


def remember(data: Path) -> None:
    """Register a cluster that runs in the folder `data`.

    Without a writable home directory, commands find it only by `--data` or `--servers`.
    """
    with suppress(OSError, RuntimeError):
        path = _file(data)
        make_folder(path.parent)
        write_private(path, os.fsencode(data.absolute()))


def forget(data: Path) -> None:
    """Remove the cluster from the registry."""
    with suppress(OSError, RuntimeError):
        _file(data).unlink(missing_ok=True)


def folders() -> list[Path]:
    """Return the folders of the registered clusters, ordered by name."""
    try:
        notes = list(_home().iterdir())
        return sorted(Path(note.read_text(encoding="utf-8")) for note in notes)
    except (OSError, RuntimeError, UnicodeDecodeError):
        return []


def _file(data: Path) -> Path:
    return _home() / hashlib.sha256(os.fsencode(data.absolute())).hexdigest()[:16]


def _home() -> Path:
    """Return the folder of the registry.

    Raises:
        RuntimeError: this user has no home directory.
    """
    state = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(state) / "logboom" / "clusters"
