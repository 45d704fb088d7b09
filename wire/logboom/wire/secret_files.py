"""Where secrets are read from: a file that nobody else can read, the environment, or systemd.

A setting that names a secret is a path, or `env:NAME` for the content of an environment variable, or
`credential:NAME` for a credential that systemd has put below CREDENTIALS_DIRECTORY.

A file must belong to this user, who alone can read it (mode 0600 or less), or to root, who may also
let one group read it (0640 or less), as Kubernetes does for `fsGroup`. What systemd provides is taken
as it is.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from logboom.wire.errors import StartError
from logboom.wire.key_pair import SecretBytes

ENVIRONMENT: Final = "env:"
CREDENTIAL: Final = "credential:"
MAX_SECRET_BYTES: Final = 4 * 1024 * 1024
"""More than thousands of servers or viewers take."""


def source_below(source: str, folder: Path) -> str:
    """Return where a secret is; a relative path begins at `folder`."""
    if source.startswith((ENVIRONMENT, CREDENTIAL)):
        return source
    return str(folder / Path(source).expanduser())


def read_secret(source: Path | str, what: str, remedy: str = "") -> SecretBytes:
    """Return the content of a secret.

    Args:
        source: as a setting names it.
        what: what it is, for errors: "the cluster key file".
        remedy: what helps if there is none.

    Raises:
        StartError: BAD_CONFIG; there is none, it cannot be read, or others can read or change it.
    """
    named = str(source)
    if named.startswith(ENVIRONMENT):
        found = os.environb.get(os.fsencode(named.removeprefix(ENVIRONMENT)))
        if found is None:
            raise StartError(f"{what} {named} is not set in the environment{_then(remedy)}")
        return SecretBytes(found)
    path = Path(named)
    if named.startswith(CREDENTIAL):
        path = Path(os.environ.get("CREDENTIALS_DIRECTORY", ""), named.removeprefix(CREDENTIAL))
        if not _is_managed(path):
            text = "systemd gives this process no credential of that name: see LoadCredential="
            raise StartError(f"{what} {named}: {text}")
    try:
        # NONBLOCK: opening a named pipe would wait for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        then = _then(remedy) if isinstance(error, FileNotFoundError) else ""
        raise StartError(f"cannot read {what} {path} ({error.strerror}){then}") from None
    try:
        # Of what was opened, not of what the path may lead to by now.
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise StartError(f"{what} {path} is no regular file{_then(remedy)}")
        fault = mode_fault(status.st_uid, stat.S_IMODE(status.st_mode), os.geteuid(), path)
        if fault and not _is_managed(path):
            raise StartError(f"{what} {path} {fault}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = SecretBytes(file.read(MAX_SECRET_BYTES + 1))
    except OSError as error:
        raise StartError(f"cannot read {what} {path} ({error.strerror})") from None
    finally:
        os.close(handle)
    if len(content) > MAX_SECRET_BYTES:
        raise StartError(f"{what} {path} has more than {MAX_SECRET_BYTES} bytes{_then(remedy)}")
    return content


def mode_fault(owner: int, mode: int, user: int, path: Path) -> str:
    """Return why a file of an owner with a mode keeps no secret of a user, with the remedy, or ""."""
    if owner not in (user, 0):
        return "belongs to another user, who can read and change it: copy it to a file of your own"
    if owner == user and mode & 0o177:
        return f"can be read or changed by others: chmod 600 {path}"
    if owner != user and mode & 0o137:
        group = "as root, with a group of this user alone"
        return f"can be read or changed by others: chmod 640 {path} {group}"
    return ""


def _is_managed(path: Path) -> bool:
    """Return True if a file is in the folder that systemd fills with credentials."""
    folder = Path(os.environ.get("CREDENTIALS_DIRECTORY", ""))
    return folder.is_absolute() and path.resolve().is_relative_to(folder.resolve())


def _then(remedy: str) -> str:
    return f": {remedy}" if remedy else ""
