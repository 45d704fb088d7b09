"""Who does not belong changes nothing and learns nothing: every request, by everybody, at every port."""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import zmq

from logboom.client import Client, connect
from logboom.deploy import embedded
from logboom.deploy.cluster_key import read_key
from logboom.deploy.embedded import Embedded
from logboom.wire.credentials_file import read_credentials, write_credentials
from logboom.wire.frames import encode
from logboom.wire.hello import PeerKind
from logboom.wire.messages import (
    AccessDescribed,
    AnyMessage,
    Failure,
    GroupsListed,
    Offsets,
    Proposed,
    Watch,
    WatchResult,
)
from logboom.wire.parking import DelayedListed
from logboom.wire.sockets import HANDSHAKE_MS, make_key_pair
from logboom.wire.survey_messages import AppendTimesFound, GroupsSurveyed, QueuesSurveyed
from logboom.wire.transactions import UndecidedListed
from tests.chaos.fuzz_peers import GREETING, raw
from tests.integration.nodes.test_strangers import CURVE_GREETING, are_ended
from tests.integration.security.requests import requests_about
from tests.integration.security.strangers import Keys, Stranger, code_of, is_session, stranger
from tests.integration.waiting import wait_until
from tests.thorough import few_of

REAL: Final = "secret"
"""Name of a topic, a group, a subscription and an application that exist."""
INVENTED: Final = "absent"
"""Name of as many letters that nothing has."""
VALUE: Final = b"classified"
PORTS: Final = ("broker", "name server", "raft")
FOR_USERS: Final = ("broker", "name server")
HARMLESS: Final = {
    "Watch": WatchResult,
    "ListGroups": GroupsListed,
    "ListUndecided": UndecidedListed,
    "ListDelayed": DelayedListed,
    "SurveyQueues": QueuesSurveyed,
    "SurveyGroups": GroupsSurveyed,
    "FindAppendTimes": AppendTimesFound,
    "DescribeAccess": AccessDescribed,
    "Propose(Barrier)": Proposed,
    "Propose(AllocateProducerIds)": Proposed,
}
"""Requests of which every user gets an answer, which shows nothing that its rules do not."""


@dataclass(frozen=True)
class Fort:
    """A secure cluster with something to hide, and its administrator's client."""

    node: Embedded
    folder: Path
    boom: Client
    ports: dict[str, tuple[str, bytes]]
    """Port → its endpoint, and the public key of its node."""

    def keys(self, user: str, port: str) -> Keys:
        """The key pair of a user, for a port."""
        pair = read_credentials(self.folder / f"{user}.toml").key_pair
        return Keys(pair.public.encode(), pair.secret.reveal().encode(), self.ports[port][1])

    def keys_of_node(self, node: str) -> Keys:
        """The key pair of a node, for the listener of name servers."""
        pair = read_credentials(self.node.data / node / "credentials.toml").key_pair
        return Keys(pair.public.encode(), pair.secret.reveal().encode(), self.ports["raft"][1])

    def unknown(self, port: str) -> Keys:
        """A key pair that nobody knows."""
        public, secret = zmq.curve_keypair()
        return Keys(public, secret, self.ports[port][1])

    def lets_in(self, user: str, port: str) -> bool:
        """Whether a handshake with the key of a user succeeds."""
        with stranger(self.ports[port][0], self.keys(user, port)) as peer:
            return peer.let_in()

    def await_rest(self) -> None:
        """Wait until the broker knows the users, and the group knows that its member has left."""
        wait_until(lambda: self.lets_in("fired", "broker"), "the broker does not know the users")
        wait_until(lambda: not self.lets_in("disabled", "broker"), "a disabled user is let in")

        def is_at_rest() -> bool:
            (group,) = self.boom.admin.groups()
            return not group.member_count and group.target_epoch == group.group_epoch

        wait_until(is_at_rest, "the group does not come to rest")

    def state(self) -> list[Any]:
        """All that a stranger must not change."""
        admin = self.boom.admin
        found: list[Any] = msgspec.to_builtins(
            [
                sorted(topic.name for topic in admin.topics()),
                [user for user in admin.users() if user.name != "fired"],
                admin.roles(),
                admin.groups(),
                admin.offsets(REAL),
                [each.value for each in self.boom.pull(REAL, queue=0, offset=0).messages],
                admin.brokers(),
                admin.name_servers(),
            ]
        )
        return found


@pytest.fixture(scope="module", name="fort")
def secure_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fort]:
    """A topic, a group, a subscription and an application, and users without any right."""
    folder = tmp_path_factory.mktemp("users")
    with embedded(secure=True) as node:
        assert node.credentials is not None
        with connect(node.credentials) as boom:
            boom.admin.create_topic(REAL, queues=1)
            with boom.producer() as producer:
                producer.send(REAL, VALUE).result(60)
            with boom.consumer([REAL], group=REAL) as consumer:
                wait_until(lambda: bool(consumer.poll(100, timeout_s=1.0)), "nothing is consumed")
                consumer.commit()
            known = read_credentials(node.credentials)
            for user in ("nobody", "disabled", "fired"):
                pair = make_key_pair()
                boom.admin.create_user(user, pair.public)
                mine = msgspec.structs.replace(known, user=user, key_pair=pair)
                write_credentials(folder / f"{user}.toml", mine)
            boom.admin.alter_user("disabled", disabled=True)
            (folder / "admin.toml").symlink_to(node.credentials)
            key_of = {server.node: server.public_key.encode() for server in known.servers}
            made = Fort(node, folder, boom, _ports(node, boom, key_of))
            made.await_rest()
            yield made


