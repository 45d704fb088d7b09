"""What a job remembers between its runs, in one JSON file that is replaced at once."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from logboom.wire.errors import InvalidRequest

NAME: Final = "logboom.json"
"""The file, in the checkpoint's folder."""

T = TypeVar("T", bound=Struct)


class Stream(Struct, frozen=True):
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
    known = read(folder, Stream)
    if known is None:
        known = Stream(new_app_id(job))
        write(folder, known)
    return known.app_id
