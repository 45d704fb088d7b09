"""One member of the demo's group, as a separate process that can be killed.

It joins, reports that, waits for a line on its standard input, and then writes what it reads to its
standard output, always before it acknowledges it. What it has not committed when it is killed is
read again by another member. It leaves the group when its standard input ends.
"""

from __future__ import annotations

import sys
import threading
from typing import Final

import msgspec

from logboom.client import connect

GROUP: Final = "demo"
SESSION_MS: Final = 3_000
AT_ONCE: Final = 1_000
"""The most messages of a frame."""
COMMIT_EVERY_S: Final = 0.02


class PipedMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message as it is sent through the pipe."""

    queue: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def main(endpoints: str, topic: str) -> None:
    """Run a member until the standard input ends."""
    out, encoder, ended = sys.stdout.buffer, msgspec.msgpack.Encoder(), threading.Event()

    def write(messages: list[PipedMessage]) -> None:
        frame = encoder.encode(messages)
        out.write(len(frame).to_bytes(4, "big") + frame)
        out.flush()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    with (
        connect(endpoints) as boom,
        boom.consumer(
            topic,
            group=GROUP,
            commit_every_s=COMMIT_EVERY_S,
            session_ms=SESSION_MS,
            heartbeat_ms=SESSION_MS // 3,
        ) as consumer,
    ):
        write([])
        sys.stdin.readline()
        threading.Thread(target=listen, daemon=True).start()
        while not ended.is_set():
            messages = consumer.poll(AT_ONCE, 0.2)
            if messages:
                write(
                    [
                        PipedMessage(m.queue, m.offset, m.key, m.value, m.timestamp_ms)
                        for m in messages
                    ]
                )
                consumer.ack(messages)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
