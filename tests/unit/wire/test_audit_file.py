"""The file of the audit log: its mode, its turns, and a file system without room."""

import errno
import json
import os
from pathlib import Path

import pytest

from logboom.wire import audit_file
from logboom.wire.actor import Instant
from logboom.wire.audit_file import DEFAULT_FILES, MOST_FILES, AuditFile, AuditFiles
from logboom.wire.audit_log import AuditEntry, AuditLog
from logboom.wire.errors import StartError

NOW = Instant(100.0, 0)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_lines_are_appended_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "audit.log"
    for line in (b"one\n", b"two\n"):
        file = AuditFile(path.parent, "n")
        file.write([line], NOW)
        file.close()
        # An older version, or somebody else, had it readable for all.
        assert mode_of(path) == 0o600
        path.chmod(0o644)
    assert path.read_bytes() == b"one\ntwo\n"
    file = AuditFile(path.parent, "n")
    assert mode_of(path) == 0o600
    file.close()


def test_files_are_turned_over_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "MAX_FILE_BYTES", 100)
    file = AuditFile(tmp_path, "n")
    for number in range(100):
        file.write([b"%09d\n" % number], NOW)
    file.close()
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["audit.log", *(f"audit.log.{n}" for n in range(1, DEFAULT_FILES))]
    assert {mode_of(path) for path in tmp_path.iterdir()} == {0o600}
    kept = b"".join((tmp_path / name).read_bytes() for name in reversed(found))
    assert kept == b"".join(b"%09d\n" % number for number in range(60, 100))


def test_as_many_files_are_kept_as_a_node_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "MAX_FILE_BYTES", 8)
    files = AuditFiles(tmp_path, "n", 7)
    log = AuditLog("n")
    log.begin(NOW)
    for number in range(20):
        log.managed(AuditEntry(event="command", verb="admin", request_id=number))
        files.write(log, NOW)
    files.close(log)
    found = {path.name for path in tmp_path.iterdir()}
    for name in ("audit.log", "audit-admin.log"):
        assert {each for each in found if each.startswith(name)} == {
            name,
            *(f"{name}.{number}" for number in range(1, 7)),
        }
    for wrong in (1, 0, MOST_FILES + 1):
        with pytest.raises(StartError, match="audit_files"):
            AuditFiles(tmp_path, "n", wrong)


def test_fewer_files_than_before_leave_no_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "MAX_FILE_BYTES", 4)
    for files in (7, 3):
        file = AuditFile(tmp_path, "n", files=files)
        for _ in range(8):
            file.write([b"one\n"], NOW)
        file.close()
        (tmp_path / "audit.log.20260101").touch()  # Somebody else's, by its number.
        (tmp_path / "audit.log.old").touch()
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == [
        "audit.log",
        "audit.log.1",
        "audit.log.2",
        "audit.log.20260101",
        "audit.log.old",
    ]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "audit.log").symlink_to(tmp_path / "victim")
    with pytest.raises(StartError, match="audit_folder") as caught:
        AuditFile(tmp_path, "n")
    assert caught.value.code == "BAD_CONFIG"
    assert not (tmp_path / "victim").exists()


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "audit.log")
    with pytest.raises(StartError, match="audit_folder"):
        AuditFile(tmp_path, "n")


def test_without_room_lines_are_lost_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = AuditFile(tmp_path, "n")
    file.write([b'{"n":1}\n'], NOW)
    room = 5
    write = os.write

    def full(descriptor: int, said: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, said[:room])
        room -= written
        return written

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for number in (2, 3, 4):
            file.write([b'{"n":%d}\n' % number], NOW)
    assert file.lost == 3
    (complaint,) = caplog.messages
    assert "3 lines" not in complaint
    assert "Free space" in complaint
    file.write([b'{"n":5}\n'], NOW)
    file.close()
    lines = (tmp_path / "audit.log").read_bytes().split(b"\n")
    assert lines[:2] == [b'{"n":1}', b'{"n":']
    gap, last = json.loads(lines[2]), json.loads(lines[3])
    assert (gap["event"], gap["result"], gap["count"]) == ("audit", "LOST", 3)
    assert last == {"n": 5}


def test_a_turn_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "MAX_FILE_BYTES", 4)
    file = AuditFile(tmp_path, "n")
    file.write([b"one\n"], NOW)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", _no_descriptors)
        file.write([b"two\n"], NOW)
        file.write([b"three\n"], NOW)
    file.write([b"four\n"], NOW)
    file.close()
    assert file.lost == 2
    assert (tmp_path / "audit.log").read_bytes().endswith(b"four\n")
    assert (tmp_path / "audit.log.1").read_bytes() == b"one\n"


def _no_descriptors(*_: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files")
