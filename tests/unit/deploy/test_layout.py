"""A cluster's folder: config files that the nodes' own structs take, one key, founded once."""

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from logboom.deploy.cluster_key import read_key
from logboom.deploy.config_files import load, write
from logboom.deploy.layout import (
    REMOVED_FILE,
    Size,
    administrator,
    broker_numbers,
    laid_out,
    lay_out,
    location_of,
    name_server_numbers,
    with_another_broker,
    without_broker,
)
from logboom.deploy.ports import Ports
from logboom.metadata.config import NameServerConfig, check_config
from logboom.nodes.config import BrokerConfig
from logboom.nodes.config import check_config as check_broker_config
from logboom.wire.credentials_file import read_credentials
from logboom.wire.errors import InvalidRequest, StartError


def test_every_node_gets_a_config_that_it_takes(tmp_path: Path) -> None:
    layout = lay_out(tmp_path, 3, 3, Ports(), zones=["a", "b"])
    names = [load(spec.config_path, NameServerConfig) for spec in layout.name_servers]
    for config in names:
        check_config(config)
    assert [config.id for config in names] == ["name-1", "name-2", "name-3"]
    assert all(config.members() == names[0].members() for config in names)
    assert names[1].members()["name-2"].raft_endpoint == names[1].raft_listen == "127.0.0.1:7722"
    assert not any(config.create for config in names)
    brokers = [load(spec.config_path, BrokerConfig) for spec in layout.brokers]
    for broker in brokers:
        check_broker_config(broker)
    assert [broker.zone for broker in brokers] == ["a", "b", "a"]
    assert brokers[0].name_servers == ["127.0.0.1:7701", "127.0.0.1:7702", "127.0.0.1:7703"]
    files = [c.cluster_key_file for c in names] + [c.cluster_key_file for c in brokers]
    assert len({read_key(file) for file in files}) == 1
    assert len({c.data for c in names} | {c.data for c in brokers}) == 6


def test_another_broker_never_gets_the_number_of_one_that_was_there(tmp_path: Path) -> None:
    ports = Ports()
    layout = lay_out(tmp_path, 3, 3, ports)
    more = with_another_broker(
        layout, ports, location_of(3, ["a", "b"], None), {"fetch_bytes": 70_000}
    )
    assert [spec.id for spec in more.brokers] == ["broker-1", "broker-2", "broker-3", "broker-4"]
    first, new = (load(more.brokers[at].config_path, BrokerConfig) for at in (0, 3))
    check_broker_config(new)
    assert (new.id, new.zone, new.name_servers) == ("broker-4", "b", first.name_servers)
    assert (new.fetch_bytes, first.fetch_bytes > 70_000) == (70_000, True)
    assert read_key(new.cluster_key_file) == read_key(first.cluster_key_file)
    assert len({spec.endpoint for spec in more.nodes}) == 7
    again = with_another_broker(without_broker(more, "broker-4"), ports, {})
    assert [spec.id for spec in again.brokers][2:] == ["broker-3", "broker-5"]


def test_a_removed_broker_is_left_out_and_nobody_gets_its_number(tmp_path: Path) -> None:
    assert broker_numbers(tmp_path, 2) == [1, 2]
    for number in (1, 2, 10):
        (tmp_path / f"broker-{number}").mkdir()
    (tmp_path / "broker-10" / REMOVED_FILE).touch()
    assert broker_numbers(tmp_path) == [1, 2]
    assert broker_numbers(tmp_path, 3) == [1, 2, 11]
    assert broker_numbers(tmp_path, 1) == [1]


def test_a_removed_name_server_is_left_out_and_the_others_stay_where_they_are(
    tmp_path: Path,
) -> None:
    whole = lay_out(tmp_path, 3, 1, Ports(7801), log="json")
    whole.mark_founded()
    (tmp_path / "name-1" / REMOVED_FILE).touch()
    # Who reads that it is needed no more deletes it.
    whole.name_servers[0].config_path.unlink()
    assert name_server_numbers(tmp_path) == [2, 3]
    assert laid_out(tmp_path) == Size(2, 1, 7801, log="json")
    left = lay_out(tmp_path, 2, 1, Ports(7801), log="json")
    assert left.name_servers == whole.name_servers[1:]
    assert left.brokers == whole.brokers
    config = load(left.name_servers[0].config_path, NameServerConfig)
    assert [member.id for member in config.name_servers] == ["name-2", "name-3"]
    with pytest.raises(InvalidRequest, match="4 name servers"):
        lay_out(tmp_path, 4, 1, Ports(7801))
    for name in ("name-2", "name-3"):
        (tmp_path / name / REMOVED_FILE).touch()
    with pytest.raises(StartError, match="all name servers"):
        laid_out(tmp_path)


