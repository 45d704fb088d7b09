"""Endpoints that ZeroMQ refuses end nobody: real processes, the raw protocol, and old entries."""

from __future__ import annotations

import random

import pytest

from logboom.client import connect
from logboom.deploy import Cluster, embedded
from logboom.deploy.cluster_key import read_key
from logboom.deploy.node_client import NodeClient
from logboom.wire.base import WireMessage
from logboom.wire.commands import AnyCommand, CommandResult, CreateTopic, RegisterBroker
from logboom.wire.errors import LogboomError, NotLeader, TimedOut
from logboom.wire.features import FEATURES, SOFTWARE
from logboom.wire.hello import Identity, PeerKind
from logboom.wire.messages import AddNameServer, Heartbeat, Propose, Proposed
from logboom.wire.session_table import SessionTable
from logboom.wire.view import TopicConfig
from tests.integration.cli.command import logboom
from tests.integration.waiting import wait_until

ODD = "tcp://127.0.0.1:1"


class Intruder(NodeClient):
    """One with the cluster's key that speaks the protocol itself, and checks nothing."""

    def __init__(self, key: bytes, kind: PeerKind = "client") -> None:
        super().__init__()
        identity = Identity(f"an-intruding-{kind}", kind, 1, key)
        self._sessions = SessionTable(identity, random.Random(1))

    def say(self, endpoint: str, message: WireMessage) -> object:
        """Send a message to one node; its answer or its error."""
        return self.ask({endpoint: message}, 100.0)[endpoint]


def registration(endpoint: str) -> RegisterBroker:
    """What a broker sends that does not check what it advertises."""
    return RegisterBroker("broker-9", "s", "i", endpoint, "", False, 0, features=FEATURES)


def refused(error: object) -> bool:
    """Whether it was refused for its endpoint; not every name server decides."""
    assert isinstance(error, LogboomError)
    if isinstance(error, NotLeader):
        return False
    assert error.code == "INVALID_ARGUMENT"
    assert "leave out tcp://" in error.text
    return True


def test_odd_endpoints_are_refused_and_end_no_process() -> None:
    with Cluster(name_servers=3, brokers=1) as cluster:
        pids = {name: cluster.pid(name) for name in cluster.nodes}
        key = cluster.data / "cluster.key"
        add = ("name-server", "add", "name-4", ODD, ODD, "--key-file", key)
        done = logboom(*add, servers=",".join(cluster.endpoints))
        assert done.code != 0
        assert "leave out tcp://" in done.err
        assert len(done.err.splitlines()) == 1
        # `-s` and the environment.
        for command in (["topic", "list", "-s", ODD], ["doctor", "-s", ODD]):
            done = logboom(*command)
            assert done.code != 0
            assert "leave out tcp://" in done.err
            assert len(done.err.splitlines()) == 1
        ends = cluster.name_server_endpoints
        with Intruder(read_key(key)) as operator, Intruder(read_key(key), "broker") as broker:
            adding = AddNameServer(0, 5_000, "name-4", ODD, ODD)
            wait_until(
                lambda: any(refused(operator.say(end, adding)) for end in ends),
                "nobody leads and refuses it",
            )
            proposal = Propose(0, 5_000, "broker-9", 1, registration(ODD))
            wait_until(
                lambda: any(refused(broker.say(end, proposal)) for end in ends),
                "nobody leads and refuses it",
            )
        with connect(cluster.endpoints) as boom:
            assert [each.id for each in boom.admin.brokers()] == ["broker-1"]
            boom.admin.create_topic("t", 1, 1)
            with boom.producer() as producer:
                producer.send("t", b"x").result(200)
        for name, pid in pids.items():
            assert cluster.running(name)
            assert cluster.pid(name) == pid


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that takes whatever a broker advertises, as its first release did."""
    monkeypatch.setattr("logboom.metadata.proposal_checks.endpoint_fault", lambda _end: None)


@pytest.mark.usefixtures("older")
@pytest.mark.parametrize("odd", [ODD, "*:1"])
def test_a_node_that_nobody_can_dial_is_one_that_does_not_run(odd: str) -> None:
    with embedded() as node, Intruder(node.cluster_key, "broker") as broker:
        with connect(node.endpoints) as boom:
            servers = [each.endpoint for each in boom.admin.name_servers()]

        def propose(number: int, command: AnyCommand) -> CommandResult:
            message = Propose(0, 5_000, "an intruder", number, command)
            answer = broker.say(servers[0], message)
            assert isinstance(answer, Proposed), answer
            assert not answer.result.code, answer.result.text
            return answer.result

        epoch = propose(1, registration(odd)).value
        assert isinstance(epoch, int)
        propose(2, CreateTopic("t", 8, 2, TopicConfig(min_in_sync=1), 0))
        # While it is alive it leads some of the queues: the broker fetches from there, and clients
        # send there.
        with connect(node.endpoints) as boom:

            def led_by_it() -> list[int]:
                beat = Heartbeat(0, 1_000, "broker-9", epoch, [], 0, SOFTWARE, FEATURES)
                broker.say(servers[0], beat)
                (queues,) = [each.queues for each in boom.admin.topics() if each.name == "t"]
                return [n for n, queue in enumerate(queues) if queue.leader == "broker-9"]

            wait_until(lambda: bool(led_by_it()), "it leads no queue")
            queue = led_by_it()[0]
            with boom.producer(delivery_timeout_s=0.2) as producer, pytest.raises(TimedOut):
                producer.send("t", b"lost", queue=queue).result(200)
            node.check()
            # Once it is fenced, the broker that runs leads, and takes messages.
            with boom.producer() as producer:
                producer.send("t", b"x", queue=queue).result(200)
        with NodeClient() as asker:
            # It waits for the other one no longer than it was told to.
            wait_until(lambda: servers[0] in asker.stats([odd, *servers], 0.5), "nobody answers")
        node.check()
