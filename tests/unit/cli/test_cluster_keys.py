"""The cluster that a command is about, and the cluster key for it: which of both is taken from where."""

from __future__ import annotations

from pathlib import Path

import pytest

from logboom.cli import cluster_address, connection
from logboom.cli.cluster_address import destination_of
from logboom.cli.connection import found_key, operators_key
from logboom.cli.parameters import ClusterAddress, OperatorAddress
from logboom.deploy.cluster_key import ensure_key
from logboom.deploy.layout import KEY_FILE
from logboom.wire.credentials import Credentials, Server
from logboom.wire.credentials_file import write_credentials
from logboom.wire.errors import StartError
from logboom.wire.sockets import make_key_pair

HERE, THERE = "127.0.0.1:7711", "10.0.0.1:7711"
OURS, THEIRS = b"o" * 32, b"t" * 32


@pytest.fixture(name="local", autouse=True)
def _local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster on this machine, which is open."""
    folder = tmp_path / "boom"
    folder.mkdir()
    ensure_key(folder / KEY_FILE, OURS)
    monkeypatch.setattr(connection, "cluster_folder", lambda _: folder)
    monkeypatch.setattr(cluster_address, "local_endpoints", lambda: HERE)
    monkeypatch.setattr(cluster_address, "local_credentials", lambda: None)
    return folder


@pytest.fixture(name="credentials")
def _credentials(tmp_path: Path) -> Path:
    """Somebody's credentials file for a cluster elsewhere."""
    file = tmp_path / "alice.toml"
    server = Server("broker-1", THERE, make_key_pair().public)
    write_credentials(file, Credentials("alice", "", make_key_pair(), (server,)))
    return file


def test_what_is_given_goes_before_what_runs_here(credentials: Path) -> None:
    assert destination_of(None).endpoints == (HERE,)
    assert destination_of(ClusterAddress(THERE)).endpoints == (THERE,)
    assert destination_of(ClusterAddress(THERE)).credentials is None
    found = destination_of(ClusterAddress(None, credentials))
    assert found.endpoints == (THERE,)
    assert found.credentials is not None
    assert found.text == f"{THERE}@{credentials}"


def test_the_key_of_the_cluster_here_is_not_that_of_named_nodes(local: Path) -> None:
    assert operators_key(None, None) == OURS
    assert operators_key(None, ClusterAddress(None)) == OURS
    with pytest.raises(StartError, match="this needs the cluster key"):
        operators_key(None, ClusterAddress(THERE))
    (local / KEY_FILE).unlink()
    with pytest.raises(StartError, match="this needs the cluster key"):
        operators_key(None, None)


def test_a_given_key_goes_before_the_one_here(tmp_path: Path) -> None:
    file = tmp_path / "given.key"
    ensure_key(file, THEIRS)
    assert operators_key(file, None) == THEIRS
    assert operators_key(file, ClusterAddress(THERE)) == THEIRS


def test_while_the_key_is_changed_both_are_used(tmp_path: Path) -> None:
    file = tmp_path / "given.key"
    ensure_key(file, OURS + b"\n" + THEIRS)
    assert operators_key(file, None).split() == [OURS, THEIRS]


def test_who_has_credentials_needs_no_key(credentials: Path) -> None:
    assert operators_key(None, ClusterAddress(None, credentials)) == b""
    assert operators_key(Path("none"), ClusterAddress(None, credentials)) == b""


def test_a_command_that_can_go_without_a_key_still_wants_the_one_that_was_given(
    tmp_path: Path,
) -> None:
    assert found_key(None) == OURS
    assert found_key(OperatorAddress(THERE)) == b""
    with pytest.raises(StartError, match="none"):
        found_key(OperatorAddress(THERE, None, tmp_path / "none"))
