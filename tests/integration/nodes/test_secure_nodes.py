"""Name servers and a broker with encrypted listeners only: they find each other, and let users in."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from logboom.deploy.ports import Ports
from logboom.metadata.config import NameServerConfig, NameServerListener, NameServerMember
from logboom.metadata.server import NameServerProcess
from logboom.nodes.config import BrokerConfig
from logboom.nodes.server import BrokerProcess
from logboom.wire.access.access_commands import AlterUser, CreateUser
from logboom.wire.access.access_rules import UserKey, node_user
from logboom.wire.actor import Effects, HandshakeFailed
from logboom.wire.base import Request
from logboom.wire.commands import AnyCommand
from logboom.wire.credentials import Credentials, Server
from logboom.wire.credentials_file import write_credentials
from logboom.wire.errors import LogboomError, StartError, Unauthenticated
from logboom.wire.hello import Identity
from logboom.wire.key_pair import KeyPair
from logboom.wire.listeners import ListenerConfig
from logboom.wire.messages import (
    AnyMessage,
    Propose,
    Proposed,
    RaftFrame,
    Stats,
    StatsResult,
    Watch,
    WatchResult,
)
from logboom.wire.session import Reply, Session
from logboom.wire.sockets import Sockets, make_key_pair

CLUSTER_KEY = b"k" * 64
READY_S = 60.0
NAMES = ("name-1", "name-2", "name-3")


class Caller:
    """A user who asks one node after the other, over sockets of its own."""

    def __init__(self, pair: KeyPair | None, server_keys: dict[str, str], user: str) -> None:
        self.sockets = Sockets(key_pair=pair)
        self.sockets.server_keys = lambda endpoint: (server_keys[endpoint],)
        self._identity = Identity("caller", user=user)
        self._sessions: dict[str, Session] = {}

    def ask(self, endpoint: str, request: Request) -> AnyMessage | LogboomError:
        """Return the answer, or the error."""
        out, now = Effects(), time.monotonic()
        session = self._sessions.get(endpoint)
        if session is None:
            session = Session(endpoint, self._identity, random.Random(1), now)
            self._sessions[endpoint] = session
        session.request(request, (), None, now + READY_S, out, now)
        ended: list[Reply] = []
        while not ended:
            for redial in out.redials:
                self.sockets.redial(redial)
            self.sockets.send(out.sends)
            events = self.sockets.poll(0.05)
            out, now = Effects(), time.monotonic()
            for event in events:
                if isinstance(event, HandshakeFailed):
                    ended += session.handshake_failed(event.reason, now)
                elif event.peer == endpoint:
                    ended += session.receive(event.frames, out, now)
            ended += session.tick(out, now)
        (reply,) = ended
        answer = reply.message or reply.error
        assert answer is not None
        return answer


class SecureCluster:
    """Three name servers and a broker, in threads."""

    def __init__(self, folder: Path, ports: Ports) -> None:
        self.folder = folder
        self.pairs = {name: make_key_pair() for name in (*NAMES, "broker-1", "broker-2")}
        self.admin = make_key_pair()
        self.members = [NameServerMember(n, ports.name_server(), ports.raft()) for n in NAMES]
        self.broker = ports.broker()
        self.other_broker = ports.broker()
        self.keys = {m.endpoint: self.pairs[m.id].public for m in self.members}
        self.keys |= {m.raft_endpoint: self.pairs[m.id].public for m in self.members}
        self.keys[self.broker] = self.pairs["broker-1"].public
        self._nodes: list[tuple[NameServerProcess | BrokerProcess, threading.Thread]] = []
        self._callers: list[Caller] = []

    def start(self) -> None:
        for member in self.members:
            self.run(NameServerProcess(self.name_server(member), CLUSTER_KEY))
        self.run(BrokerProcess(self.broker_config("broker-1", self.broker), CLUSTER_KEY))

    def name_server(self, member: NameServerMember) -> NameServerConfig:
        listeners = [
            NameServerListener(name="main", listen=member.endpoint, security="curve"),
            NameServerListener(
                name="raft", listen=member.raft_endpoint, security="curve", for_raft=True
            ),
        ]
        return NameServerConfig(
            id=member.id,
            data=str(self.folder / member.id),
            listeners=listeners,
            name_servers=self.members,
            create=True,
            credentials_file=self.credentials(member.id),
            administrators={"admin": self.admin.public},
            initial_nodes={n: self.pairs[n].public for n in (*NAMES, "broker-1")},
        )

    def broker_config(self, name: str, endpoint: str, pair: str = "") -> BrokerConfig:
        return BrokerConfig(
            id=name,
            data=str(self.folder / name),
            listeners=[ListenerConfig(name="main", listen=endpoint, security="curve")],
            name_servers=[member.endpoint for member in self.members],
            credentials_file=self.credentials(name, pair),
        )

    def credentials(self, node: str, pair: str = "") -> str:
        path = self.folder / f"{node}.toml"
        named = {m.endpoint: m.id for m in self.members}
        named |= {m.raft_endpoint: m.id for m in self.members}
        servers = [Server(name, end, self.pairs[name].public) for end, name in named.items()]
        pair_of = self.pairs[pair or node]
        write_credentials(path, Credentials(node_user(node), "", pair_of, tuple(servers)))
        return str(path)

    def run(self, node: NameServerProcess | BrokerProcess) -> None:
        thread = threading.Thread(target=node.run)
        thread.start()
        self._nodes.append((node, thread))

    def caller(self, pair: KeyPair | None, user: str = "") -> Caller:
        caller = Caller(pair, self.keys, user)
        self._callers.append(caller)
        return caller

    def close(self) -> None:
        for caller in self._callers:
            caller.sockets.close()
        for node, thread in reversed(self._nodes):
            node.stop()
            thread.join()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    ports = Ports("free")
    made = SecureCluster(tmp_path_factory.mktemp("secure"), ports)
    try:
        made.start()
        boss = made.caller(made.admin)
        until(partial(knows_the_broker, boss, made.members[0].endpoint))
        yield made
    finally:
        made.close()
        ports.release()


def until(done: Callable[[], bool]) -> None:
    """Ask again until it is so."""
    end = time.monotonic() + READY_S
    while not done():
        assert time.monotonic() < end, "in vain"
        # What is asked for takes elections and heartbeats.
        time.sleep(0.05)


def alive(caller: Caller, endpoint: str) -> list[str]:
    """Return the brokers that a node knows to be alive."""
    answer = caller.ask(endpoint, Watch(0, 5_000, -1, None, 0))
    if not isinstance(answer, WatchResult):
        return []
    return [broker.id for broker in answer.view.brokers if broker.alive]


def knows_the_broker(caller: Caller, endpoint: str) -> bool:
    return alive(caller, endpoint) == ["broker-1"]


def propose(cluster: SecureCluster, caller: Caller, command: AnyCommand, number: int) -> None:
    """Have the Raft leader take a command, wherever it is."""

    def taken() -> bool:
        for member in cluster.members:
            answer = caller.ask(member.endpoint, Propose(0, 5_000, "boss", number, command))
            if isinstance(answer, Proposed):
                assert answer.result.code == "", answer.result
                return True
        return False

    until(taken)


def test_nodes_find_each_other_and_the_administrator_is_served(cluster: SecureCluster) -> None:
    boss = cluster.caller(cluster.admin)
    for endpoint in (*(m.endpoint for m in cluster.members), cluster.broker):
        until(partial(knows_the_broker, boss, endpoint))
        assert isinstance(boss.ask(endpoint, Stats(0, 5_000)), StatsResult)


@pytest.mark.parametrize("node", [0, 1, 2, "broker"])
def test_strangers_are_told_why(cluster: SecureCluster, node: int | str) -> None:
    endpoint = cluster.broker if isinstance(node, str) else cluster.members[node].endpoint
    stranger = cluster.caller(make_key_pair(), user="mallory")
    error = stranger.ask(endpoint, Stats(0, 5_000))
    assert isinstance(error, Unauthenticated)
    assert "does not accept the key of mallory" in error.text
    error = cluster.caller(None).ask(endpoint, Stats(0, 5_000))
    assert isinstance(error, Unauthenticated)
    assert "asks for a key" in error.text
    wrong = cluster.caller(cluster.admin)
    wrong.sockets.server_keys = lambda _endpoint: (make_key_pair().public,)
    error = wrong.ask(endpoint, Stats(0, 5_000))
    assert isinstance(error, Unauthenticated)
    assert "has another key" in error.text


def test_a_raft_listener_serves_nobody_but_name_servers(cluster: SecureCluster) -> None:
    boss = cluster.caller(cluster.admin)
    endpoint = cluster.members[0].raft_endpoint
    error = boss.ask(endpoint, RaftFrame(0, "name-2", 1, 0, 0))  # type: ignore[arg-type]  # no request
    assert isinstance(error, LogboomError)


def test_a_user_is_let_in_when_it_is_created_and_kept_out_when_disabled(
    cluster: SecureCluster,
) -> None:
    boss, pair = cluster.caller(cluster.admin), make_key_pair()
    alice = cluster.caller(pair, user="alice")
    assert isinstance(alice.ask(cluster.broker, Stats(0, 5_000)), Unauthenticated)
    keys = [UserKey("laptop", pair.public, 0)]
    propose(cluster, boss, CreateUser("alice", keys, ["administrator"], 0), 1)
    until(lambda: isinstance(alice.ask(cluster.broker, Stats(0, 5_000)), StatsResult))
    propose(cluster, boss, AlterUser("alice", True, None, None, 0), 2)
    until(lambda: isinstance(alice.ask(cluster.broker, Stats(0, 5_000)), Unauthenticated))
    again = cluster.caller(pair, user="alice")
    assert isinstance(again.ask(cluster.broker, Stats(0, 5_000)), Unauthenticated)


def test_a_broker_with_an_unknown_key_ends_with_the_reason(cluster: SecureCluster) -> None:
    node = BrokerProcess(cluster.broker_config("broker-2", cluster.other_broker), CLUSTER_KEY)
    with pytest.raises(StartError, match="does not accept the key of node:broker-2"):
        node.run()


def test_a_credentials_file_of_another_node_is_refused(
    cluster: SecureCluster, tmp_path: Path
) -> None:
    path = tmp_path / "other.toml"
    write_credentials(path, Credentials("node:broker-9", "", make_key_pair()))
    config = BrokerConfig(
        id="broker-1", name_servers=["127.0.0.1:1"], data=str(tmp_path), credentials_file=str(path)
    )
    with pytest.raises(StartError, match="'node:broker-9', and this node is 'node:broker-1'"):
        BrokerProcess(config, CLUSTER_KEY)