def _ports(node: Embedded, boom: Client, key_of: dict[str, bytes]) -> dict[str, tuple[str, bytes]]:
    """Port → (endpoint, public key of its node)."""
    (broker,), (name_server,) = boom.admin.brokers(), boom.admin.name_servers()
    config = tomllib.loads((node.data / "name-1" / "node.toml").read_text())
    raft = next(each["listen"] for each in config["listeners"] if each.get("for_raft"))
    keys = name_server.keys[0].encode()
    return {
        "broker": (broker.endpoint, broker.keys[0].encode()),
        "name server": (name_server.endpoint, keys),
        "raft": (raft, keys),
    }


@pytest.fixture(autouse=True)
def nothing_changes(fort: Fort) -> Iterator[None]:
    """Whatever a stranger does, everything is as before."""
    before = fort.state()
    yield
    assert fort.state() == before


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("who", ["no key", "unknown key", "disabled user"])
def test_a_peer_without_a_key_that_counts_is_not_heard(fort: Fort, port: str, who: str) -> None:
    keys: dict[str, Callable[[], Keys | None]] = {
        "no key": lambda: None,
        "unknown key": lambda: fort.unknown(port),
        "disabled user": lambda: fort.keys("disabled", port),
    }
    with stranger(fort.ports[port][0], keys[who]()) as peer:
        for _, message, batches in requests_about(REAL):
            peer.shout(message, batches)
        assert not peer.let_in()
        assert peer.silent()


@pytest.mark.parametrize("port", FOR_USERS)
def test_a_user_without_rights_is_told_nothing(fort: Fort, port: str) -> None:
    with stranger(fort.ports[port][0], fort.keys("nobody", port)) as peer:
        assert is_session(peer.greet("nobody"))
        answers = zip(_answers(peer, REAL), _answers(peer, INVENTED), strict=True)
        for (what, real), (_, invented) in answers:
            assert VALUE not in real, what
            # As if it did not exist: but for the name that was asked for, the very same bytes.
            assert real.replace(REAL.encode(), INVENTED.encode()) == invented, what


def _answers(peer: Stranger, name: str) -> Iterator[tuple[str, bytes]]:
    """(what was asked, the refusal) for every request about a name; b"" in place of a number."""
    for what, message, batches in requests_about(name):
        answer = peer.ask(message, batches)
        assert answer is not None, what
        heard, frames = answer
        heard.id = 0
        if isinstance(heard, Failure):
            yield what, b"".join([bytes(encode(heard)[0]), *frames[1:]])
        else:
            assert isinstance(heard, HARMLESS.get(what, ())), what
            _check_harmless(heard)
            yield what, b""


def _check_harmless(heard: AnyMessage) -> None:
    match heard:
        case WatchResult(view=view):
            assert not [*view.topics, *view.groups, *view.deleted, *view.decisions]
            assert view.access is None
        case GroupsListed(groups=groups):
            assert not groups
        case AccessDescribed(users=users):
            assert [user.name for user in users] == ["nobody"]
        case QueuesSurveyed(queues=queues):
            assert not queues
        case GroupsSurveyed(groups=surveyed):
            assert not surveyed
        case AppendTimesFound(times_ms=times_ms):
            assert set(times_ms) == {-1}
        case UndecidedListed() | DelayedListed():
            assert REAL.encode() not in encode(heard)[0]
        case _:
            assert isinstance(heard, Proposed)


@pytest.mark.parametrize("port", FOR_USERS)
def test_a_user_who_is_disabled_is_refused_at_once(fort: Fort, port: str) -> None:
    with stranger(fort.ports[port][0], fort.keys("fired", port)) as peer:
        assert is_session(peer.greet("fired"))
        fort.boom.admin.alter_user("fired", disabled=True)
        try:
            # Within one metadata update of that node.
            wait_until(lambda: _code(peer) in ("UNAUTHENTICATED", "ended"), "it is still served")
            for what, message, batches in requests_about(REAL):
                answer = peer.ask(message, batches)
                assert answer is None or code_of(answer[0]) == "UNAUTHENTICATED", what
        finally:
            fort.boom.admin.alter_user("fired", disabled=False)


def _code(peer: Stranger) -> str:
    """The code of the answer to a small request; "ended" without a session."""
    answer = peer.ask(Offsets(0, 60_000, REAL, [0]))
    return "ended" if answer is None else code_of(answer[0])


