"""Name servers of a run compare their states often, whatever made them."""

from __future__ import annotations

import random
import sys

import pytest

from logboom.deploy import node
from logboom.metadata import name_server
from logboom.metadata.config import NameServerConfig, NameServerMember
from logboom.metadata.name_server import NameServer
from logboom.metadata.raft.raft_config import RaftConfig
from logboom.wire.actor import Instant
from tests.chaos import watched_node
from tests.sim.world.journal_disk import JournalDisk


def test_a_watched_name_server_compares_every_few_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given back by the fixture, whatever is put in its place.
    monkeypatch.setattr(name_server, "RaftConfig", RaftConfig)
    monkeypatch.setattr(sys, "argv", ["watched_node", "-m", watched_node.MODULE])
    monkeypatch.setattr(node, "main", lambda: 0)
    assert watched_node.main() == 0
    member = NameServerMember("name-1", "name-1:7701", "name-1:7721")
    config = NameServerConfig(
        id=member.id,
        listen=member.endpoint,
        raft_listen=member.raft_endpoint,
        name_servers=[member],
        create=True,
    )
    journal = JournalDisk(random.Random(1))
    made = NameServer(config, journal, random.Random(2), b"key", Instant(0.0, 0))
    assert vars(made.raft)["_state"].config.hash_every == watched_node.EVERY
