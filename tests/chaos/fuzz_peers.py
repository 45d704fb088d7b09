"""Hostile peers on real sockets: frames by grammar, raw bytes, silence, storms of connections."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeAlias, get_args

import zmq
from hypothesis import strategies as st

from logboom.wire.base import WireMessage
from logboom.wire.frames import Frame, encode
from logboom.wire.messages import AnyMessage, Hello, Prove
from tests.unit.wire.hostile import frames, structs

GREETING: Final = (
    b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
)
"""What a ZMTP 3 connection begins with: signature, version, mechanism, role, filler."""
_READY_BODY: Final = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
HANDSHAKE: Final = GREETING + b"\x04" + bytes([len(_READY_BODY)]) + _READY_BODY
HEADS: Final = (
    b"",
    GREETING[:1],
    GREETING[:10],
    GREETING[:-1],
    GREETING,
    HANDSHAKE[:-3],
    HANDSHAKE,
    # A frame of 200 bytes of which three come.
    HANDSHAKE + b"\x00\xc8" + b"abc",
    # Frames that claim the most that is taken, more, and all that a length can say.
    HANDSHAKE + b"\x02" + (64 << 20).to_bytes(8, "big") + b"abc",
    HANDSHAKE + b"\x02" + (1 << 40).to_bytes(8, "big") + b"abc",
    HANDSHAKE + b"\x02" + b"\xff" * 8,
    # A command that is none, and a frame of which more always follows.
    HANDSHAKE + b"\x04\x05\x04HEY!",
    HANDSHAKE + b"\x01\x01x" * 2_000,
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)
"""With these a raw connection begins, and then falls silent."""

Case: TypeAlias = tuple[list[list[Frame]], list[list[Frame]]]
"""What a peer says first, and then."""

_GREETINGS: Final[Sequence[WireMessage]] = (
    Hello(-1, 1, 1, "fuzz", "client", 0),
    Hello(-1, 1, 1, "fuzz", "client", 0, b"", b"x" * 16),
    Hello(-1, 2, 9, "fuzz", "client", 0),
    Hello(-1, 1, 2**40, "x" * 10_000, "client", -1),
    Hello(-1, 1, 1, "broker-1", "broker", 2**40, b"", b"n" * 16),
    Hello(-1, 1, 1, "name-1", "name-server", 0, b"", b""),
    Prove(-1, b"wrong" * 8),
)
_HELLO: Final = encode(_GREETINGS[0])

cases: Final[st.SearchStrategy[Case]] = st.tuples(
    st.one_of(
        st.just([_HELLO]),
        st.just(list[list[Frame]]()),
        # With no key, or a wrong one, a node's HELLO leads nowhere.
        st.lists(st.sampled_from([encode(m) for m in _GREETINGS]), max_size=3),
    ),
    st.lists(frames, min_size=1, max_size=8),
)
"""A connection: strangers, clients, and who pretends to be a node."""


def of(kind: type[Any]) -> st.SearchStrategy[Case]:
    """A client that greeted and sends one kind of message with fields of any value."""
    return st.tuples(st.just([_HELLO]), st.lists(structs(kind).map(encode), min_size=1, max_size=8))


def kinds() -> tuple[type[Any], ...]:
    """All messages of the protocol."""
    return get_args(AnyMessage)


class Peers:
    """Connections to one endpoint, some open at a time."""

    def __init__(self, endpoint: str, kept: int = 20) -> None:
        self._endpoint = endpoint
        self._kept = kept
        self._context = zmq.Context()
        self._open: list[zmq.Socket[bytes]] = []
        self.sent = 0

    def play(self, case: Case) -> None:
        """Open a connection and say all of a case on it; the oldest connection is closed."""
        dealer: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 100)
        dealer.connect(f"tcp://{self._endpoint}")
        for said in (*case[0], *case[1]):
            # An empty multipart is no message: the smallest is one empty frame.
            dealer.send_multipart(said or [b""])
            self.sent += 1
        self._open.append(dealer)
        if len(self._open) > self._kept:
            self._open.pop(0).close()

    def close(self) -> None:
        """Close all."""
        for dealer in self._open:
            dealer.close(linger=0)
        self._open.clear()
        self._context.term()


@contextmanager
def raw(endpoint: str, count: int, head: bytes = b"") -> Iterator[list[socket.socket]]:
    """Bare TCP connections that have said `head`."""
    host, _, port = endpoint.rpartition(":")
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port)), 5.0))
            if head.startswith(HANDSHAKE):
                # Frames that come before the listener's READY are taken for a broken handshake.
                connection.sendall(HANDSHAKE)
                heard = b""
                while b"READY" not in heard:
                    said = connection.recv(4096)
                    assert said, heard
                    heard += said
                connection.sendall(head[len(HANDSHAKE) :])
            else:
                connection.sendall(head)
            made.append(connection)
        yield made


def trickle(connections: Sequence[socket.socket], said: bytes, seconds: float) -> None:
    """Say it byte by byte, on all of them, until the time is over."""
    until = time.monotonic() + seconds
    for at in range(len(said)):
        for connection in connections:
            # Told off and hung up on: that is an answer too.
            try:
                connection.send(said[at : at + 1])
            except OSError:
                continue
        if time.monotonic() > until:
            return
        # The pace of a trickle: nothing is waited for.
        time.sleep(0.01)


def storm(endpoint: str, count: int) -> None:
    """Short connections one after another: bare ones, and such that greet and go."""
    context = zmq.Context()
    hello = bytes(_HELLO[0])
    try:
        for at in range(count):
            if at % 2:
                with raw(endpoint, 1, HEADS[at // 2 % len(HEADS)]):
                    pass
            else:
                dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
                dealer.setsockopt(zmq.LINGER, 50)
                dealer.connect(f"tcp://{endpoint}")
                dealer.send(hello)
                if at % 4:
                    dealer.poll(1_000)
                dealer.close()
    finally:
        context.term()