def _is_listed(fort: Fort, client: str) -> bool:
    """Return True if a node has a connection of a client."""
    found = fort.boom.admin.connections()
    assert not any(node.error for node in found)
    return any(each.client_id == client for node in found for each in node.connections)


@pytest.mark.parametrize("port", FOR_USERS)
def test_a_session_is_of_no_use_to_another_user(fort: Fort, port: str) -> None:
    name = b"\0some"
    endpoint = fort.ports[port][0]
    with stranger(endpoint, fort.keys("admin", port), name) as owner:
        assert is_session(owner.greet("the administrator"))
        assert _code(owner) in ("", "UNKNOWN_TYPE")
        assert _is_listed(fort, "the administrator")
    # ZeroMQ hears nobody under the routing id of a connection that it still has.
    wait_until(lambda: not _is_listed(fort, "the administrator"), "the connection does not end")
    with stranger(endpoint, fort.keys("nobody", port), name) as thief:
        for what, message, batches in requests_about(REAL):
            assert thief.ask(message, batches) is None, what


@pytest.mark.parametrize("port", FOR_USERS)
@pytest.mark.parametrize(("kind", "node"), [("broker", "broker-1"), ("name-server", "name-1")])
def test_the_cluster_key_alone_makes_no_node(
    fort: Fort, port: str, kind: PeerKind, node: str
) -> None:
    cluster_key = read_key(next(fort.node.data.glob("*.key")))
    with stranger(fort.ports[port][0], fort.keys("nobody", port)) as peer:
        assert code_of(peer.greet(node, kind, cluster_key)) == "UNAUTHENTICATED"
        for what, message, batches in requests_about(REAL):
            assert peer.ask(message, batches) is None, what


@pytest.mark.parametrize("port", FOR_USERS)
@pytest.mark.parametrize(
    ("kind", "node", "proves"),
    [
        ("broker", "broker-2", True),
        ("name-server", "name-1", True),
        ("broker", "broker-1", False),
        ("client", "broker-1", False),
    ],
)
def test_the_key_of_a_node_makes_no_other_and_alone_not_even_that_one(
    fort: Fort, port: str, kind: PeerKind, node: str, proves: bool
) -> None:
    pair = read_credentials(fort.node.data / "broker-1" / "credentials.toml").key_pair
    endpoint, server = fort.ports[port]
    keys = Keys(pair.public.encode(), pair.secret.reveal().encode(), server)
    right = read_key(next(fort.node.data.glob("*.key")))
    wrong = b"" if kind == "client" else b"w" * len(right)
    with stranger(endpoint, keys) as peer:
        assert code_of(peer.greet(node, kind, right if proves else wrong)) == "UNAUTHENTICATED"
        for what, message, batches in requests_about(REAL):
            assert peer.ask(message, batches) is None, what


@pytest.mark.parametrize("who", ["nobody", "admin", "broker-1"])
def test_a7_the_listener_for_name_servers_takes_no_key_of_others(fort: Fort, who: str) -> None:
    keys = fort.keys_of_node(who) if who == "broker-1" else fort.keys(who, "raft")
    with stranger(fort.ports["raft"][0], keys) as peer:
        for _, message, batches in requests_about(REAL):
            peer.shout(message, batches)
        assert not peer.let_in()
        assert peer.silent()


def test_who_sees_nothing_is_not_woken_by_what_it_does_not_see(fort: Fort) -> None:
    with stranger(fort.ports["name server"][0], fort.keys("nobody", "name server")) as peer:
        assert is_session(peer.greet("nobody"))
        first = peer.ask(Watch(0, 60_000, -1, None, 0, None))
        assert first is not None
        assert isinstance(first[0], WatchResult)
        fort.boom.admin.create_topic("fresh", queues=1)
        again = peer.ask(Watch(0, 60_000, first[0].view.version, None, 0, None))
        fort.boom.admin.delete_topic("fresh")
        assert again is not None
        assert b"fresh" not in b"".join(again[1])


HALF: Final = GREETING[:11]
RAW: Final = {
    "nothing": b"",
    "half a greeting": HALF,
    "no encryption": GREETING + b"\x04\x19\x05READY" + bytes(19),
    "a greeting and no more": CURVE_GREETING,
    "a wrong first word": CURVE_GREETING + b"\x04\xc8\x05HELLO" + bytes(194),
    "a frame of a tebibyte": CURVE_GREETING + b"\x06" + (1 << 40).to_bytes(8, "big"),
}
"""What a stranger may send before anybody knows who it is."""


@pytest.mark.parametrize("port", few_of(PORTS, ["broker"]))
def test_raw_connections_are_ended_while_others_are_served(fort: Fort, port: str) -> None:
    with ExitStack() as stack:
        connections: list[socket.socket] = []
        for said in RAW.values():
            connections += stack.enter_context(raw(fort.ports[port][0], 20, said))
        assert fort.boom.pull(REAL, queue=0, offset=0, wait_ms=0).status == "FOUND"
        fort.boom.admin.groups()
        assert are_ended(connections, HANDSHAKE_MS / 1000 + 60)
