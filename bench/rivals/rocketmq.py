"""RocketMQ 5: a name server, and a broker with its proxy in one JVM, from the jars of Maven Central.

Its client for Python, of the same project, speaks gRPC to the proxy. It sends and acknowledges each
message by itself, and gets at most 32 at once.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bench.rivals.installs import find_java
from bench.rivals.rival import (
    LOOPBACK,
    WAIT_S,
    RivalClient,
    RivalFailed,
    pace_calls,
    polled,
    wait_for_each,
)
from bench.rivals.servers import ProcessRival, free_port, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

VERSION: Final = "5.3.3"
JARS: Final = tuple(
    f"org.apache.rocketmq:rocketmq-{part}:{VERSION}" for part in ("proxy", "namesrv")
)
JVM: Final = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
NAME_SERVER_JVM: Final = ("-Xms128m", "-Xmx128m")
SENDS_IN_FLIGHT: Final = 256
RECEIVES_IN_FLIGHT: Final = 4
ACKS_IN_FLIGHT: Final = 16
MAX_RECEIVED: Final = 32
"""Messages of one receive: the broker refuses more."""
LONG_POLL_S: Final = 1
INVISIBLE_S: Final = 60
CREATE_TOPIC: Final = 17
DELETE_TOPIC: Final = 215
NAME_SERVER: Final = """\
listenPort={port}
bindAddress={host}
"""
BROKER: Final = """\
brokerClusterName=bench
brokerName=bench
brokerId=0
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
brokerIP1={host}
bindAddress={host}
listenPort={port}
haListenPort={replication_port}
namesrvAddr={host}:{name_port}
storePathRootDir={folder}
storePathCommitLog={folder}/commitlog
autoCreateTopicEnable=false
"""


class Rocketmq(ProcessRival):
    """A name server, and a broker with its proxy."""

    name = "rocketmq"
    title = "RocketMQ"
    exposed_with = (1,)
    left_out: ClassVar = {
        "three brokers": "a queue with three replicas needs its controllers too; not built here",
        "LZ4": "its Python client does not compress",
    }

    def install_servers(self) -> str:
        """Fetch the jars."""
        self._java = find_java()
        self._jars = self.cache.jars(f"rocketmq-{VERSION}", JARS)
        return VERSION

    @property
    def durability(self) -> str:
        """What an acknowledgement means."""
        return "on disk (fsync) of the one broker: flushDiskType=SYNC_FLUSH"

    def start(self, folder: Path, brokers: int) -> None:
        """Start the name server, and the broker with its proxy."""
        assert brokers == 1
        folder.mkdir(parents=True, exist_ok=True)
        name_port, proxy_port, broker_port = free_ports(3)
        self.ports = [proxy_port, broker_port]
        env = {"ROCKETMQ_HOME": str(folder), "RMQ_PROXY_HOME": str(folder), "HOME": str(folder)}
        java = [self._java, "-cp", f"{self._jars}/*", f"-Duser.home={folder}"]
        names, broker, proxy = folder / "names.conf", folder / "broker.conf", folder / "proxy.json"
        names.write_text(NAME_SERVER.format(port=name_port, host=LOOPBACK))
        text = BROKER.format(
            host=LOOPBACK,
            port=broker_port,
            replication_port=free_port(),
            name_port=name_port,
            folder=folder / "store",
        )
        broker.write_text(text)
        settings = {
            "rocketMQClusterName": "bench",
            "proxyMode": "LOCAL",
            "grpcServerPort": proxy_port,
            "remotingListenPort": free_port(),
            "localServeAddr": LOOPBACK,
            "grpcClientConsumerMinLongPollingTimeoutMillis": 100,
        }
        proxy.write_text(json.dumps(settings))
        words = [*java, *NAME_SERVER_JVM, "org.apache.rocketmq.namesrv.NamesrvStartup"]
        self.servers.start(folder / "names.log", [*words, "-c", str(names)], env)
        self.servers.wait_listening(name_port)
        words = [*java, *JVM, "org.apache.rocketmq.proxy.ProxyStartup", "-pm", "local"]
        words += ["-n", f"{LOOPBACK}:{name_port}", "-pc", str(proxy), "-bc", str(broker)]
        self.servers.start(folder / "broker.log", words, env)
        self.servers.wait_listening(*self.ports)

    @property
    def address(self) -> str:
        """The addresses of the proxy and of the broker itself, where topics are created."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self.ports)


