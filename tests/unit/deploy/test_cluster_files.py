"""The files of a new cluster: what nodes take, private, never overwritten, and all or nothing."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from logboom.deploy import cluster_files
from logboom.deploy.cluster_files import make_cluster_files, parse_nodes
from logboom.deploy.cluster_key import ensure_key, read_key
from logboom.deploy.config_files import load
from logboom.metadata.config import NameServerConfig, check_config
from logboom.nodes.config import BrokerConfig
from logboom.nodes.config import check_config as check_broker_config
from logboom.wire.credentials_file import read_credentials
from logboom.wire.errors import InvalidRequest, StartError

SERVERS = [(f"name-{n}", f"10.0.0.{n}:7701") for n in (1, 2, 3)]
BROKERS = [("broker-1", "10.0.0.1:7711"), ("broker-2", "b2.test:7711")]


def test_every_node_gets_files_that_it_takes(tmp_path: Path) -> None:
    folder = tmp_path / "boom"
    files = make_cluster_files(folder, SERVERS, BROKERS, "alice", data=Path("/srv/boom"))
    names = [load(folder / name / "node.toml", NameServerConfig) for name, _ in SERVERS]
    for config in names:
        check_config(config)
    brokers = [load(folder / name / "node.toml", BrokerConfig) for name, _ in BROKERS]
    for broker in brokers:
        check_broker_config(broker)
    assert names[1].data == "/srv/boom/name-2"
    # Replicas of a machine that does not come back are made anew, but not while one restarts.
    assert {config.replace_after_s for config in names} == {900.0}
    assert [(each.name, each.listen, each.security) for each in names[1].listeners] == [
        ("main", "10.0.0.2:7701", "curve"),
        ("raft", "10.0.0.2:7721", "curve"),
    ]
    assert brokers[0].listeners[0].listen == "10.0.0.1:7711"
    # A name is advertised, and not bound.
    assert brokers[1].listeners[0].listen == "0.0.0.0:7711"
    assert brokers[1].listeners[0].advertise == "b2.test:7711"
    assert brokers[1].name_servers == [endpoint for _, endpoint in SERVERS]
    nodes: list[NameServerConfig | BrokerConfig] = [*names, *brokers]
    keys = {config.cluster_key_file for config in nodes}
    assert len(keys) == 5
    assert len({read_key(key) for key in keys}) == 1

    # The name servers admit exactly these keys, and everybody knows those that it dials first.
    own = {config.id: read_credentials(config.credentials_file) for config in nodes}
    admin = read_credentials(files.administrator)
    assert files.administrator == folder / "alice.toml"
    assert admin.user == "alice"
    public = {name: found.key_pair.public for name, found in own.items()}
    assert len({*public.values(), admin.key_pair.public}) == 6
    for config in names:
        assert config.administrators == {"alice": admin.key_pair.public}
        assert config.initial_nodes == public
    assert [found.user for found in own.values()] == [f"node:{name}" for name in own]
    assert set(admin.endpoints) == {endpoint for _, endpoint in (*SERVERS, *BROKERS)}
    assert set(own["broker-1"].endpoints) == {endpoint for _, endpoint in SERVERS}
    raft = {f"10.0.0.{n}:7721" for n in (1, 2, 3)}
    assert set(own["name-1"].endpoints) == raft | set(own["broker-1"].endpoints)
    for found in (admin, *own.values()):
        assert all(server.public_key == public[server.node] for server in found.servers)


def test_nobody_else_reads_them(tmp_path: Path) -> None:
    folder = tmp_path / "boom"
    make_cluster_files(folder, SERVERS, BROKERS, "admin")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.is_dir():
            assert mode == 0o700
        elif path.name != "node.toml":
            assert mode == 0o600, path
    # Config files hold nothing secret.
    secrets = [path.read_text() for path in folder.rglob("cluster.key")]
    secrets += [
        read_credentials(path).key_pair.secret.reveal()
        for path in (*folder.rglob("credentials.toml"), folder / "admin.toml")
    ]
    for path in folder.rglob("node.toml"):
        assert not any(secret.strip() in path.read_text() for secret in secrets)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "boom"
    make_cluster_files(folder, SERVERS, BROKERS, "admin")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(StartError, match="never overwritten"):
        make_cluster_files(folder, SERVERS, BROKERS, "admin")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    empty = tmp_path / "empty"
    empty.mkdir()
    make_cluster_files(empty, SERVERS, BROKERS, "admin")


def test_it_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cluster_files, "write", full)
    with pytest.raises(OSError, match="No space"):
        make_cluster_files(tmp_path / "boom", SERVERS, BROKERS, "admin")
    assert not (tmp_path / "boom").exists()


def test_a_cluster_that_exists_keeps_its_key(tmp_path: Path) -> None:
    key = ensure_key(tmp_path / "cluster.key", b"o" * 64 + b"\n" + b"n" * 64)
    folder = tmp_path / "boom"
    make_cluster_files(folder, SERVERS, BROKERS, "admin", key_file=key)
    files = {path.read_bytes() for path in folder.rglob("cluster.key")}
    assert files == {key.read_bytes()}, "both, while the key is changed"


def test_brokers_of_one_host_share_it(tmp_path: Path) -> None:
    brokers = [*BROKERS, ("broker-3", "b2.test:7712")]
    make_cluster_files(tmp_path / "boom", SERVERS, brokers, "admin")
    placed = [load(tmp_path / "boom" / name / "node.toml", BrokerConfig) for name, _ in brokers]
    assert [(each.zone, each.host) for each in placed] == [
        ("10.0.0.1", ""),
        ("b2.test", "b2.test"),
        ("b2.test", "b2.test"),
    ]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("10.0.0.1:7701", [("name-1", "10.0.0.1:7701")]),
        ("a:1, b=[fd00::1]:2", [("name-1", "a:1"), ("b", "[fd00::1]:2")]),
    ],
)
def test_nodes_have_names_or_numbers(text: str, nodes: list[tuple[str, str]]) -> None:
    assert parse_nodes(text, "name") == nodes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10.0.0.1", "write host:port"),
        ("", "write host:port"),
        ("0.0.0.0:7701", "others dial"),
        ("10.0.0.1:0", "from 1 to 65535"),
        ("tcp://10.0.0.1:7701", "leave out tcp://"),
        ("fd00::1:7701", "brackets"),
        ("Name 1=10.0.0.1:7701", "matches"),
        ("../x=10.0.0.1:7701", "matches"),
    ],
)
def test_nodes_that_cannot_be_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        parse_nodes(text, "name")


@pytest.mark.parametrize(
    ("servers", "brokers", "admin", "words"),
    [
        (SERVERS[:2], BROKERS, "admin", "odd"),
        (SERVERS, [], "admin", "at least one"),
        (SERVERS, BROKERS, "a b", "user name"),
        (SERVERS, BROKERS, "node:broker-1", "a node"),
        (SERVERS, [*BROKERS, BROKERS[0]], "admin", "two nodes are called broker-1"),
        (SERVERS, [("broker-1", "10.0.0.1:7701")], "admin", "would bind 10.0.0.1:7701"),
        (SERVERS, [("broker-1", "10.0.0.1:7721")], "admin", "Raft"),
    ],
)
def test_clusters_that_cannot_be_leave_no_files(
    tmp_path: Path, servers: Any, brokers: Any, admin: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        make_cluster_files(tmp_path / "boom", servers, brokers, admin)
    assert not (tmp_path / "boom").exists()
