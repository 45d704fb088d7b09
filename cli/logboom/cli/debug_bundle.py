"""The files of a debug bundle: what the nodes report, and the logs of those on this machine.

Nothing of it is a secret: keys are never told by nodes, and credentials and key files are not read.
"""

from __future__ import annotations

import errno
import io
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from logboom import __version__
from logboom.cli.cluster_address import Destination
from logboom.cli.doctor_command import check_cluster, machine
from logboom.cli.output import named
from logboom.client import Client
from logboom.wire.errors import LogboomError

MAX_LOG_BYTES: Final = 16 * 1024 * 1024
"""The newest bytes of each log that a bundle takes."""
MODE: Final = 0o600
"""Mode of a bundle: it names topics, groups, users and hosts."""


def reports(
    boom: Client, destination: Destination, on_part: Callable[[str], None]
) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, contents) of what the cluster reports; a part that fails says why.

    `on_part` is called with each name before it is asked for.
    """
    admin = boom.admin
    parts: dict[str, Callable[[], Any]] = {
        "about.json": _about,
        "doctor.json": lambda: [asdict(each) for each in (*machine(), *check_cluster(destination))],
        "statistics.json": admin.stats,
        "settings.json": admin.describe_config,
        "cluster.json": admin.describe_cluster,
        "versions.json": admin.versions,
        "brokers.json": admin.brokers,
        "name-servers.json": admin.name_servers,
        "topics.json": admin.topics,
        "groups.json": lambda: [admin.describe_group(each.name) for each in admin.groups()],
        "transactions.json": admin.transactions,
        "connections.json": admin.connections,
    }
    for name, ask in parts.items():
        on_part(name)
        try:
            found = ask()
        except LogboomError as error:
            found = {"error": error.text}
        yield name, msgspec.json.format(msgspec.json.encode(named(found), enc_hook=str), indent=2)


def _about() -> dict[str, str]:
    return {
        "logboom": __version__,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "system": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
    }


def logs(folder: Path | None, more: list[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, contents) of the logs of a cluster on this machine, and of given files.

    Of a long one, the newest `MAX_LOG_BYTES` from the start of a line on.

    Raises:
        OSError: a given file cannot be read.
    """
    for path in sorted(folder.glob("*/node.log")) if folder is not None else ():
        yield f"logs/{path.parent.name}.log", newest(path)
    for place, path in enumerate(more):
        yield f"logs/{place}-{path.name}", newest(path)


def newest(path: Path, most: int = MAX_LOG_BYTES) -> bytes:
    """Return the end of a file, from the start of a line on."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        text = file.read(most)
    if size <= most:
        return text
    _, _, whole = text.partition(b"\n")
    return b"(older lines are left out)\n" + whole


def write(path: Path, files: Iterator[tuple[str, bytes]]) -> int:
    """Write files into a new tar.gz that only its owner may read, and return its bytes.

    It is written beside its place and renamed at the end, so that a bundle is whole or not there.

    Raises:
        FileExistsError: there is a file at `path` already.
        OSError: it cannot be written.
    """
    if path.exists():
        raise FileExistsError(errno.EEXIST, "it exists already, choose another name", str(path))
    part = path.with_name(f".{path.name}.part")
    stem = path.name.removesuffix(".tar.gz")
    try:
        # What an older run or somebody else left there is not written to: it may be a link, or open
        # to others.
        part.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with (
            os.fdopen(os.open(part, flags, MODE), "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            # Whatever the umask is.
            os.fchmod(file.fileno(), MODE)
            for name, contents in files:
                entry = tarfile.TarInfo(f"{stem}/{name}")
                entry.size, entry.mtime, entry.mode = len(contents), int(time.time()), MODE
                archive.addfile(entry, io.BytesIO(contents))
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return path.stat().st_size