def test_a_name_server_that_joined_is_left_to_who_started_it(tmp_path: Path) -> None:
    lay_out(tmp_path, 3, 1, Ports()).mark_founded()
    text = (tmp_path / "name-1" / "node.toml").read_text("utf-8")
    settings = {**tomllib.loads(text), "id": "name-4", "listen": "127.0.0.1:9901"}
    write(tmp_path / "name-4" / "node.toml", settings)
    assert name_server_numbers(tmp_path) == [1, 2, 3]
    assert laid_out(tmp_path) == Size(3, 1, 7701)


def test_another_broker_of_a_cluster_that_encrypts_has_to_be_admitted(tmp_path: Path) -> None:
    ports = Ports()
    layout = lay_out(tmp_path, 1, 1, ports, secure=True)
    with pytest.raises(InvalidRequest, match="admit its key"):
        with_another_broker(layout, ports, {})


def test_brokers_of_a_host_are_in_one_zone_unless_zones_are_given(tmp_path: Path) -> None:
    def placed(folder: str, **how: Any) -> list[tuple[str, str]]:
        layout = lay_out(tmp_path / folder, 1, 5, Ports(), **how)
        found = [load(spec.config_path, BrokerConfig) for spec in layout.brokers]
        return [(broker.zone, broker.host) for broker in found]

    hosts = ["host-1", "host-1", "host-2", "host-2", "host-3"]
    assert placed("a", brokers_per_host=2) == [(host, host) for host in hosts]
    zones = ["x", "y", "x", "y", "x"]
    assert placed("b", brokers_per_host=2, zones=["x", "y"]) == list(zip(zones, hosts, strict=True))
    assert placed("c") == [("", "")] * 5
    with pytest.raises(InvalidRequest, match="0 brokers per host"):
        placed("d", brokers_per_host=0)


@pytest.mark.parametrize(("brokers", "per_host"), [(5, 2), (2, 2), (3, 1), (4, None)])
@pytest.mark.parametrize("founded", [True, False])
def test_the_size_of_a_cluster_is_in_its_files(
    tmp_path: Path, brokers: int, per_host: int | None, founded: bool
) -> None:
    assert laid_out(tmp_path) is None
    layout = lay_out(tmp_path, 3, brokers, Ports(7801), brokers_per_host=per_host)
    if founded:
        layout.mark_founded()
    port = 7801 if founded else 7701
    assert laid_out(tmp_path) == Size(3, brokers, port, per_host)
    # A disk is lost, and the folder with it.
    shutil.rmtree(tmp_path / "broker-1")
    left = laid_out(tmp_path)
    assert left is not None
    assert left[:3] == (3, brokers - 1, port)


@pytest.mark.parametrize("content", ["listen = 5", 'listen = "nowhere"', "= ="])
def test_files_that_cannot_be_read_are_told(tmp_path: Path, content: str) -> None:
    layout = lay_out(tmp_path, 1, 1, Ports())
    layout.mark_founded()
    layout.name_servers[0].config_path.write_text(content)
    with pytest.raises(StartError, match=r"name-1/node.toml .*: bring it back"):
        laid_out(tmp_path)


def test_settings_go_to_their_kind_of_node(tmp_path: Path) -> None:
    layout = lay_out(tmp_path, 1, 1, Ports(), broker_settings={"follower_reads": True})
    assert load(layout.brokers[0].config_path, BrokerConfig).follower_reads


def test_laid_out_again_it_keeps_its_key(tmp_path: Path) -> None:
    lay_out(tmp_path, 1, 1, Ports())
    key = read_key(tmp_path / "cluster.key")
    lay_out(tmp_path, 1, 1, Ports())
    assert read_key(tmp_path / "cluster.key") == key


