"""logboom itself, as one of the rivals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.load import chunks
from bench.rivals.process_tree import tree_cpu_s
from bench.rivals.rival import (
    MAX_TAKEN,
    WAIT_S,
    Rival,
    RivalClient,
    RivalFailed,
    pace_calls,
    polled,
    wait_for_each,
)
from logboom import __version__
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.wire.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from logboom.client import Producer

IN_FLIGHT: Final = 64
"""Calls of `send_many` in flight; the client itself bounds what is on the wire."""


class Logboom(Rival):
    """Name servers and brokers of this source tree."""

    name = "logboom"
    title = "logboom"
    codecs = ("none", "lz4")
    broker_counts = (1, 3)
    sends_singly = True

    def install(self) -> str:
        """Return the version; the project's own environment has everything."""
        return __version__

    @property
    def durability(self) -> str:
        """What an acknowledgement means."""
        return "on disk (fdatasync) on every in-sync replica; acks=all, idempotent"

    @property
    def python(self) -> Path:
        """The interpreter of the project."""
        return Path(sys.executable)

    def start(self, folder: Path, brokers: int) -> None:
        """Start one name server and the brokers."""
        try:
            self._cluster: Cluster | None = Cluster(1, brokers, data=folder)
        except StartError as error:
            raise RivalFailed(str(error)) from None

    @property
    def address(self) -> str:
        """The brokers' endpoints."""
        assert self._cluster is not None
        return ",".join(self._cluster.endpoints)

    def cpu_s(self) -> float:
        """The processor seconds of the name server and the brokers."""
        assert self._cluster is not None
        return tree_cpu_s([self._cluster.pid(node) for node in self._cluster.nodes])

    def close(self) -> None:
        """Kill the nodes."""
        cluster = getattr(self, "_cluster", None)
        if cluster is not None:
            for node in cluster.nodes:
                if cluster.running(node):
                    cluster.kill(node)
            cluster.close()
            self._cluster = None


class LogboomClient(RivalClient):
    """The client for threads."""

    def __init__(self, address: str) -> None:
        self._boom = connect(address)
        self._producers: dict[str, Producer] = {}

    def create(self, topic: str, replicas: int) -> None:
        """Create a topic with one queue; with three replicas, two have to be in sync."""
        self._boom.admin.create_topic(
            topic, queues=1, replicas=replicas, min_in_sync=min(replicas, 2)
        )

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._boom.admin.delete_topic(topic)

    def _producer(self, codec: str) -> Producer:
        if codec not in self._producers:
            self._producers[codec] = self._boom.producer(acks="all", compression=codec)
        return self._producers[codec]

    def produce(self, topic: str, values: Sequence[bytes], codec: str) -> None:
        """Send with `send_many`, 1,000 values a call."""
        producer = self._producer(codec)
        sent = (producer.send_many(topic, chunk, queue=0) for chunk in chunks(values))
        wait_for_each(sent, IN_FLIGHT)

    def produce_singly(self, topic: str, values: Sequence[bytes], codec: str) -> None:
        """Send with `send`, one value a call."""
        producer = self._producer(codec)
        send = producer.send
        last = None
        for value in values:
            last = send(topic, value, queue=0)
        producer.flush(WAIT_S)
        assert last is not None
        last.result(WAIT_S)

    def pace(self, topic: str, values: Sequence[bytes], interval_s: float) -> list[float]:
        """Send with `send`."""
        producer = self._producer("none")

        def send(value: bytes, acknowledged: Callable[[], None]) -> None:
            producer.send(topic, value, queue=0).add_done_callback(lambda _: acknowledged())

        return pace_calls(values, interval_s, send)

    def consume(
        self, topic: str, start: int, count: int, *, prompt: bool
    ) -> Generator[list[bytes], None, None]:
        """Read `Message` objects, and yield their values."""
        del prompt  # poll returns what has arrived
        with self._boom.consumer(topic, queues=[0]) as consumer:
            consumer.seek(topic, 0, start)

            def take(most: int, wait_s: float = 1.0) -> list[bytes]:
                messages = consumer.poll(min(MAX_TAKEN, most), timeout_s=wait_s)
                return [message.value or b"" for message in messages]

            yield from polled(take(MAX_TAKEN, 0.05), take, count)

    def close(self) -> None:
        """Disconnect."""
        self._boom.close(1.0)


RIVAL = Logboom
CLIENT = LogboomClient
