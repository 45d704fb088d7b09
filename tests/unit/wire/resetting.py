"""Peers that send more than anybody takes, and reset the connection: whether the process survives.

`python -m tests.unit.wire.resetting SIDE SECURITY NAME PEER` ends with 0 if it does. SIDE is
"listener" (we have accepted the connection) or "dialler" (we have dialled it), SECURITY "open" or
"curve", NAME that of the listener. PEER is "asks", which sends heartbeats of ZMTP as nodes of earlier
versions did, or "silent"; then we send them ourselves, which no socket of ours does any more.

Between the peer and us is a relay, which resets both of its connections when told to: what the peer
sends is that of a real ZeroMQ socket, with encryption or without.
"""

from __future__ import annotations

import socket as tcp
import struct
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from typing import Final

import zmq

from logboom.wire.actor import Received, Send
from logboom.wire.authenticator import Verdict
from logboom.wire.sockets import Sockets, make_key_pair

FLOOD: Final = 11_000
"""Messages of the peer: more than ZeroMQ held of one by its own bound, while it had one."""
PING_MS: Final = 2
LIMIT_S: Final = 120.0
NODE, PEER = make_key_pair(), make_key_pair()


class Asking(Sockets):
    """Sockets that send heartbeats of ZMTP."""

    def _socket(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = super()._socket(kind, endpoint)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 200)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 300_000)
        return socket


class Relay:
    """Passes bytes between the first who dials it and `target`, until it resets both."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = tcp.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[tcp.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        near, _ = self._listener.accept()
        host, _, port = self._target.rpartition(":")
        far = tcp.create_connection((host, int(port)))
        self._ends += [near, far]
        threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
        self._pass_on(far, near)

    def _pass_on(self, source: tcp.socket, sink: tcp.socket) -> None:
        with suppress(OSError):
            while said := source.recv(65_536):
                sink.sendall(said)

    def reset(self) -> None:
        """End both connections as an impolite system does."""
        self._listener.close()
        for end in self._ends:
            end.setsockopt(tcp.SOL_SOCKET, tcp.SO_LINGER, struct.pack("ii", 1, 0))
            # close(2) alone would wait for the thread that reads.
            with suppress(OSError):
                end.shutdown(tcp.SHUT_RD)
            end.close()


def flood(peer: zmq.Socket[bytes], prefix: list[bytes]) -> None:
    """Send until all is sent, or ZeroMQ takes no more: whoever should read does not."""
    for _ in range(FLOOD):
        try:
            peer.send_multipart([*prefix, b"x"], zmq.NOBLOCK)
        except zmq.Again:
            if not peer.poll(300, zmq.POLLOUT):
                return


def peer_socket(stack: ExitStack, kind: int, *, curve: bool, asks: bool) -> zmq.Socket[bytes]:
    """Return the peer's socket."""
    context = stack.enter_context(zmq.Context())
    peer = stack.enter_context(context.socket(kind))
    peer.setsockopt(zmq.LINGER, 0)
    peer.setsockopt(zmq.SNDHWM, FLOOD)
    if asks:
        peer.setsockopt(zmq.HEARTBEAT_IVL, PING_MS)
        peer.setsockopt(zmq.HEARTBEAT_TTL, 60_000)
        peer.setsockopt(zmq.HEARTBEAT_TIMEOUT, 300_000)
    if curve:
        key = PEER if kind == zmq.DEALER else NODE
        peer.setsockopt(zmq.CURVE_PUBLICKEY, key.public.encode())
        peer.setsockopt(zmq.CURVE_SECRETKEY, key.secret.reveal().encode())
        if kind == zmq.DEALER:
            peer.setsockopt(zmq.CURVE_SERVERKEY, NODE.public.encode())
        else:
            peer.setsockopt(zmq.CURVE_SERVER, 1)
    return peer


def drain(sockets: Sockets) -> None:
    """Take all that waits, as a loop does once it is no longer busy."""
    end = time.monotonic() + LIMIT_S
    quiet = 0
    while quiet < 20:
        quiet = 0 if sockets.poll(0.01) else quiet + 1
        if time.monotonic() > end:
            raise SystemExit("there is no end of what waits")


def await_message(sockets: Sockets) -> Received:
    """Poll until a message has come."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        for event in sockets.poll(0.01):
            if isinstance(event, Received):
                return event
    raise SystemExit("no message has come")


def attack_listener(name: str, *, curve: bool, asks: bool) -> None:
    """Dial a listener, be heard, send what nobody takes, and reset."""
    named = [name] if curve else []
    kind = Sockets if asks else Asking
    node = kind({name: "127.0.0.1:0"}, key_pair=NODE if curve else None, curve=named)
    node.authenticate = lambda *_: Verdict("accepted", "alice/a#1")
    with closing(node), ExitStack() as stack:
        relay = Relay(node.endpoints[name])
        peer = peer_socket(stack, zmq.DEALER, curve=curve, asks=asks)
        peer.connect(f"tcp://{relay.endpoint}")
        peer.send(b"hello")
        await_message(node)
        flood(peer, [])
        reset_and_drain(relay, node)


def attack_dialler(*, curve: bool, asks: bool) -> None:
    """Be dialled, answer with what nobody takes, and reset."""
    with ExitStack() as stack:
        peer = peer_socket(stack, zmq.ROUTER, curve=curve, asks=asks)
        port = peer.bind_to_random_port("tcp://127.0.0.1")
        relay = Relay(f"127.0.0.1:{port}")
        kind = Sockets if asks else Asking
        dialler = stack.enter_context(closing(kind(key_pair=PEER if curve else None)))
        dialler.server_keys = lambda _: [NODE.public]
        dialler.send([Send(relay.endpoint, [b"hello"])])
        routing_id = peer.recv_multipart()[0]
        peer.send_multipart([routing_id, b"first"])
        await_message(dialler)
        flood(peer, [routing_id])
        reset_and_drain(relay, dialler)


def reset_and_drain(relay: Relay, sockets: Sockets) -> None:
    """Reset the connection, give every timer the time to end, and take what has come."""
    relay.reset()
    # No condition tells that ZeroMQ's timers have ended: the process lives, or it does not.
    threading.Event().wait(0.5)
    drain(sockets)


def main() -> None:
    """Attack."""
    side, security, name, peer = sys.argv[1:]
    curve, asks = security == "curve", peer == "asks"
    if side == "listener":
        attack_listener(name, curve=curve, asks=asks)
    else:
        attack_dialler(curve=curve, asks=asks)


if __name__ == "__main__":
    main()