def test_it_is_founded_once(tmp_path: Path) -> None:
    layout = lay_out(tmp_path, 1, 1, Ports())
    assert not layout.founded
    layout.mark_founded()
    assert lay_out(tmp_path, 1, 1, Ports()).founded


def test_an_unknown_node_is_named_with_those_that_are(tmp_path: Path) -> None:
    layout = lay_out(tmp_path, 1, 1, Ports())
    assert layout.node("broker-1").role == "broker"
    with pytest.raises(InvalidRequest, match=r"no node 'broker-2' .*: it has name-1, broker-1"):
        layout.node("broker-2")


@pytest.mark.parametrize(("name_servers", "brokers"), [(0, 1), (2, 1), (11, 1), (1, 0), (3, -1)])
def test_numbers_that_make_no_cluster_are_refused(
    tmp_path: Path, name_servers: int, brokers: int
) -> None:
    with pytest.raises(InvalidRequest):
        lay_out(tmp_path, name_servers, brokers, Ports())


def test_a_node_listens_where_its_adjusted_settings_say(tmp_path: Path) -> None:
    def adjust(settings: dict[str, Any]) -> dict[str, Any]:
        return settings | {"listen": "127.0.0.2:9999"} if settings["id"] == "broker-2" else settings

    layout = lay_out(tmp_path, 1, 2, Ports(), adjust=adjust)
    assert [spec.endpoint for spec in layout.brokers] == ["127.0.0.1:7711", "127.0.0.2:9999"]
    assert load(layout.brokers[1].config_path, BrokerConfig).listen == "127.0.0.2:9999"


def test_nodes_that_encrypt_keep_their_keys_whatever_else_changes(tmp_path: Path) -> None:
    layout = lay_out(tmp_path, 1, 1, Ports(), secure=True)
    assert layout.credentials == tmp_path / "admin.toml" == administrator(tmp_path)
    admin = read_credentials(layout.credentials)
    config = load(layout.name_servers[0].config_path, NameServerConfig)
    check_config(config)
    broker = load(layout.brokers[0].config_path, BrokerConfig)
    check_broker_config(broker)
    assert {each.security for each in (*config.listeners, *broker.listeners)} == {"curve"}
    assert layout.brokers[0].endpoint == broker.listeners[0].listen == "127.0.0.1:7711"
    assert config.administrators == {"admin": admin.key_pair.public}
    layout.mark_founded()
    assert laid_out(tmp_path) == Size(1, 1, 7701, None, True)

    # Another broker, at other ports: the old keys, and a new one.
    larger = lay_out(tmp_path, 1, 2, Ports(8701), secure=True)
    again = load(larger.name_servers[0].config_path, NameServerConfig)
    assert config.initial_nodes.items() < again.initial_nodes.items()
    assert set(again.initial_nodes) == {"name-1", "broker-1", "broker-2"}
    assert again.administrators == config.administrators
    known = read_credentials(tmp_path / "admin.toml")
    assert known.key_pair == admin.key_pair
    assert set(known.endpoints) == {"127.0.0.1:8701", "127.0.0.1:8711", "127.0.0.1:8712"}

    # Without encryption the files of the keys stay, and nobody uses them.
    open_again = lay_out(tmp_path, 1, 2, Ports(8701))
    assert open_again.credentials is None
    assert administrator(tmp_path) is None
    assert load(open_again.brokers[0].config_path, BrokerConfig).listen == "127.0.0.1:8711"
    assert laid_out(tmp_path) == Size(1, 2, 8701, None, False)


def test_a_credentials_file_of_somebody_else_is_not_taken(tmp_path: Path) -> None:
    lay_out(tmp_path, 1, 2, Ports(), secure=True)
    one, two = (tmp_path / f"broker-{n}" / "credentials.toml" for n in (1, 2))
    two.unlink()
    one.rename(two)
    with pytest.raises(StartError, match="has the key of node:broker-1, not of node:broker-2"):
        lay_out(tmp_path, 1, 2, Ports(), secure=True)
