"""A member of the group in a process of its own: `python -m tests.chaos.group_member KIND … NAME`.

It leaves in good order when its standard input ends. What it is given it writes down before it says
what came of it, so that nothing is committed which no file tells of.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from logboom.client import Client, Message, connect
from logboom.client.fetch.retry_copies import place_of
from logboom.client.group_consumer import GroupConsumer
from logboom.client.push_consumer import PushConsumer
from logboom.wire.errors import GroupError, UnknownResource
from tests.chaos import fates
from tests.chaos.payload import parse, runs
from tests.chaos.record import RETRIES, Consumed, Fate, Writer, Wrong

GROUP: Final = "pilots"
KINDS: Final = ("pull", "push")
CONNECT_S: Final = 60.0
COMMIT_EVERY_S: Final = 0.5
LOOK_S: Final = 0.2
"""Between two looks at whether the group still takes the member."""
THREADS: Final = 3
BATCH: Final = 200
"""Messages that a listener gets at most."""
FAILURES: Final = 0.01
"""Share of what is handed out that fails."""
RETRY_MS: Final = 500
"""What fails comes again after so long."""
ATTEMPTS: Final = 3
"""What has failed so often is a dead letter."""
HOPELESS: Final = 997
"""Who pulls can do nothing with one message of so many of a stream, however often it comes."""
SAID: Final = {
    "out of the group": fates.OUT,
    "left without farewell": fates.UNHEARD,
}
"""Words of the client's log → what they say of the member."""
REPLACED: Final = "another process has joined"
"""What a static member hears that has a successor."""
NEVER: Final = ("given up", "does not exist", "does not take us back")
"""Words of the client's log that nobody may read whom nothing but faults befell."""


class Diary(logging.Handler):
    """What a member was given, and what became of it."""

    def __init__(self, name: str, folder: Path, topic: str, queues: int) -> None:
        super().__init__()
        self._name = name
        self._topic = topic
        self._queues = queues
        self._writer = Writer(folder / f"{name}.jsonl", at_once=True)
        self._writing = threading.Lock()
        self.rng = random.Random(name)
        self.consumer: GroupConsumer | PushConsumer | None = None
        self.unheard = False
        """Whether it left while nobody could hear it."""

    def given(self, messages: Sequence[Message], *, failed: bool) -> None:
        """Messages in a row, and whether they are to come again."""
        now = time.monotonic()
        topic, queue, offset = place_of(messages[0])
        try:
            values = [message.value or b"" for message in messages]
            found = runs(values, [message.key for message in messages], self._queues)
        except ValueError as error:
            self.wrong("reads were sent", f"{topic}/{queue} from {offset} on: {error}")
            return
        epoch = self._owner_epoch(topic, queue)
        number = queue if topic == self._topic else RETRIES
        with self._writing:
            for stream, first, count in found:
                self._writer.write(
                    Consumed(
                        self._name,
                        number,
                        epoch,
                        offset,
                        stream.producer,
                        stream.queue,
                        first,
                        count,
                        failed,
                        now,
                    )
                )
                offset += count

    def _owner_epoch(self, topic: str, queue: int) -> int:
        if self.consumer is None:
            return -1  # the listener of a consumer that is just being made
        try:
            return self.consumer.owner_epoch(topic, queue)
        except UnknownResource:
            return -1

    def became(self, what: str) -> None:
        """Something happened to the member."""
        with self._writing:
            self._writer.write(Fate(self._name, what, time.monotonic()))

    def wrong(self, name: str, detail: str) -> None:
        """What a member must never see."""
        with self._writing:
            self._writer.write(Wrong(self._name, name, detail, time.monotonic()))

    def emit(self, record: logging.LogRecord) -> None:
        """The client says something in its log."""
        text = record.getMessage()
        for words, what in SAID.items():
            if words in text:
                self.became(what)
                self.unheard = self.unheard or what == fates.UNHEARD
        if REPLACED in text:
            return
        if record.exc_info or any(words in text for words in NEVER):
            self.wrong("clients go on", text)


class MonotonicFormatter(logging.Formatter):
    """Lines with the time of the records."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return f"{time.monotonic():.3f} {super().format(record)}"


def stretches(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Messages that follow on each other where they were read."""
    some: list[Message] = []
    for message in messages:
        topic, queue, offset = place_of(message)
        if some and place_of(some[-1]) != (topic, queue, offset - 1):
            yield some
            some = []
        some.append(message)
    if some:
        yield some


def sorted_out(
    messages: Sequence[Message], rng: random.Random
) -> Iterator[tuple[list[Message], bool]]:
    """Messages in a row, and whether they fail."""
    unlucky = rng.random() < FAILURES
    for some in stretches(messages):
        last = some[-1]

        def fails(message: Message, last: Message = last) -> bool:
            number = parse(message.value or b"")[1]
            return number % HOPELESS == HOPELESS - 1 or (unlucky and message is last)

        for failed, part in groupby(some, fails):
            yield list(part), failed


def pull(client: Client, topic: str, diary: Diary, ended: threading.Event, how: Any) -> None:
    """Poll and acknowledge; now and then one message fails."""
    with client.consumer(topic, group=GROUP, **how) as consumer:
        diary.consumer = consumer
        begun(diary)
        while not ended.is_set():
            for some, failed in sorted_out(consumer.poll(500, 0.2), diary.rng):
                diary.given(some, failed=failed)
                if not failed:
                    consumer.ack(some)
                    continue
                for message in some:
                    consumer.nack(message)


def push(client: Client, topic: str, diary: Diary, ended: threading.Event, how: Any) -> None:
    """Have a listener called; now and then it fails."""

    def listener(messages: list[Message]) -> bool:
        failed = diary.rng.random() < FAILURES
        for some in stretches(messages):
            diary.given(some, failed=failed)
        return not failed

    with client.push_consumer(
        topic, group=GROUP, listener=listener, threads=THREADS, batch=BATCH, **how
    ) as consumer:
        diary.consumer = consumer
        begun(diary)
        while not ended.wait(LOOK_S):
            if consumer.error is not None:
                raise consumer.error


def begun(diary: Diary) -> None:
    """The member is in the group."""
    diary.became(fates.JOINED)
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main() -> int:
    """Run one member."""
    parser = argparse.ArgumentParser(prog="tests.chaos.group_member")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("name")
    parser.add_argument("--endpoints", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--queues", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--instance", default="")
    parser.add_argument("--session-ms", type=int, required=True)
    given = parser.parse_args()
    diary = Diary(given.name, given.folder, given.topic, given.queues)
    log = logging.getLogger("logboom.client")
    log.addHandler(diary)
    # For whoever studies a broken promise.
    spoken = logging.FileHandler(given.folder / f"{given.name}.txt")
    spoken.setFormatter(MonotonicFormatter())
    log.addHandler(spoken)
    log.setLevel(logging.INFO)
    log.propagate = False
    ended = threading.Event()
    how: dict[str, Any] = {
        "instance": given.instance,
        "session_ms": given.session_ms,
        "heartbeat_ms": given.session_ms // 8,
        "commit_every_s": COMMIT_EVERY_S,
        "retry": "exponential",
        "retry_first_ms": RETRY_MS,
        "max_attempts": ATTEMPTS,
    }

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    with connect(given.endpoints, timeout_s=CONNECT_S, client_id=given.name) as client:
        try:
            (pull if given.kind == "pull" else push)(client, given.topic, diary, ended, how)
        except GroupError as error:
            if error.code != "INSTANCE_TAKEN":
                raise
            return 0  # the name is another process's, and so are the queues
    if not diary.unheard:
        diary.became(fates.LEFT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
