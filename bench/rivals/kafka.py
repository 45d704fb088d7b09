"""Kafka 4.1 in KRaft mode, from the jars of Maven Central; its client is librdkafka."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, Final

from bench.rivals.installs import find_java
from bench.rivals.rival import (
    LOOPBACK,
    MAX_TAKEN,
    WAIT_S,
    RivalClient,
    RivalFailed,
    pace_calls,
    polled,
)
from bench.rivals.servers import ProcessRival, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

VERSION: Final = "4.1.1"
JARS: Final = (f"org.apache.kafka:kafka_2.13:{VERSION}",)
CLUSTER_ID: Final = "bG9nYm9vbS1yaXZhbHMtMQ"
JVM: Final = [
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
"""The options of Kafka's own start script."""
SETTINGS: Final = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}
log.flush.interval.messages=1
min.insync.replicas={in_sync}
auto.create.topics.enable=false
offsets.topic.replication.factor={brokers}
transaction.state.log.replication.factor={brokers}
transaction.state.log.min.isr={in_sync}
share.coordinator.state.topic.replication.factor={brokers}
share.coordinator.state.topic.min.isr={in_sync}
"""


class Kafka(ProcessRival):
    """Brokers that are controllers too, each in a JVM of its own."""

    name = "kafka"
    title = "Kafka"
    codecs = ("none", "lz4")
    broker_counts = (1, 3)

    def install_servers(self) -> str:
        """Fetch the jars."""
        self._java = find_java()
        self._jars = self.cache.jars(f"kafka-{VERSION}", JARS)
        return VERSION

    @property
    def durability(self) -> str:
        """What an acknowledgement means."""
        return (
            "on disk (fsync) on every in-sync replica: log.flush.interval.messages=1; "
            "acks=all, idempotent, linger 5 ms (0 for latency)"
        )

    def start(self, folder: Path, brokers: int) -> None:
        """Format the brokers' folders, and start them."""
        self.ports = free_ports(brokers)
        controllers = free_ports(brokers)
        voters = ",".join(f"{n}@{LOOPBACK}:{port}" for n, port in enumerate(controllers, 1))
        path = ["-cp", f"{self._jars}/*"]
        for node, (port, controller) in enumerate(zip(self.ports, controllers, strict=True), 1):
            home = folder / f"kafka-{node}"
            home.mkdir(parents=True)
            config = home / "server.properties"
            text = SETTINGS.format(
                node=node,
                voters=voters,
                host=LOOPBACK,
                port=port,
                controller_port=controller,
                folder=home / "data",
                brokers=brokers,
                in_sync=min(brokers, 2),
            )
            config.write_text(text, "utf-8")
            words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
            done = subprocess.run(
                [self._java, *path, *words], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise RivalFailed(f"its storage cannot be formatted: {done.stdout}{done.stderr}")
            self.servers.start(
                home / "server.log", [self._java, *JVM, *path, "kafka.Kafka", str(config)]
            )
        self.servers.wait_listening(*self.ports)

    @property
    def address(self) -> str:
        """The brokers' addresses."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self.ports)


class KafkaClient(RivalClient):
    """confluent-kafka, which is librdkafka in C with a thin layer of Python."""

    def __init__(self, address: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._servers = {"bootstrap.servers": address}
        self._admin: Any = AdminClient(self._servers)
        self._producers: dict[tuple[str, int], Any] = {}

    def create(self, topic: str, replicas: int) -> None:
        """Create a topic with one partition."""
        from confluent_kafka.admin import NewTopic

        made = self._admin.create_topics([NewTopic(topic, 1, replicas)], request_timeout=10)
        made[topic].result(WAIT_S)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._admin.delete_topics([topic])[topic].result(WAIT_S)

    def _producer(self, codec: str, linger_ms: int) -> Any:
        from confluent_kafka import Producer

        if (codec, linger_ms) not in self._producers:
            settings = {
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": 2_000_000,
                "queue.buffering.max.kbytes": 2_000_000,
                # Successes are counted by `flush`; a callback for each would cost more than sending.
                "delivery.report.only.error": linger_ms > 0,
            }
            self._producers[codec, linger_ms] = Producer(self._servers | settings)
        return self._producers[codec, linger_ms]

    def produce(self, topic: str, values: Sequence[bytes], codec: str) -> None:
        """Send with `produce`, one value a call, as the client has it, with a linger of 5 ms."""
        producer = self._producer(codec, 5)
        failed: list[object] = []

        def note(error: object, _: object) -> None:
            failed.append(error)

        produce = producer.produce
        for number, value in enumerate(values):
            produce(topic, value, partition=0, on_delivery=note)
            if not number & 0xFFF:
                producer.poll(0)
        left = producer.flush(WAIT_S)
        if left or failed:
            raise TimeoutError(f"{left} messages are not acknowledged; errors: {failed[:1]}")

    def pace(self, topic: str, values: Sequence[bytes], interval_s: float) -> list[float]:
        """Send without linger; callbacks run while the client is polled."""
        producer = self._producer("none", 0)

        def send(value: bytes, acknowledged: Callable[[], None]) -> None:
            def note(error: object, _: object) -> None:
                if error is None:
                    acknowledged()

            producer.produce(topic, value, partition=0, on_delivery=note)

        return pace_calls(values, interval_s, send, producer.poll)

    def consume(
        self, topic: str, start: int, count: int, *, prompt: bool
    ) -> Generator[list[bytes], None, None]:
        """Take lists of messages with `consume`, or one at a time with `poll` if prompt."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        settings = {"group.id": "bench", "enable.auto.commit": False}
        consumer = Consumer(self._servers | settings)

        def values_of(messages: Sequence[Any]) -> list[bytes]:
            if error := next(filter(None, (message.error() for message in messages)), None):
                raise KafkaException(error)
            return [message.value() for message in messages]

        def poll(wait_s: float) -> list[bytes]:
            one = consumer.poll(wait_s)
            return [] if one is None else values_of([one])

        def take(left: int) -> list[bytes]:
            if prompt:
                return poll(1.0)
            # It waits until it has as many, or the time is over.
            return values_of(consumer.consume(min(MAX_TAKEN, left), 1.0))

        try:
            consumer.assign([TopicPartition(topic, 0, start)])
            yield from polled(poll(0.2), take, count)
        finally:
            consumer.close()

    def close(self) -> None:
        """Disconnect."""
        self._producers.clear()


RIVAL = Kafka
CLIENT = KafkaClient
