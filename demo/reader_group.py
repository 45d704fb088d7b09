"""The demo's group: three members in processes of their own, one of which is killed."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
from collections.abc import Sequence
from threading import Thread
from typing import IO, Final, Self

import msgspec

from demo import reader_member
from demo.reader_member import PipedMessage
from logboom.wire.errors import TimedOut

MEMBERS: Final = 3
JOIN_S: Final = 30.0
"""Seconds that a member has to start and join."""
LEAVE_S: Final = 10.0
FRAMES: Final = 64
"""Frames of one member that are queued here before its pipe fills and it waits."""


class DemoGroup:
    """Three members, and one stream of the messages that they read.

    A member that is killed has read more than it has committed, and another member reads that
    again. Each queue is reassembled here by its offsets. Repeated messages are counted and left
    out.
    """

    def __init__(self, endpoints: Sequence[str], topic: str) -> None:
        self.again = 0
        """Messages that were read again because the killed member had not committed them."""
        self.next: dict[int, int] = {}
        """The next expected offset by queue."""
        self._early: dict[int, dict[int, PipedMessage]] = {}
        self._frames: queue.Queue[list[PipedMessage]] = queue.Queue(FRAMES)
        self._joined: queue.Queue[None] = queue.Queue()
        words = [sys.executable, reader_member.__file__, ",".join(endpoints), topic]
        self._members = [
            subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            for _ in range(MEMBERS)
        ]
        self._threads = [
            Thread(target=self._listen, args=(member.stdout,), daemon=True)
            for member in self._members
        ]

    def start(self) -> None:
        """Wait until all members have joined, and let them read.

        Raises:
            TimedOut: a member did not join in time.
        """
        for thread in self._threads:
            thread.start()
        for _ in self._members:
            try:
                self._joined.get(timeout=JOIN_S)
            except queue.Empty:
                text = f"a member of the demo's group did not join within {JOIN_S:.0f} s"
                raise TimedOut(text) from None
        for member in self._members:
            if member.stdin is not None:
                member.stdin.write(b"go\n")
                member.stdin.flush()

    def kill(self) -> int:
        """Kill one member with SIGKILL, and return its process id."""
        victim = self._members[0]
        victim.kill()
        victim.wait()
        return victim.pid

    def poll(self, timeout_s: float) -> list[PipedMessage]:
        """Return the next messages, each queue in offset order and without repetitions."""
        try:
            frame = self._frames.get(timeout=timeout_s)
        except queue.Empty:
            return []
        found: list[PipedMessage] = []
        for message in frame:
            wanted = self.next.get(message.queue, 0)
            early = self._early.setdefault(message.queue, {})
            if message.offset < wanted or message.offset in early:
                self.again += 1
                continue
            early[message.offset] = message
            while (following := early.pop(wanted, None)) is not None:
                found.append(following)
                wanted += 1
            self.next[message.queue] = wanted
        return found

    def _listen(self, pipe: IO[bytes]) -> None:
        decode = msgspec.msgpack.Decoder(list[PipedMessage]).decode
        first = True
        while len(head := pipe.read(4)) == 4:
            size = int.from_bytes(head, "big")
            frame = pipe.read(size)
            if len(frame) < size:
                return  # the member was killed in the middle of a frame
            if first:
                first = False
                self._joined.put(None)
            else:
                self._frames.put(decode(frame))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            if member.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # the killed member's
                    member.stdin.close()
        for member in self._members:
            try:
                member.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()
            if member.stdout is not None:
                member.stdout.close()
