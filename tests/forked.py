"""Commands and scripts as processes that are forked from one that has imported everything.

Each is a process of its own, with its own environment, folder, input and output, as a shell would start
it. But Python and our modules are loaded once for all of them: that takes several times as long as most
of them do.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

LOADED: Final = (
    "logboom.client",
    "logboom.deploy",
    "logboom.cli.app",
    *(f"logboom.cli.{name}_command" for name in ("consume", "produce", "doctor")),
    *(f"logboom.cli.{name}_commands" for name in ("cluster", "topic", "group", "message", "dlq")),
)
COMMAND: Final = "logboom"
"""Instead of a script's path: the command, with its words."""
MOST_BYTES: Final = 1 << 20
"""Of what a process is told to begin with."""


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    out: bytes
    err: str


def run_forked(
    words: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path | None = None,
    stdin: bytes = b"",
    timeout_s: float = 200.0,
) -> Ended:
    """Run a script, or `COMMAND` with its words, to its end.

    Raises:
        TimeoutError: it did not end in time, and was killed.
    """
    told = json.dumps([list(words), dict(environment), str(cwd or Path.cwd())]).encode()
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        socket.socket(socket.AF_UNIX) as asked,
    ):
        given.write(stdin)
        given.seek(0)
        asked.connect(_server())
        socket.send_fds(asked, [told], [file.fileno() for file in (given, out, err)])
        asked.shutdown(socket.SHUT_WR)
        asked.settimeout(timeout_s)
        answers = asked.makefile("r")
        pid = int(answers.readline())
        try:
            code = int(answers.readline())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read(), err.read().decode())


@cache
def _server() -> str:
    """Start the process that all others are forked from; where it listens."""
    folder = tempfile.mkdtemp(prefix="logboom-forked-")
    path = f"{folder}/socket"
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forked", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )

    def end() -> None:
        server.kill()
        server.wait()
        shutil.rmtree(folder)

    atexit.register(end)
    assert server.stdout is not None
    with server.stdout:
        assert server.stdout.readline() == b"ready\n"
    return path


def serve(path: str) -> Any:
    """Fork for each connection; in the process that is to run something, what it is told."""
    for name in LOADED:
        import_module(name)
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # Nobody waits for those that wait for their process.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        told, files, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
        while more := connection.recv(MOST_BYTES):
            told += more
        if pid := os.fork():
            connection.sendall(b"%d\n" % pid)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            connection.sendall(b"%d\n" % code)
            os._exit(0)
        connection.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        return json.loads(told)


def run(words: Sequence[str], environment: Mapping[str, str], cwd: str) -> None:
    """Be the process that was asked for."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    # Of the server its input was taken; output and errors go on as they are.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = list(words)
    if words[0] == COMMAND:
        import_module("logboom.cli.__main__").main()
        return
    sys.path[0] = str(Path(words[0]).parent)
    warnings.simplefilter("error")
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    run(*serve(sys.argv[1]))
