"""The broker's data folder: whose it is, its format, its markers."""

import os
from pathlib import Path

import msgspec
import pytest

from logboom.nodes.disk.data_folder import FORMAT, DataFolder
from logboom.wire.errors import StartError
from logboom.wire.name_servers import KnownServer


def refused(path: Path, node: str = "broker-1") -> StartError:
    with pytest.raises(StartError) as error:
        DataFolder(path, node)
    assert "\n" not in str(error.value)
    return error.value


def test_a_folder_of_another_node_is_refused(tmp_path: Path) -> None:
    DataFolder(tmp_path, "broker-1").close()
    error = refused(tmp_path, "broker-2")
    assert error.code == "WRONG_DATA_FOLDER"
    assert "belongs to broker-1" in str(error)


def test_a_newer_format_is_refused_whatever_else_it_says(tmp_path: Path) -> None:
    identity = {"format": FORMAT + 1, "node": ["of", "another", "type"]}
    (tmp_path / "identity.json").write_bytes(msgspec.json.encode(identity))
    assert refused(tmp_path).code == "NEWER_FORMAT"


@pytest.mark.parametrize("landed", range(1, FORMAT))
def test_an_older_format_becomes_ours_before_anything_is_written(
    tmp_path: Path, landed: int
) -> None:
    older = {"format": landed, "node": "broker-1", "cluster": "mine"}
    (tmp_path / "identity.json").write_bytes(msgspec.json.encode(older))
    folder = DataFolder(tmp_path, "broker-1")
    assert folder.cluster_id == "mine"
    folder.close()
    assert msgspec.json.decode((tmp_path / "identity.json").read_bytes()) == older | {
        "format": FORMAT
    }


@pytest.mark.parametrize("damage", [b"{", b'{"node": "\xff"}', b'{"format": ' + b"[" * 100_000])
def test_a_damaged_identity_is_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "identity.json").write_bytes(damage)
    assert refused(tmp_path).code == "WRONG_DATA_FOLDER"


def test_a_folder_with_other_things_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    assert refused(tmp_path).code == "WRONG_DATA_FOLDER"
    assert [file.name for file in tmp_path.iterdir()] == ["letters.txt"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"format": 1}'])
def test_an_unreadable_identity_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "identity.json").write_bytes(content)
    assert refused(tmp_path).code == "WRONG_DATA_FOLDER"


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refused(tmp_path / "file").code == "BAD_CONFIG"


def test_data_stays_with_the_cluster_it_was_first_used_in(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path, "broker-1")
    folder.bind("cluster-a")
    folder.bind("cluster-a")
    folder.close()
    again = DataFolder(tmp_path, "broker-1")
    assert again.cluster_id == "cluster-a"
    with pytest.raises(StartError, match="belongs to cluster cluster-a"):
        again.bind("cluster-b")
    again.close()


def test_the_synced_number_is_kept_and_a_damaged_or_deleted_one_is_none(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path, "broker-1")
    assert folder.synced() == 0
    folder.put_synced(77)
    folder.close()
    again = DataFolder(tmp_path, "broker-1")
    assert again.synced() == 77
    (tmp_path / "synced").write_bytes(os.urandom(12))
    assert again.synced() is None
    again.close()
    (tmp_path / "synced").unlink()
    last = DataFolder(tmp_path, "broker-1")
    assert last.synced() is None
    last.close()


def test_stores_set_aside_do_not_replace_each_other(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path, "broker-1")
    for name in ("damaged-1", "damaged-2"):
        (tmp_path / "db").mkdir()
        assert folder.set_aside() == tmp_path / name
    folder.close()


def test_the_folder_remembers_the_name_servers(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path, "broker-1")
    folder.bind("mine")
    assert folder.known_servers == []
    servers = [KnownServer("n4:7701", ["a key"]), KnownServer("n5:7701")]
    folder.remember(servers)
    # A broker that has not heard of any does not forget those that it knows.
    folder.remember([])
    folder.close()
    again = DataFolder(tmp_path, "broker-1")
    assert (again.cluster_id, again.known_servers) == ("mine", servers)
    again.close()


def test_a_disk_that_takes_no_name_servers_is_no_reason_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DataFolder(tmp_path, "broker-1")
    servers = [KnownServer("n4:7701")]
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", _no_space)
        folder.remember(servers)
    assert folder.known_servers == []
    folder.remember(servers)
    assert folder.known_servers == servers
    folder.close()


def _no_space(_file: int) -> None:
    raise OSError(28, "No space left on device")
