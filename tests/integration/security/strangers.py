"""Peers that speak the protocol by themselves, with whatever key, name and routing id they like."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from logboom.wire.base import WireMessage
from logboom.wire.frames import Frame, decode, encode
from logboom.wire.hello import PeerKind, proof
from logboom.wire.messages import (
    AnyMessage,
    Challenge,
    Failure,
    Hello,
    NeedHello,
    Prove,
    Welcome,
)

PATIENT_MS: Final = 60_000
"""An answer that takes longer does not come; far more than it takes on a busy machine."""
NONCE: Final = b"n" * 16
REFUSALS: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
)


@dataclass(frozen=True)
class Keys:
    """A key pair of ZeroMQ, and the public key of the server that is dialled with it."""

    public: bytes
    secret: bytes
    server: bytes


class Stranger:
    """One connection."""

    def __init__(self, endpoint: str, keys: Keys | None, routing_id: bytes = b"") -> None:
        """`keys` None: no encryption at all."""
        self._context = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        if keys is not None:
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server)
        if routing_id:
            self.socket.setsockopt(zmq.ROUTING_ID, routing_id)
        self._monitor = self.socket.get_monitor_socket(
            REFUSALS | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CONNECTED
        )
        self._numbers = 0
        self._ended = False
        """True once the node has ended the connection."""
        self.socket.connect(f"tcp://{endpoint}")

    def close(self) -> None:
        """End the connection."""
        self.socket.disable_monitor()
        self._monitor.close(linger=0)
        self.socket.close(linger=0)
        self._context.term()

    def let_in(self) -> bool:
        """Wait until the handshake has ended; return whether it succeeded."""
        while self._monitor.poll(PATIENT_MS):
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                return True
            if event & REFUSALS:
                return False
        raise AssertionError("the handshake does not end")

    def tell(self, message: WireMessage, batches: list[Frame] | None = None) -> int:
        """Send a message under a number of its own, and return that number."""
        self._numbers += 1
        message.id = self._numbers
        try:
            self.socket.send_multipart(encode(message, batches or []), zmq.NOBLOCK)
        except zmq.Again:
            # Nobody lets this one in any more.
            self._ended = True
        return self._numbers

    def shout(self, message: WireMessage, batches: list[Frame]) -> None:
        """Send a message if ZeroMQ takes one: it does not while no peer lets this one in."""
        with contextlib.suppress(zmq.Again):
            self.socket.send_multipart(encode(message, batches), zmq.NOBLOCK)

    def hear(self) -> AnyMessage:
        """Return the next message."""
        assert self.socket.poll(PATIENT_MS), "no answer"
        return decode(self.socket.recv_multipart())

    def silent(self) -> bool:
        """Return True if nothing has arrived."""
        return not self.socket.poll(0)

    def greet(
        self,
        client_id: str,
        kind: PeerKind = "client",
        cluster_key: bytes = b"",
    ) -> AnyMessage:
        """Greet, with a proof of the cluster key if one is given; return the last answer."""
        nonce = NONCE if cluster_key or kind != "client" else b""
        self.tell(Hello(0, 1, 1, client_id, kind, 0, b"", nonce))
        answer = self.hear()
        if isinstance(answer, Challenge):
            shown = proof(cluster_key, "dialer", nonce, answer.nonce, client_id)
            self.tell(Prove(0, shown))
            answer = self.hear()
        return answer

    def ask(
        self, message: WireMessage, batches: list[Frame] | None = None
    ) -> tuple[AnyMessage, list[bytes]] | None:
        """Return the answer to a request and its frames.

        None: there is no session, or the node has ended the connection.
        """
        number = 0 if self._ended else self.tell(message, batches)
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        while not self._ended:
            ready = dict(poller.poll(PATIENT_MS))
            assert ready, f"no answer to {type(message).__name__}"
            if self.socket not in ready:
                event = recv_monitor_message(self._monitor)["event"]
                self._ended = bool(event & REFUSALS)
                continue
            frames = self.socket.recv_multipart()
            heard = decode(frames)
            if isinstance(heard, NeedHello):
                return None
            if heard.id == number:
                return heard, frames
        return None


@contextmanager
def stranger(endpoint: str, keys: Keys | None, routing_id: bytes = b"") -> Iterator[Stranger]:
    """A connection that is closed in the end."""
    made = Stranger(endpoint, keys, routing_id)
    try:
        yield made
    finally:
        made.close()


def code_of(answer: AnyMessage) -> str:
    """Return the code of a failure, "" of anything else."""
    return answer.code if isinstance(answer, Failure) else ""


def is_session(answer: AnyMessage) -> bool:
    """Return True if a greeting was welcomed."""
    return isinstance(answer, Welcome)
