"""Credentials files on disk: read only if nobody else can read them, written so that nobody can."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from logboom.wire.access.access_rules import node_user
from logboom.wire.credentials import (
    CREDENTIALS_REMEDY,
    Credentials,
    format_credentials,
    parse_credentials,
)
from logboom.wire.errors import StartError
from logboom.wire.private_files import make_folder
from logboom.wire.secret_files import read_secret
from logboom.wire.sockets import public_key_of

_MODE: Final = 0o600


def read_credentials(path: Path | str) -> Credentials:
    """Return the credentials in a file, or wherever else `read_secret` finds them.

    Raises:
        StartError: BAD_CONFIG; the file cannot be read, others can read it, or its content is not
            valid.
    """
    try:
        content = read_secret(path, "the credentials file", CREDENTIALS_REMEDY)
        credentials = _parse(content, path)
    except StartError as error:
        # The frames behind it hold the secret key, and some tools show local variables.
        raise error.with_traceback(None) from None
    if public_key_of(credentials.key_pair.secret) != credentials.key_pair.public:
        raise StartError(f"{path}: public_key and secret_key are not a pair: copy both of one user")
    return credentials


def _parse(content: bytes, path: Path | str) -> Credentials:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise StartError(f"{path}: it is not text: {CREDENTIALS_REMEDY}") from None
    return parse_credentials(text, str(path))


def read_node_credentials(path: str, node_id: str) -> Credentials | None:
    """Return the credentials of a node, or None if its config names no file.

    Raises:
        StartError: see `read_credentials`; or the file is of another user.
    """
    if not path:
        return None
    found = read_credentials(path)
    if found.user != node_user(node_id):
        raise StartError(
            f"{path} is of user {found.user!r}, and this node is {node_user(node_id)!r}: name its "
            f"own credentials_file (logboom node add {node_id})"
        )
    return found


def write_credentials(path: Path | str, credentials: Credentials) -> None:
    """Write a new credentials file of mode 0600, durably; missing folders are created.

    Raises:
        StartError: BAD_CONFIG; there is such a file, or it cannot be written.
    """
    path = Path(path)
    content = format_credentials(credentials).encode("utf-8")
    if path.exists():
        text = f"{path} exists: move it away first, because the key in it may be in use"
        raise StartError(text)
    try:
        make_folder(path.parent)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    except OSError as error:
        raise StartError(f"cannot write {path} ({error.strerror})") from None
    try:
        with os.fdopen(handle, "wb") as file:
            # The mode of `open` is narrowed by the umask, which may forbid even the owner.
            os.fchmod(handle, _MODE)
            file.write(content)
            file.flush()
            os.fsync(handle)
        _sync_folder(path.parent)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StartError(f"cannot write {path} ({error.strerror})") from None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
