"""A consumer of a subscription in a process of its own that acknowledges each message.

    python -m bench.subscriber ENDPOINTS TOPIC SUBSCRIPTION KIND NAME SESSION_MS ack|hold

It prints "ready" once it is attached, reads until its standard input ends, and then prints one JSON
line.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from logboom.client import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

Mode = Literal["ack", "hold"]


class SubscriberReport(Struct):
    """The report of a consumer."""

    count: int
    """The number of messages that it acknowledged, or holds."""
    cpu_s: float
    """Processor time since it was ready."""


class SubscriberProcess:
    """The parent's handle of a consumer process."""

    def __init__(
        self,
        endpoints: Sequence[str],
        topic: str,
        subscription: str,
        kind: str,
        name: str,
        session_ms: int = 10_000,
        mode: Mode = "ack",
    ) -> None:
        where = (",".join(endpoints), topic, subscription, kind, name, str(session_ms), mode)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.subscriber", *where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ready(self) -> None:
        """Wait until it is attached."""
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"ready\n":
            self.kill()
            raise RuntimeError("a consumer did not start: see its error above")

    def report(self, timeout_s: float = 60.0) -> SubscriberReport:
        """Stop the process, and return its report."""
        try:
            out, _ = self.process.communicate(timeout=timeout_s)
        finally:
            self.kill()
        return msgspec.json.decode(out, type=SubscriberReport)

    def kill(self) -> None:
        """Kill the process, so that its session ends without a word."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def main() -> None:
    """Consume until the parent wants the report."""
    endpoints, topic, subscription, kind, name, session_ms, mode = sys.argv[1:]
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    with (
        connect(endpoints) as boom,
        boom.subscribe(
            topic,
            subscription=subscription,
            type=kind,
            name=name,
            start="first",
            session_ms=int(session_ms),
        ) as consumer,
    ):
        print("ready", flush=True)
        threading.Thread(target=listen, daemon=True).start()
        begun, count = time.process_time(), 0
        while not ended.is_set():
            messages = consumer.poll(timeout_s=0.05)
            count += len(messages)
            if mode == "ack":
                for message in messages:
                    consumer.ack(message)
        consumer.flush()
        cpu_s = time.process_time() - begun
    print(msgspec.json.encode(SubscriberReport(count, cpu_s)).decode(), flush=True)


if __name__ == "__main__":
    main()
