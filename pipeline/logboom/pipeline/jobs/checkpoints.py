"""The state that a job keeps between runs, in one JSON file, and checks of Spark's checkpoints."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from logboom.wire.base import UNDECODABLE
from logboom.wire.errors import InvalidRequest
from logboom.wire.private_files import make_folder, open_private

NAME: Final = "logboom.json"
"""The name of the file in the checkpoint's folder."""

SINK_LOG: Final = "_spark_metadata"
"""The folder in which Spark's file sink lists the files of each micro-batch."""
_NUMBERED: Final = re.compile(r"(\d+)(\.compact)?")

T = TypeVar("T", bound=Struct)


class StreamState(Struct, frozen=True):
    """The state of a stream whose micro-batches we publish ourselves."""

    app_id: str
    """The owner of the transactions, whose numbers are those of the micro-batches."""


def read(folder: Path, kind: type[T]) -> T | None:
    """Return the state, or None before the first run.

    Raises:
        InvalidRequest: it belongs to another job, or is damaged.
    """
    path = folder / NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except UNDECODABLE as error:
        text = (
            f"{path} is of another job, or damaged ({error}): give this job a checkpoint of its own"
        )
        raise InvalidRequest(text) from None


def write(folder: Path, value: Struct) -> None:
    """Store the state. It is on disk when this returns."""
    make_folder(folder)
    fresh = folder / f"{NAME}.new"
    with open_private(fresh) as file:
        file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / NAME)
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def new_app_id(job: str) -> str:
    """Return a unique application id for transactions."""
    return f"{job}-{uuid.uuid4().hex}"


def stream_app_id(folder: Path, job: str) -> str:
    """Return the application id of a stream, which stays the same as long as its checkpoint."""
    known = read(folder, StreamState)
    if known is None:
        known = StreamState(new_app_id(job))
        write(folder, known)
    return known.app_id


def check_topics(checkpoint: Path, source: Mapping[str, str]) -> None:
    """Check that a stream that continues from a checkpoint still reads all its topics.

    The source could only report that the others are gone.

    Args:
        source: options of the source; only its named topics are checked.

    Raises:
        InvalidRequest: the checkpoint has further topics.
    """
    asked = {name.strip() for name in source.get("subscribe", "").split(",")} - {""}
    known = _topics(checkpoint / "offsets")
    if asked and known - asked:
        names = ", ".join(sorted(known))
        raise InvalidRequest(
            f"{checkpoint} is the checkpoint of a job that reads {names}: ask for all of these, or "
            "give this job a checkpoint of its own"
        )


def check_sink(folder: Path, checkpoint: Path) -> None:
    """Check that a checkpoint knows everything in a folder of Spark's file sink.

    The sink silently skips micro-batches whose numbers it has; with a new checkpoint these are all
    of them.

    Raises:
        InvalidRequest: it does not know everything.
    """
    written, known = _last(folder / SINK_LOG), _last(checkpoint / "offsets")
    if written > known:
        raise InvalidRequest(
            f"{folder} was written with another checkpoint than {checkpoint}, so that Spark would "
            "write nothing there: give the checkpoint that belongs to it, or another folder"
        )


def _last(log: Path) -> int:
    """Return the number of the last micro-batch in one of Spark's logs, or -1."""
    names = (_NUMBERED.fullmatch(path.name) for path in log.glob("*"))
    return max((int(found[1]) for found in names if found), default=-1)


def _topics(log: Path) -> set[str]:
    """Return the topics of the last micro-batch that Spark planned.

    In its file the offsets follow a version and the settings, as the source returned them.
    """
    number = _last(log)
    if number < 0:
        return set()
    try:
        offsets = json.loads((log / str(number)).read_text("utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return set()  # Spark reports errors in its own file
    return set(offsets) if isinstance(offsets, dict) else set()
