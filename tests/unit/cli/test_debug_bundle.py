"""The file of `logboom debug bundle`: whole or not there, for its owner only."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.cli.debug_bundle import logs, newest, write
from logboom.cli.output import named
from logboom.wire.view import SettingView


def test_a_bundle_is_for_its_owner_and_holds_what_is_given(tmp_path: Path) -> None:
    path = tmp_path / "fault.tar.gz"
    size = write(path, iter([("a.json", b"{}"), ("logs/broker-1.log", b"line\n")]))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size == size
    with tarfile.open(path) as archive:
        found = {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]  # all are files
    assert found == {"fault/a.json": b"{}", "fault/logs/broker-1.log": b"line\n"}


def test_what_lies_in_the_way_of_a_bundle_is_not_written_to(tmp_path: Path) -> None:
    path, part, other = (tmp_path / name for name in ("b.tar.gz", ".b.tar.gz.part", "other"))
    other.write_bytes(b"kept")
    part.symlink_to(other)
    write(path, iter([("a.json", b"{}")]))
    assert other.read_bytes() == b"kept"
    assert not path.is_symlink()

    path.unlink()
    part.touch(0o644)
    write(path, iter([("a.json", b"{}")]))
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_is_left_of_a_bundle_that_fails(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[str, bytes]]:
        yield "a.json", b"{}"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "fault.tar.gz", broken())
    assert not list(tmp_path.iterdir())


def test_an_older_bundle_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "fault.tar.gz"
    path.write_bytes(b"older")
    with pytest.raises(FileExistsError):
        write(path, iter([]))
    assert path.read_bytes() == b"older"


def test_of_a_long_log_the_newest_whole_lines_are_taken(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_bytes(b"first line\nsecond\nthird\n")
    assert newest(log) == b"first line\nsecond\nthird\n"
    assert newest(log, 16) == b"(older lines are left out)\nsecond\nthird\n"


def test_logs_of_this_machine_and_given_ones_have_names_of_their_own(tmp_path: Path) -> None:
    for name in ("broker-1", "name-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "node.log").write_bytes(name.encode())
    more = [tmp_path / "broker-1" / "node.log"] * 2
    found = dict(logs(tmp_path, more))
    assert list(found) == [
        "logs/broker-1.log",
        "logs/name-1.log",
        "logs/0-node.log",
        "logs/1-node.log",
    ]


def test_structs_that_travel_as_arrays_have_names_in_files() -> None:
    found = named({"settings": [SettingView("", "log_level", "debug")]})
    assert found == {"settings": [{"scope": "", "name": "log_level", "value": "debug"}]}
