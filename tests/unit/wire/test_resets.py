"""A connection that is reset while much of it waits: libzmq must not abort the process.

It does so wherever it has stopped reading at a bound of its own: with the next heartbeat of its own
("Assertion failed: !_io_error"), over one of the peer's, or with the next connection
("_input_stopped"). So none of our sockets has such a bound, or heartbeats.
"""

import subprocess
import sys
from contextlib import closing

import pytest
import zmq

from logboom.wire.actor import Send
from logboom.wire.sockets import Sockets, make_key_pair

SIDES = (
    ("listener", "open", "main"),
    ("listener", "curve", "raft"),
    ("dialler", "open", "-"),
    ("dialler", "curve", "-"),
)


@pytest.mark.parametrize("peer", ["asks", "silent"])
@pytest.mark.parametrize(("side", "security", "name"), SIDES)
def test_a_reset_while_much_waits_ends_no_process(
    side: str, security: str, name: str, peer: str
) -> None:
    command = [sys.executable, "-m", "tests.unit.wire.resetting", side, security, name, peer]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert not ended.returncode, ended.stderr


def test_no_socket_stops_reading_or_sends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[zmq.Socket[bytes]] = []
    make = zmq.Context.socket

    def record(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
        made.append(make(context, kind))
        return made[-1]

    monkeypatch.setattr(zmq.Context, "socket", record)
    node, peer = make_key_pair(), make_key_pair()
    listeners = {"main": "127.0.0.1:0", "raft": "127.0.0.1:0", "open": "[::1]:0"}
    with closing(Sockets(listeners, key_pair=node, curve=["main", "raft"])) as served:
        for key_pair in (None, peer):
            with closing(Sockets(key_pair=key_pair)) as dialler:
                dialler.server_keys = lambda _: [node.public]
                dialler.plain_allowed = lambda _: True
                for endpoint in served.endpoints.values():
                    dialler.send([Send(endpoint, [b"hello"])])
                reached = [s for s in made if not s.closed and s.getsockopt(zmq.LAST_ENDPOINT)]
                spoken = [
                    s for s in reached if s.getsockopt_string(zmq.LAST_ENDPOINT)[:4] == "tcp:"
                ]
                assert {s.getsockopt(zmq.TYPE) for s in spoken} == {zmq.ROUTER, zmq.DEALER}
                assert len(spoken) == 2 * len(listeners)
                for socket in made:
                    if socket.closed:
                        continue
                    assert not socket.getsockopt(zmq.HEARTBEAT_IVL)
                    if socket in spoken:
                        assert not socket.getsockopt(zmq.RCVHWM)
