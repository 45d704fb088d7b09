"""A cluster's folder: config files that the nodes' own structs take, one key, founded once."""

from pathlib import Path
from typing import Any

import pytest

from logboom.deploy.cluster_key import read_key
from logboom.deploy.config_files import load
from logboom.deploy.layout import lay_out
from logboom.deploy.ports import Ports
from logboom.metadata.config import NameServerConfig, check_config
from logboom.nodes.config import BrokerConfig
from logboom.nodes.config import check_config as check_broker_config
from logboom.wire.errors import InvalidRequest


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
