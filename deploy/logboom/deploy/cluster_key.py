"""The cluster key file, which all nodes of a cluster share and nobody else may read.

Nodes prove to each other that they have it (HMAC, `wire.hello`). Clients do not need it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from logboom.wire.cluster_keys import KEY_BYTES, read_cluster_keys
from logboom.wire.key_pair import SecretBytes
from logboom.wire.private_files import make_folder

MODE: Final = 0o600


def ensure_key(path: Path, key: bytes | None = None) -> Path:
    """Make a key file at `path`, mode 0600, unless it is there; return `path`.

    It gets `key`, which may be both keys of `read_keys`, or a new one.

    Raises:
        OSError: the folder cannot be written.
    """
    make_folder(path.parent)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    except FileExistsError:
        return path
    with os.fdopen(file, "wb") as key_file:
        key_file.write(secrets.token_hex(KEY_BYTES).encode() if key is None else key)
        key_file.write(b"\n")
        key_file.flush()
        os.fsync(key_file.fileno())
    return path


def read_key(path: Path | str) -> SecretBytes:
    """Return the key that is in use from a key file (`wire/cluster_keys.py`).

    Raises:
        StartError: BAD_CONFIG; no file is named, it cannot be read, others can read it, or it is
            too short.
    """
    return read_cluster_keys(path)[0]


def read_keys(path: Path | str) -> SecretBytes:
    """Return all keys of a key file, as clients take them (`connect(cluster_key=…)`).

    Raises:
        StartError: BAD_CONFIG, as of `read_key`.
    """
    return SecretBytes(b"\n".join(read_cluster_keys(path)))
