"""A server of raw sockets in a process of its own: `python -m bench.raw_server FOLDER STORE`.

It does with the bytes of each request what STORE says, and then answers. *nothing*: it only
answers. *file*: it appends them to a file, with an fdatasync. *rocksdb*: it writes all requests
that wait, at most eight, to RocksDB with one sync.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import zmq

from bench.raw import BATCHES_A_SYNC, RawStore, SyncedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Store = Literal["nothing", "file", "rocksdb"]


class RawServer:
    """The parent's handle of a server process, and a socket that is connected to it."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], store: Store) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self._folder = tempfile.TemporaryDirectory(prefix="logboom-raw-")
        command = [sys.executable, "-m", "bench.raw_server", self._folder.name, store]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            self.close()
            raise RuntimeError("the raw server did not start: see its error above")
        self.socket.connect(f"tcp://127.0.0.1:{port}")

    def close(self) -> None:
        """Stop the process, and remove what it wrote."""
        self.socket.close()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._folder.cleanup()


def serve(folder: Path, store: Store) -> None:
    """Answer requests until the process is killed."""
    socket = zmq.Context().socket(zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    write: Callable[[Sequence[bytes]], object] = len
    if store == "file":
        write = SyncedFile(folder / "file").write
    elif store == "rocksdb":
        write = RawStore(folder / "raw").write
    most: Final = BATCHES_A_SYNC if store == "rocksdb" else 1
    print(port, flush=True)
    while True:
        requests = [socket.recv_multipart()]
        while len(requests) < most and socket.poll(0):
            requests.append(socket.recv_multipart())
        write([body for _, body in requests])
        for peer, _ in requests:
            socket.send_multipart([peer, b""])


if __name__ == "__main__":
    serve(Path(sys.argv[1]), msgspec.convert(sys.argv[2], Store))
