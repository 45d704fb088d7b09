"""What a job remembers between its runs, in one JSON file that is replaced at once; and what Spark
does, as far as it must be looked at before a stream begins."""

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

from logboom.wire.errors import InvalidRequest

NAME: Final = "logboom.json"
"""The file, in the checkpoint's folder."""

SINK_LOG: Final = "_spark_metadata"
"""In a folder of Spark's file sink: a file for each micro-batch, which lists what it wrote."""
_NUMBERED: Final = re.compile(r"(\d+)(\.compact)?")

T = TypeVar("T", bound=Struct)


class StreamState(Struct, frozen=True):
    """Of a stream whose micro-batches we publish ourselves."""

    app_id: str
    """Whose transactions they are; their numbers are those of the micro-batches."""


def read(folder: Path, kind: type[T]) -> T | None:
    """What was remembered; None before the first run.

    Raises:
        InvalidRequest: another job's, or damaged.
    """
    path = folder / NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        text = (
            f"{path} is of another job, or damaged ({error}): give this job a checkpoint of its own"
        )
        raise InvalidRequest(text) from None


def write(folder: Path, value: Struct) -> None:
    """Remember; on disk when it returns."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{NAME}.new"
    with fresh.open("wb") as file:
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
    """A name for transactions that nobody else has."""
    return f"{job}-{uuid.uuid4().hex}"


def stream_app_id(folder: Path, job: str) -> str:
    """The name of a stream's transactions: the same as long as its checkpoint is."""
    known = read(folder, StreamState)
    if known is None:
        known = StreamState(new_app_id(job))
        write(folder, known)
    return known.app_id


def check_topics(checkpoint: Path, source: Mapping[str, str]) -> None:
    """Whether a stream that goes on from a checkpoint still reads all that it read before. The
    source could only say of the others that they are gone.

    Args:
        source: options of the source; looked at are topics that it names.

    Raises:
        InvalidRequest: the checkpoint is of other topics too.
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
    """Whether a checkpoint knows all that stands in a folder of Spark's file sink. The sink leaves
    out micro-batches whose number it has, without a word: with a new checkpoint all of them.

    Raises:
        InvalidRequest: it does not.
    """
    written, known = _last(folder / SINK_LOG), _last(checkpoint / "offsets")
    if written > known:
        raise InvalidRequest(
            f"{folder} was written with another checkpoint than {checkpoint}, so that Spark would "
            "write nothing there: give the checkpoint that belongs to it, or another folder"
        )


def _last(log: Path) -> int:
    """The last micro-batch in one of Spark's logs; -1 if there is none."""
    names = (_NUMBERED.fullmatch(path.name) for path in log.glob("*"))
    return max((int(found[1]) for found in names if found), default=-1)


def _topics(log: Path) -> set[str]:
    """The topics of the last micro-batch that Spark planned: below its version and settings the
    offsets stand as the source gave them."""
    number = _last(log)
    if number < 0:
        return set()
    try:
        offsets = json.loads((log / str(number)).read_text("utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return set()  # Spark tells what is wrong with its own file
    return set(offsets) if isinstance(offsets, dict) else set()
