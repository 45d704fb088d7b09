"""Strangers that come in crowds: one turn handles so much, the next the rest, and nothing is lost."""

import resource
import socket as tcp
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
import zmq

from logboom.wire.accepted_connections import in_turn
from logboom.wire.actor import PeerAddress, Received, Send
from logboom.wire.authenticator import Verdict
from logboom.wire.peer_routes import PeerRoutes
from logboom.wire.sockets import (
    TURN_CALLERS,
    TURN_QUESTIONS,
    TURN_REPORTS,
    ZAP_ENDPOINT,
    Sockets,
    make_key_pair,
)
from tests.chaos.fuzz_peers import HANDSHAKE
from tests.integration.waiting import wait_until

NODE = make_key_pair()
MESSAGE = b"\x00\x05hello"


class Node(Sockets):
    """A node's sockets."""

    def ask_about_keys(self, count: int) -> zmq.Socket[bytes]:
        """Ask `count` times who has a key, as ZeroMQ does."""
        asker: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        asker.linger = 0
        asker.connect(ZAP_ENDPOINT)
        question = [b"", b"1.0", b"1", b"logboom/main", b"192.0.2.1", b"", b"CURVE", bytes(32)]
        for _ in range(count):
            asker.send_multipart(question)
        return asker

    @property
    def unread_reports(self) -> bool:
        """True if ZeroMQ has told more than was read."""
        return any(each.poll(0) for each in self._monitors)


@pytest.fixture
def node() -> Iterator[Node]:
    with closing(Node({"main": "127.0.0.1:0"})) as sockets:
        yield sockets


def call(node: Sockets) -> tcp.socket:
    """Connect to a node."""
    host, port = node.endpoints["main"].split(":")
    return tcp.create_connection((host, int(port)), timeout=100)


def test_a_turn_takes_so_many_connections_and_the_next_ones_the_rest(node: Node) -> None:
    count = 5 * TURN_CALLERS
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        for _ in range(count):
            # The node has accepted it, and told so, once it greets.
            assert stack.enter_context(call(node)).recv(1)
        # Twice, since a turn may look and find reports.
        before = 0
        while before < count:
            node.poll(0)
            assert node.figures()["connections"] - before in range(1, 2 * TURN_CALLERS + 1)
            before = node.figures()["connections"]
        assert not node.unread_reports
    wait_until(lambda: not node.poll(0.01) and not node.figures()["connections"], "they stay")


def test_a_turn_reads_so_many_reports(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Counter[str]()
    opened = PeerRoutes.opened

    def count(self: PeerRoutes, listener: str, descriptor: int) -> None:
        read[listener] += 1
        opened(self, listener, descriptor)

    monkeypatch.setattr(PeerRoutes, "opened", count)
    crowd = TURN_REPORTS + 200
    for _ in range(crowd):
        with call(node) as caller:
            assert caller.recv(1)
    before = 0
    while read["main"] < crowd:
        node.poll(0)
        assert read["main"] - before <= TURN_REPORTS
        before = read["main"]


def test_who_is_heard_behind_many_reports_is_known_by_its_own(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.wire.sockets.TURN_REPORTS", 2)
    monkeypatch.setattr("logboom.wire.sockets.TURN_CALLERS", 2)
    with ExitStack() as stack:
        callers = list[tcp.socket]()
        for _ in range(60):
            # Descriptors come again, so that reports of ended connections are among them.
            with call(node) as short:
                assert short.recv(1)
            caller = stack.enter_context(call(node))
            said = b""
            caller.sendall(HANDSHAKE)
            while b"READY" not in said:
                said += caller.recv(1_000)
            caller.sendall(MESSAGE)
            callers.append(caller)
        peers: list[PeerAddress] = []

        def heard() -> bool:
            for event in node.poll(0):
                assert isinstance(event, Received)
                assert isinstance(event.peer, PeerAddress)
                peers.append(event.peer)
            return len(peers) == len(callers)

        wait_until(heard, "messages are missing")
        assert len(set(peers)) == len(callers)
        ports = {node.inspect(peer): peer for peer in peers}
        assert None not in ports
        known = {info.endpoint.rpartition(":")[2]: peer for info, peer in ports.items() if info}
        for number, caller in enumerate(callers):
            answer = b"answer %d" % number
            node.send([Send(known[str(caller.getsockname()[1])], [answer])])
            said = b""
            while not said.endswith(answer):
                said += caller.recv(1_000)


def test_a_turn_answers_so_many_questions_about_keys() -> None:
    asked = 0

    def refuse(*_: str) -> Verdict:
        nonlocal asked
        asked += 1
        return Verdict("refused")

    count = 3 * TURN_QUESTIONS
    node = Node({"main": "127.0.0.1:0"}, key_pair=NODE, curve=["main"])
    node.authenticate = refuse
    with closing(node), closing(node.ask_about_keys(count)) as asker:
        while asked < count:
            before = asked
            node.poll(0)
            assert asked - before <= TURN_QUESTIONS
        for _ in range(count):
            node.poll(0)
            assert asker.poll(100_000)
            assert asker.recv_multipart()[3] == b"400"


def test_connections_have_their_turns() -> None:
    connections = {1, 5, 7, 9}
    assert in_turn(connections, -1, 2) == [1, 5]
    assert in_turn(connections, 5, 2) == [7, 9]
    assert in_turn(connections, 9, 3) == [1, 5, 7]
    assert in_turn({3}, 9, 3) == [3]
    assert in_turn(set(), 9, 3) == []