def remoting_frame(code: int, fields: dict[str, str]) -> bytes:
    """Return a request of RocketMQ's own protocol, which the proxy's gRPC has no words for."""
    head = {"code": code, "language": "OTHER", "version": 401, "opaque": 1, "flag": 0}
    encoded = json.dumps(head | {"extFields": fields}).encode()
    return struct.pack(">II", 4 + len(encoded), len(encoded)) + encoded


class RocketmqClient(RivalClient):
    """rocketmq-python-client: a producer, and a simple consumer for each topic."""

    def __init__(self, address: str) -> None:
        from rocketmq import ClientConfiguration, Credentials, Producer

        proxy, broker = address.split(",")
        host, _, port = broker.partition(":")
        self._broker = (host, int(port))
        self._config: Any = ClientConfiguration(proxy, Credentials(), request_timeout=int(WAIT_S))
        self._producer: Any = Producer(self._config)
        self._producer.startup()

    def _ask(self, code: int, fields: dict[str, str]) -> None:
        with socket.create_connection(self._broker, WAIT_S) as connection:
            connection.sendall(remoting_frame(code, fields))
            with connection.makefile("rb") as answer:
                _, size = struct.unpack(">II", answer.read(8))
                head = json.loads(answer.read(size & 0xFFFFFF))
        if head["code"] != 0:
            raise RivalFailed(f"the broker refuses: {head.get('remark')}")

    def create(self, topic: str, replicas: int) -> None:
        """Create a topic with one queue, unless it is there, and see that the proxy knows it.

        Raises:
            Exception: the proxy does not know it yet; the caller tries again.
        """
        from rocketmq import Producer

        fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "order": "false"}
        fields |= {"readQueueNums": "1", "writeQueueNums": "1", "topicSysFlag": "0"}
        fields |= {"topicFilterType": "SINGLE_TAG", "attributes": "+message.type=NORMAL"}
        self._ask(CREATE_TOPIC, fields)
        probe = Producer(self._config, (topic,))
        probe.startup()
        probe.shutdown()

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._ask(DELETE_TOPIC, {"topic": topic})

    def _send(self, topic: str, value: bytes) -> Future[Any]:
        from rocketmq import Message

        message = Message()
        message.topic = topic
        message.body = value
        sent: Future[Any] = self._producer.send_async(message)
        return sent

    def produce(self, topic: str, values: Sequence[bytes], codec: str) -> None:
        """Send with `send_async`, one value a call."""
        wait_for_each((self._send(topic, value) for value in values), SENDS_IN_FLIGHT)

    def pace(self, topic: str, values: Sequence[bytes], interval_s: float) -> list[float]:
        """Send with `send_async`."""

        def send(value: bytes, acknowledged: Callable[[], None]) -> None:
            def note(future: Future[Any]) -> None:
                future.result()
                acknowledged()

            self._send(topic, value).add_done_callback(note)

        return pace_calls(values, interval_s, send)

    def consume(
        self, topic: str, start: int, count: int, *, prompt: bool
    ) -> Generator[list[bytes], None, None]:
        """Receive and acknowledge; the group of the topic knows where it was."""
        del start, prompt  # a group has its position, and a receive returns what is there
        from rocketmq import FilterExpression, SimpleConsumer
        from rocketmq.v5.exception import InternalErrorException

        wanted = {topic: FilterExpression()}
        consumer = SimpleConsumer(
            self._config, f"group-{topic}", wanted, await_duration=LONG_POLL_S
        )
        consumer.startup()
        acknowledging: list[Future[Any]] = []
        # Its ack_async returns nothing, so that nobody would learn whether it failed.
        pool = ThreadPoolExecutor(ACKS_IN_FLIGHT)
        receives = deque(self._receive(consumer) for _ in range(RECEIVES_IN_FLIGHT))

        def take(_: int) -> list[bytes]:
            try:
                messages = receives.popleft().result(WAIT_S) or []
            except InternalErrorException:
                # The proxy fails so until it has the consumer's settings, of which it says nothing.
                messages = []
                time.sleep(0.005)  # no event tells that the proxy has the settings
            receives.append(self._receive(consumer))
            acknowledging.extend(pool.submit(consumer.ack, each) for each in messages)
            return [message.body for message in messages]

        try:
            yield from polled([], take, count)
        finally:
            # Those that still wait would take messages that the next consumer is to have.
            for future in [*acknowledging, *receives]:
                future.result(WAIT_S)
            pool.shutdown()
            consumer.shutdown()

    @staticmethod
    def _receive(consumer: Any) -> Future[Any]:
        received: Future[Any] = consumer.receive_async(MAX_RECEIVED, INVISIBLE_S)
        return received

    def close(self) -> None:
        """Disconnect."""
        self._producer.shutdown()


RIVAL = Rocketmq
CLIENT = RocketmqClient
