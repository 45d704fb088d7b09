"""Where `connect` finds the nodes, and as whom it asks them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logboom.client import connect
from logboom.client.cluster_search import find_cluster
from logboom.client.io_thread import IoThread
from logboom.wire.credentials import Credentials, Server
from logboom.wire.credentials_file import write_credentials
from logboom.wire.errors import InvalidRequest, StartError
from logboom.wire.sockets import make_key_pair

NODE = make_key_pair().public


def credentials(*servers: str) -> Credentials:
    listed = tuple(Server(f"name-{n}", each, NODE) for n, each in enumerate(servers))
    return Credentials("alice", "", make_key_pair(), listed)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "alice.toml"
    write_credentials(path, credentials("a:1", "b:2", "a:1"))
    return path


def test_nodes_alone_are_open_whatever_the_environment_says(file: Path) -> None:
    assert find_cluster("x:1, y:2", None, str(file)) == (("x:1", "y:2"), None)
    assert find_cluster(["x:1", "y:2"]) == (("x:1", "y:2"), None)


def test_a_file_names_the_nodes_and_the_user(file: Path) -> None:
    for found, known in (
        find_cluster(str(file)),
        find_cluster(file),
        find_cluster("", file),
        find_cluster("", str(file)),
        find_cluster("", None, str(file)),
        find_cluster([], None, str(file)),
    ):
        assert found == ("a:1", "b:2")
        assert known is not None
        assert known.user == "alice"


def test_nodes_and_credentials_together(file: Path) -> None:
    mine = credentials("a:1")
    assert find_cluster("x:1", mine) == (("x:1",), mine)
    found, known = find_cluster("x:1", file)
    assert found == ("x:1",)
    assert known is not None


def test_two_files_are_one_too_many(file: Path) -> None:
    with pytest.raises(InvalidRequest, match="two credentials files"):
        find_cluster(file, file)


def test_nobody_is_named() -> None:
    with pytest.raises(InvalidRequest, match="LOGBOOM_CREDENTIALS"):
        find_cluster("")
    with pytest.raises(InvalidRequest, match=r"\[\[servers\]\]"):
        find_cluster("", credentials())


def test_a_file_that_others_can_read_is_refused_with_the_remedy(file: Path) -> None:
    file.chmod(0o644)
    with pytest.raises(StartError, match="chmod 600"):
        connect(str(file))
    with pytest.raises(StartError, match="cannot read"):
        connect(file.with_name("bob.toml"))


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://host:7711", "user@host:1", "ü.example:1", "*:1", "0.0.0.0:1", "host:0", "::1:7711"],
)
def test_what_nobody_can_dial_is_refused_at_once(file: Path, endpoint: str) -> None:
    for given in (endpoint, f"a:1,{endpoint}", [endpoint]):
        with pytest.raises(InvalidRequest, match="host:port") as caught:
            connect(given)
        assert "\n" not in caught.value.text
    file.write_text(file.read_text().replace("a:1", endpoint))
    with pytest.raises(StartError, match="host:port"):
        connect(file)


def test_the_environment_is_asked_last(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGBOOM_CREDENTIALS", os.fspath(file.with_name("gone.toml")))
    with pytest.raises(StartError, match=r"gone\.toml"):
        connect()


def test_no_secret_is_shown(file: Path) -> None:
    known = find_cluster(file)[1]
    assert known is not None
    secret = known.key_pair.secret.reveal()
    io = IoThread((), "c", create_topics=False, cluster_key=b"the-key", credentials=known)
    try:
        shown = repr([known, io, io.core.config, vars(io)])
    finally:
        io.stop()
    assert "alice" in shown
    assert secret not in shown
    assert "the-key" not in shown
