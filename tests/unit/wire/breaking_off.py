"""A listener that goes again and again while messages of many frames are under way, and who reads.

`python -m tests.unit.wire.breaking_off`: the reader's process lives, and every message is whole.
"""

from __future__ import annotations

import threading
import time
from typing import Final

import zmq

from logboom.deploy.ports import Ports
from logboom.wire.actor import Received, Send
from logboom.wire.sockets import Sockets

BREAKS: Final = 40
FRAMES: Final = 330
"""libzmq looks for news of its connections at every hundredth frame that is read."""
GREET_S: Final = 0.02
LIMIT_S: Final = 300.0


def bind(listener: zmq.Socket[bytes], endpoint: str) -> None:
    """Listen, once libzmq's thread has let go of the port for the listener before."""
    while True:
        try:
            listener.bind(f"tcp://{endpoint}")
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE:
                raise
            # libzmq closes ports in a thread of its own and tells nobody.
            time.sleep(0.001)
        else:
            return


def listen(endpoint: str, over: threading.Event) -> None:
    """Send much to whoever comes, and go without a word; `BREAKS` times."""
    with zmq.Context() as context:
        for _ in range(BREAKS):
            with context.socket(zmq.ROUTER) as listener:
                listener.linger = 0
                listener.sndhwm = 100
                listener.setsockopt(zmq.ROUTER_MANDATORY, 1)
                bind(listener, endpoint)
                dialler = listener.recv_multipart()[0]
                end = time.monotonic() + GREET_S
                while time.monotonic() < end:
                    try:
                        listener.send_multipart([dialler] + [b"frame"] * FRAMES, zmq.NOBLOCK)
                    except zmq.ZMQError:
                        # Its queue is full, or the dialler has gone; neither is waited for, as `end` bounds it.
                        time.sleep(0.0005)
    over.set()


def main() -> None:
    """Read until the listener has gone for good."""
    ports = Ports("free")
    endpoint = ports.broker()
    over = threading.Event()
    thread = threading.Thread(target=listen, args=[endpoint, over], daemon=True)
    thread.start()
    sockets = Sockets()
    greeted, end = 0.0, time.monotonic() + LIMIT_S
    while not over.is_set():
        now = time.monotonic()
        if now > end:
            raise SystemExit("the listener did not end")
        if now - greeted > GREET_S:
            sockets.send([Send(endpoint, [b"hello"])])
            greeted = now
        for received in sockets.poll(GREET_S):
            if not isinstance(received, Received):
                raise SystemExit(f"a failed handshake: {received}")
            if list(received.frames) != [b"frame"] * FRAMES:
                raise SystemExit(f"a message of {len(received.frames)} frames")
    sockets.close()
    ports.release()


if __name__ == "__main__":
    main()
