"""A consumer of a subscription in a process of its own: `python -m tests.chaos.subscriber TYPE … NAME`.

It leaves in good order when its standard input ends. What it is handed it writes down before it
settles it, and now and then which of its acknowledgements the brokers have confirmed.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from logboom.client import Message, connect
from logboom.client.subscription_consumer import SubscriptionConsumer
from logboom.wire.errors import GroupError, RetryableError, TimedOut
from tests.chaos.group_member import CONNECT_S, stretches
from tests.chaos.payload import runs
from tests.chaos.record import Confirmed, Handed, Record, TooLate, Writer, Wrong

TYPES: Final = ("shared", "key_shared")
"""Each is the type of one subscription, and its name."""
FAILURES: Final = 0.01
"""Share of what is handed out that is given back."""
AGAIN_S: Final = 0.5
"""What is given back comes again after so long."""
REFUSED: Final = "not settled"
"""In the client's log: acknowledgements that came too late."""
FLUSH_EVERY_S: Final = 0.5
FLUSH_S: Final = 2.0
"""Seconds that confirmations are waited for; then what there is goes on."""


class Diary(logging.Handler):
    """What a consumer was handed, and what was confirmed to it."""

    def __init__(self, name: str, subscription: str, folder: Path, queues: int) -> None:
        super().__init__()
        self._name = name
        self._subscription = subscription
        self._queues = queues
        self._writer = Writer(folder / f"{name}.jsonl", at_once=True)
        self._flushed_at = 0.0
        self._writing = threading.Lock()

    def _write(self, record: Record) -> None:
        with self._writing:
            self._writer.write(record)

    def emit(self, record: logging.LogRecord) -> None:
        """The client says something in its log."""
        if REFUSED in record.msg and isinstance(record.args, tuple):
            _, queue, spans = record.args
            assert isinstance(queue, int)
            assert isinstance(spans, list)
            self._write(TooLate(self._name, queue, spans, time.monotonic()))

    def handed(self, messages: Sequence[Message], *, failed: bool) -> None:
        """Messages in a row, and whether they are given back."""
        now, queue, offset = time.monotonic(), messages[0].queue, messages[0].offset
        try:
            values = [message.value or b"" for message in messages]
            found = runs(values, [message.key for message in messages], self._queues)
        except ValueError as error:
            detail = f"queue {queue} from {offset} on: {error}"
            self._write(Wrong(self._name, "reads were sent", detail, now))
            return
        for stream, first, count in found:
            place = (queue, offset, *stream, first, count)
            self._write(Handed(self._name, self._subscription, *place, failed, now))
            offset += count

    def confirm(self, consumer: SubscriptionConsumer) -> None:
        """Have acknowledgements confirmed, if it is time."""
        begun = time.monotonic()
        if begun < self._flushed_at + FLUSH_EVERY_S:
            return
        self._flushed_at = begun
        try:
            consumer.flush(FLUSH_S)
        except TimedOut:
            return  # as long as faults are in force
        except GroupError as error:
            if error.code != "ACK_REFUSED":
                raise
            # `emit` was told which; all others are confirmed.
        self._write(Confirmed(self._name, begun, time.monotonic()))


def consume(
    consumer: SubscriptionConsumer, diary: Diary, name: str, ended: threading.Event
) -> None:
    """Take and acknowledge; now and then some are given back."""
    rng = random.Random(name)
    while not ended.is_set():
        try:
            taken = consumer.poll(500, 0.2)
        except RetryableError:
            continue
        for some in stretches(taken):
            failed = rng.random() < FAILURES
            diary.handed(some, failed=failed)
            if failed:
                consumer.nack(some, AGAIN_S)
            else:
                consumer.ack(some)
        diary.confirm(consumer)


def main() -> int:
    """Run one consumer."""
    parser = argparse.ArgumentParser(prog="tests.chaos.subscriber")
    parser.add_argument("type", choices=TYPES)
    parser.add_argument("name")
    parser.add_argument("--endpoints", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--queues", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--session-ms", type=int, required=True)
    given = parser.parse_args()
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    diary = Diary(given.name, given.type, given.folder, given.queues)
    log = logging.getLogger("logboom.client")
    log.addHandler(diary)
    log.setLevel(logging.INFO)
    log.propagate = False
    with (
        connect(given.endpoints, timeout_s=CONNECT_S, client_id=given.name) as client,
        client.subscribe(
            given.topic,
            subscription=given.type,
            type=given.type,
            name=given.name,
            start="first",
            session_ms=given.session_ms,
        ) as consumer,
    ):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        consume(consumer, diary, given.name, ended)
    return 0


if __name__ == "__main__":
    sys.exit(main())
