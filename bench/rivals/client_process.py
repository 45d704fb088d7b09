"""A rival's client in a process of its own, which carries out one command after the other.

    python -m bench.rivals.client_process MODULE ADDRESS

Commands are JSON lines on standard input; each is answered by one line, and `consume` by two: one
once the consumer waits at its position, and one at its end. All times are of this machine's monotonic
clock, which is the same in all processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from bench.rivals import payload
from bench.rivals.process_tree import process_cpu_s
from bench.rivals.rival import RivalFailed, age_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.rivals.rival import RivalClient

ROOT: Final = Path(__file__).parents[2]
PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that this process gets when its parent ends."""
ANSWER_S: Final = 90.0
READY_S: Final = 60.0
"""Seconds in which the first topic has to be there; a cluster may still be forming."""


class Burst(TypedDict, total=False):
    """What a client measured in one burst."""

    began: float
    ended: float
    messages: int
    cpu_s: float
    checksum: int
    ms: list[float]
    """Latencies: of acknowledgements from a producer, of deliveries from a consumer."""
    error: str
    """Why it failed; then there is nothing else."""


class _Commands:
    """The commands of a client process, by name."""

    def __init__(self, client: RivalClient) -> None:
        self._client = client

    def create(self, topic: str, replicas: int) -> Burst:
        """Create a topic; try again while the servers are not ready for it."""
        deadline = time.monotonic() + READY_S
        while True:
            try:
                self._client.create(topic, replicas)
                return {}
            # Each client has its own errors for servers that have not found each other yet.
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.25)  # no event tells that a rival's cluster is ready

    def delete(self, topic: str) -> Burst:
        """Delete a topic."""
        self._client.delete(topic)
        return {}

    def produce(self, topic: str, count: int, size: int, codec: str, singly: bool) -> Burst:
        """Produce messages in bulk or one by one."""
        values = payload.values(count, size)
        send = self._client.produce_singly if singly else self._client.produce
        cpu_s, began = time.process_time(), time.monotonic()
        send(topic, values, codec)
        ended = time.monotonic()
        return {
            "began": began,
            "ended": ended,
            "messages": count,
            "cpu_s": time.process_time() - cpu_s,
            "checksum": payload.checksum([values]),
        }

    def pace(self, topic: str, count: int, size: int, interval_s: float) -> Burst:
        """Send one message each interval."""
        values = payload.values(count, size)
        cpu_s, began = time.process_time(), time.monotonic()
        found = self._client.pace(topic, values, interval_s)
        return {
            "began": began,
            "ended": time.monotonic(),
            "messages": count,
            "cpu_s": time.process_time() - cpu_s,
            "ms": found,
        }

    def consume(self, topic: str, start: int, count: int, prompt: bool) -> Iterator[Burst]:
        """Read messages: say once that the consumer waits, and then what it got.

        The time begins with the call, so that it has in it what a fresh consumer needs to attach.
        """
        cpu_s, began = time.process_time(), time.monotonic()
        arriving = self._client.consume(topic, start, count, prompt=prompt)
        taken: list[list[bytes]] = []
        arrived_ns: list[int] = []
        seen = 0
        for values in arriving:
            arrived_ns.append(time.monotonic_ns())
            if not taken:
                yield {}
            taken.append(values)
            seen += len(values)
            if seen >= count:
                break
        ended, spent_s = time.monotonic(), time.process_time() - cpu_s
        arriving.close()
        found: Burst = {"began": began, "ended": ended, "cpu_s": spent_s, "messages": seen}
        if prompt:
            pairs = zip(taken, arrived_ns, strict=True)
            found["ms"] = [age_ms(value, at) for values, at in pairs for value in values]
        else:
            found["checksum"] = payload.checksum(taken)
        yield found


class ClientProcess:
    """The parent's handle of a client process."""

    def __init__(self, python: Path, module: str, address: str, log: Path) -> None:
        words = [str(python), "-m", "bench.rivals.client_process", module, address]
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._unread = b""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                # Some clients write logs below it.
                env=os.environ | {"HOME": str(log.parent)},
                # Ctrl-C reaches only the harness, which ends it.
                start_new_session=True,
            )
        try:
            self.answer()
        # Ctrl-C too: the process must not outlive this. The error is raised again.
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, command: str, **words: Any) -> Burst:
        """Give a command, and return its answer."""
        self.tell(command, **words)
        return self.answer()

    def tell(self, command: str, **words: Any) -> None:
        """Give a command without waiting.

        Raises:
            RivalFailed: the process has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([command, words]).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RivalFailed(f"its client ended: see {self._log}") from None

    def answer(self) -> Burst:
        """Wait for the next answer.

        Raises:
            RivalFailed: the command failed, or there is no answer in time.
        """
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        # Not readline: two answers may come at once, and select does not see what is buffered.
        while b"\n" not in self._unread:
            if not select.select([output], [], [], ANSWER_S)[0]:
                raise RivalFailed(
                    f"its client gives no answer in {ANSWER_S:.0f} s: see {self._log}"
                )
            more = os.read(output, 1 << 16)
            if not more:
                raise RivalFailed(f"its client ended: see {self._log}")
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        found: Burst = json.loads(line)
        if "error" in found:
            raise RivalFailed(f"its client failed: {found['error']}")
        return found

    def cpu_s(self) -> float:
        """Return the processor seconds of the process so far."""
        return process_cpu_s(self.pid)

    def close(self) -> None:
        """Kill the process. A second call does nothing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            # There may be a command that it no longer read.
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def main() -> None:
    """Connect, and carry out commands until standard input ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Whatever a client's library prints must not come between the answers.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(found: Burst) -> None:
        output.write(json.dumps(found) + "\n")
        output.flush()

    module, address = sys.argv[1:]
    try:
        client: RivalClient = importlib.import_module(module).CLIENT(address)
        commands = _Commands(client)
        reply({})
        for line in sys.stdin:
            name, words = json.loads(line)
            found: Burst | Iterator[Burst] = getattr(commands, name)(**words)
            if isinstance(found, dict):
                reply(found)
            else:
                for answer in found:
                    reply(answer)
    # Whatever a rival's client raises is told to the harness, which goes on with the others.
    except Exception as error:
        reply({"error": f"{type(error).__name__}: {error}"})
        raise
    client.close()


if __name__ == "__main__":
    main()
