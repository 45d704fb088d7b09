"""The cluster key file: what all nodes of a cluster share, and nobody else may read.

Nodes prove to each other that they hold it (HMAC, `wire.hello`); clients do not need it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

KEY_BYTES: Final = 32
MODE: Final = 0o600


def ensure_key(path: Path) -> Path:
    """Make a key file at `path`, mode 0600, unless it is there; return `path`.

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    except FileExistsError:
        return path
    with os.fdopen(file, "w", encoding="ascii") as key_file:
        key_file.write(secrets.token_hex(KEY_BYTES) + "\n")
        key_file.flush()
        os.fsync(key_file.fileno())
    return path
