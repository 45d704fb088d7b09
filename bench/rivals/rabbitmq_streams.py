"""Streams of RabbitMQ, which acknowledge from memory: the page cache alone holds what is confirmed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bench.rivals.installs import find_program
from bench.rivals.rival import BATCH, LOOPBACK, WAIT_S, AsyncRivalClient
from bench.rivals.servers import ProcessRival, free_port, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

USER: Final = "guest"
BATCHES_IN_FLIGHT: Final = 10
SETTINGS: Final = """\
listeners.tcp = none
stream.listeners.tcp.1 = {host}:{port}
stream.advertised_host = {host}
stream.advertised_port = {port}
log.console = true
log.console.level = warning
cluster_formation.peer_discovery_backend = classic_config
"""
MEMBER: Final = "cluster_formation.classic_config.nodes.{number} = {node}\n"


class RabbitmqStreams(ProcessRival):
    """Nodes of RabbitMQ with the stream plugin."""

    name = "rabbitmq"
    title = "RabbitMQ streams"
    broker_counts = (1, 3)
    # Its nodes listen for the replication of streams on all addresses.
    exposed_with = (3,)
    left_out: ClassVar = {"LZ4": "its Python client compresses with gzip alone"}

    def install_servers(self) -> str:
        """Find the server."""
        self._program = find_program("rabbitmq-server", "rabbitmq-server")
        # The script of Debian in PATH changes to the user rabbitmq; the one behind it does not.
        behind = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        if behind.exists():
            self._program = str(behind)
        self._epmd = find_program("epmd", "erlang-base")
        return self._installed_version()

    @staticmethod
    def _installed_version() -> str:
        query = shutil.which("dpkg-query")
        if query is None:
            return ""
        words = [query, "-W", "-f", "${Version}", "rabbitmq-server"]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        return re.split(r"[-+]", said)[0]

    @property
    def durability(self) -> str:
        """What an acknowledgement means."""
        return "NOT synced: streams have no fsync; it is in the page cache of a majority of the replicas"

    def start(self, folder: Path, brokers: int) -> None:
        """Start nodes of their own names, with a port mapper of their own."""
        self.ports = free_ports(brokers)
        mapper = free_port()
        common = {"ERL_EPMD_ADDRESS": LOOPBACK, "ERL_EPMD_PORT": str(mapper)}
        self.servers.start(folder / "epmd.log", [self._epmd], common)
        self.servers.wait_listening(mapper)
        nodes = [f"bench{port}@localhost" for port in self.ports]
        for node, port in zip(nodes, self.ports, strict=True):
            home = folder / node
            home.mkdir(parents=True)
            cookie = home / ".erlang.cookie"
            cookie.write_text("bench")
            cookie.chmod(0o400)
            text = SETTINGS.format(host=LOOPBACK, port=port)
            text += "".join(MEMBER.format(number=at, node=each) for at, each in enumerate(nodes, 1))
            (home / "rabbitmq.conf").write_text(text)
            (home / "enabled_plugins").write_text("[rabbitmq_stream].\n")
            env = {
                "HOME": str(home),
                "RABBITMQ_NODENAME": node,
                "RABBITMQ_DIST_PORT": str(free_port()),
                "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
                "RABBITMQ_CONF_ENV_FILE": str(home / "none.conf"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
                "RABBITMQ_MNESIA_BASE": str(home / "data"),
                "RABBITMQ_LOG_BASE": str(home / "log"),
                "RABBITMQ_PID_FILE": str(home / "pid"),
                # Idle schedulers that spin would take the cores of the others.
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                    "-kernel inet_dist_use_interface {127,0,0,1} "
                    "+sbwt none +sbwtdcpu none +sbwtdio none"
                ),
            }
            self.servers.start(home / "rabbitmq.log", [self._program], common | env)
        self.servers.wait_listening(*self.ports)


class RabbitmqStreamsClient(AsyncRivalClient):
    """rstream, which is for asyncio; messages are bare bytes, its fastest form."""

    async def open(self) -> None:
        """Connect."""
        import rstream

        self._producer: Any = rstream.Producer(self.host, self.port, username=USER, password=USER)
        await self._producer.start()

    def create(self, topic: str, replicas: int) -> None:
        """Create a stream."""
        size = {"initial-cluster-size": str(replicas)}
        self.run(self._producer.create_stream(topic, arguments=size))

    def delete(self, topic: str) -> None:
        """Delete a stream."""
        self.run(self._producer.delete_stream(topic))

    def produce(self, topic: str, values: Sequence[bytes], codec: str) -> None:
        """Send with `send_batch`, 1,000 values a call, and wait for every confirmation."""
        self.run(self._produce(topic, values))

    async def _produce(self, topic: str, values: Sequence[bytes]) -> None:
        import asyncio

        progress = asyncio.Condition()
        confirmed = sent = 0

        async def note(status: Any) -> None:
            nonlocal confirmed
            if not status.is_confirmed:
                raise ConnectionError(f"refused: {status.response_code}")
            confirmed += 1
            if confirmed % BATCH == 0 or confirmed == len(values):
                async with progress:
                    progress.notify_all()

        async def wait_for(count: int) -> None:
            async with progress:
                await asyncio.wait_for(progress.wait_for(lambda: confirmed >= count), WAIT_S)

        for at in range(0, len(values), BATCH):
            chunk = values[at : at + BATCH]
            await self._producer.send_batch(topic, chunk, on_publish_confirm=note)
            sent += len(chunk)
            await wait_for(sent - BATCHES_IN_FLIGHT * BATCH)
        await wait_for(len(values))

    async def send(self, topic: str, value: bytes, acknowledged: Callable[[], None]) -> None:
        """Send a batch of one message."""

        async def note(status: Any) -> None:
            if status.is_confirmed:
                acknowledged()

        await self._producer.send_batch(topic, [value], on_publish_confirm=note)

    def consume(
        self, topic: str, start: int, count: int, *, prompt: bool
    ) -> Generator[list[bytes], None, None]:
        """Take what the server delivers."""
        del count, prompt  # a callback gets each message as it arrives
        import rstream

        consumer = rstream.Consumer(self.host, self.port, username=USER, password=USER)
        offset = rstream.ConsumerOffsetSpecification(rstream.OffsetType.OFFSET, start)

        async def attach(note: Callable[[bytes], None]) -> Any:
            async def take(message: bytes, _: object) -> None:
                note(message)

            await consumer.start()
            await consumer.subscribe(topic, take, offset_specification=offset)
            return consumer.close

        return self.delivered(attach)

    def close(self) -> None:
        """Disconnect."""
        self.run(self._producer.close())


RIVAL = RabbitmqStreams
CLIENT = RabbitmqStreamsClient
