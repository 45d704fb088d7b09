"""Files and folders that their owner alone can read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logboom.backup.object_store import BackupStore
from logboom.client.groups.offsets_file import OffsetsFile
from logboom.deploy import config_files
from logboom.deploy.layout import lay_out
from logboom.deploy.ports import Ports
from logboom.metadata.raft.journal import RocksJournal
from logboom.nodes.disk.data_folder import DataFolder
from logboom.pipeline.jobs import checkpoints
from logboom.wire.audit_file import AuditFile
from logboom.wire.private_files import exposed, make_folder, open_private, tighten


def mode_of(path: Path) -> int:
    """The permissions of a file or folder."""
    return path.stat().st_mode & 0o7777


def open_to_others(folder: Path) -> list[Path]:
    """What others can read of a folder, itself included."""
    return [path for path in (folder, *folder.rglob("*")) if mode_of(path) & 0o077]


def _backup(folder: Path) -> None:
    with BackupStore(str(folder)).create("b/part") as file:
        file.write(b"x")


def _broker(folder: Path) -> None:
    data = DataFolder(folder, "b")
    data.mark("suspect", "why")
    data.close()


def _checkpoint(folder: Path) -> None:
    checkpoints.write(folder, checkpoints.StreamState("a"))


def _offsets(folder: Path) -> None:
    file = OffsetsFile(folder / "offsets.json", "g")
    file.load()
    file.save({})
    file.close()


def _layout(folder: Path) -> None:
    ports = Ports("free")
    try:
        lay_out(folder, 1, 1, ports, secure=True).mark_founded()
    finally:
        ports.release()


@pytest.mark.parametrize("write", [_backup, _broker, _checkpoint, _offsets, _layout])
def test_what_is_written_is_private_whatever_the_umask(write: object, tmp_path: Path) -> None:
    assert callable(write)
    before = os.umask(0o002)
    try:
        write(tmp_path / "a" / "b")
        # This process goes on with its own.
        assert os.umask(0o002) == 0o002
    finally:
        os.umask(before)
    assert list((tmp_path / "a" / "b").iterdir())
    assert open_to_others(tmp_path / "a") == []


def test_a_config_file_and_an_audit_log_are_private(tmp_path: Path) -> None:
    config_files.write(tmp_path / "n" / "node.toml", {"id": "n"})
    AuditFile(tmp_path / "m", "n").close()
    assert open_to_others(tmp_path / "n") == open_to_others(tmp_path / "m") == []


def test_files_of_older_versions_are_private_once_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with open_private(path, append=True) as file:
        file.write(b" and new")
    assert (path.read_bytes(), mode_of(path)) == (b"old and new", 0o600)
    with open_private(path) as file:
        file.write(b"newer")
    assert path.read_bytes() == b"newer"


def test_existing_folders_keep_their_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_folder(tmp_path / "x" / "y")
    make_folder(tmp_path / "x" / "y")
    assert mode_of(tmp_path) == 0o755
    assert mode_of(tmp_path / "x") == mode_of(tmp_path / "x" / "y") == 0o700


def loosened(folder: Path) -> Path:
    """Let others read a folder, as older versions did."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def test_a_brokers_folder_of_an_older_version_is_private_once_it_is_opened(tmp_path: Path) -> None:
    _broker(tmp_path / "d")
    (tmp_path / "d" / "db").mkdir()
    (tmp_path / "d" / "db" / "000004.sst").touch()
    folder = loosened(tmp_path / "d")
    assert exposed(folder) == str(folder)
    DataFolder(folder, "b").close()
    assert open_to_others(folder) == []
    assert exposed(folder) == ""


def test_a_name_servers_folder_of_an_older_version_is_private_once_it_is_opened(
    tmp_path: Path,
) -> None:
    RocksJournal(tmp_path / "d", "n", "c", create=True).close()
    folder = loosened(tmp_path / "d")
    RocksJournal(folder, "n", "c", create=False).close()
    assert mode_of(folder) == mode_of(folder / "journal") == 0o700
    assert mode_of(folder / "identity.json") == mode_of(folder / "synced") == 0o600


def test_a_clusters_folder_of_an_older_version_is_private_once_it_is_laid_out(
    tmp_path: Path,
) -> None:
    _layout(tmp_path / "c")
    log = tmp_path / "c" / "name-1" / "node.log"
    log.touch()
    for name in ("cluster.json", "cluster.lock"):
        (tmp_path / "c" / name).touch()
    loosened(tmp_path / "c")
    for path in (tmp_path / "c").rglob("*.toml"):
        path.chmod(0o600)  # it is refused otherwise, as ever
    (tmp_path / "c" / "cluster.key").chmod(0o600)
    _layout(tmp_path / "c")
    assert open_to_others(tmp_path / "c") == []


def test_a_folder_that_holds_something_else_keeps_its_mode(tmp_path: Path) -> None:
    _layout(tmp_path)
    (tmp_path / "notes.txt").touch(0o644)
    tmp_path.chmod(0o755)
    _layout(tmp_path)
    assert mode_of(tmp_path) == 0o755
    assert mode_of(tmp_path / "notes.txt") & 0o044
    assert mode_of(tmp_path / "name-1") == 0o700


def test_links_and_shared_folders_are_left(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    other.chmod(0o644)
    data = tmp_path / "data"
    data.mkdir(0o755)
    (data / "link").symlink_to(other)
    (data / "dangling").symlink_to(tmp_path / "missing")
    tighten(data)
    assert (mode_of(data), mode_of(other)) == (0o700, 0o644)
    data.chmod(0o1777)
    tighten(data)
    assert mode_of(data) == 0o1777
