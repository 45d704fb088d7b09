"""Nothing that a node writes can be read by other users of its machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.client import connect
from logboom.deploy import Cluster, embedded
from tests.unit.wire.test_private_files import loosened, mode_of, open_to_others


@pytest.fixture
def umask() -> Iterator[int]:
    """What most machines have: others may read."""
    before = os.umask(0o022)
    yield 0o022
    assert os.umask(before) == 0o022


@pytest.mark.usefixtures("umask")
def test_all_files_of_nodes_are_private_those_of_older_versions_too(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    for _ in range(2):
        with Cluster(1, 1, data=folder) as cluster:
            boom = connect(cluster.endpoints, create_topics=True)
            with boom, boom.producer() as producer:
                producer.send("t", b"x").result(60)
            found = {path.name for path in folder.rglob("*")}
            assert {"node.log", "audit.log", "identity.json", "db", "LOCK", "journal"} <= found
            assert open_to_others(folder) == []
            with connect(cluster.endpoints) as boom:
                for stats in boom.admin.stats():
                    assert stats.counters["data_exposed"] == ""
        loosened(folder)
        (folder / "cluster.key").chmod(0o600)


@pytest.mark.usefixtures("umask")
def test_an_embedded_node_leaves_the_umask_of_its_program(tmp_path: Path) -> None:
    with embedded(tmp_path / "e") as node:
        assert os.umask(0o022) == 0o022
        for data in node.data.glob("*/data"):
            assert mode_of(data) == 0o700
        assert mode_of(node.data) == 0o700
