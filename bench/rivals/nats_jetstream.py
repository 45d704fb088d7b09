"""NATS JetStream, with `sync_interval: always`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bench.rivals.installs import find_program, version_of
from bench.rivals.rival import LOOPBACK, WAIT_S, AsyncRivalClient, RivalUnavailable
from bench.rivals.servers import ProcessRival, free_ports

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

MODULE: Final = "github.com/nats-io/nats-server/v2@v2.12.2"
VERSION: Final = r"v(\d[\w.+-]*)"
SYNCS_SINCE: Final = (2, 10)
"""The first version that has `sync_interval: always`."""
IN_FLIGHT: Final = 4_000
"""Messages on their way: what the client allows by default."""
SETTINGS: Final = """\
server_name: {name}
host: {host}
port: {port}
jetstream {{
  store_dir: "{folder}"
  {sync}
}}
"""
CLUSTER: Final = """\
cluster {{
  name: bench
  host: {host}
  port: {port}
  routes: [{routes}]
}}
"""


class NatsJetStream(ProcessRival):
    """Servers of NATS with JetStream."""

    name = "nats"
    title = "NATS JetStream"
    broker_counts = (1, 3)
    left_out: ClassVar = {
        "LZ4": "it compresses stored blocks with S2 alone, and clients send plain bytes"
    }

    def install_servers(self) -> str:
        """Find a server that can sync each message, or build one; else take what there is."""
        try:
            self._program = find_program("nats-server", "nats-server")
            self._version = version_of(self._program, VERSION)
        except RivalUnavailable:
            self._program, self._version = "", ""
        if not self._syncs:
            try:
                self._program = str(self.cache.go_program("nats-server", MODULE))
                self._version = version_of(self._program, VERSION)
            except RivalUnavailable:
                if not self._program:
                    raise
        return self._version

    @property
    def _syncs(self) -> bool:
        """True if the server can sync before it acknowledges."""
        return tuple(int(part) for part in re.findall(r"\d+", self._version)[:2]) >= SYNCS_SINCE

    @property
    def durability(self) -> str:
        """What an acknowledgement means."""
        if self._syncs:
            return "on disk (fsync) on a majority of the replicas: sync_interval: always"
        return (
            f"NOT synced: version {self._version} has no sync_interval: always (2.10 and newer do)"
        )

    def start(self, folder: Path, brokers: int) -> None:
        """Start the servers."""
        self.ports = free_ports(brokers)
        routes = free_ports(brokers)
        for number, port in enumerate(self.ports):
            home = folder / f"nats-{number + 1}"
            home.mkdir(parents=True)
            text = SETTINGS.format(
                name=home.name,
                host=LOOPBACK,
                port=port,
                folder=home / "data",
                sync="sync_interval: always" if self._syncs else "",
            )
            if brokers > 1:
                listed = ", ".join(f'"nats://{LOOPBACK}:{route}"' for route in routes)
                text += CLUSTER.format(host=LOOPBACK, port=routes[number], routes=listed)
            (home / "nats.conf").write_text(text, "utf-8")
            self.servers.start(home / "nats.log", [self._program, "-c", str(home / "nats.conf")])
        self.servers.wait_listening(*self.ports)


class NatsJetStreamClient(AsyncRivalClient):
    """nats-py, which is for asyncio."""

    async def open(self) -> None:
        """Connect."""
        import nats

        self._nats: Any = await nats.connect(f"nats://{self.host}:{self.port}")
        self._stream: Any = self._nats.jetstream(
            timeout=WAIT_S, publish_async_max_pending=IN_FLIGHT
        )

    def create(self, topic: str, replicas: int) -> None:
        """Create a stream in files, with one subject."""
        self.run(self._stream.add_stream(name=topic, subjects=[topic], num_replicas=replicas))

    def delete(self, topic: str) -> None:
        """Delete a stream."""
        self.run(self._stream.delete_stream(topic))

    def produce(self, topic: str, values: Sequence[bytes], codec: str) -> None:
        """Send with `publish_async`, and wait for every acknowledgement."""
        self.run(self._produce(topic, values))

    async def _produce(self, topic: str, values: Sequence[bytes]) -> None:
        import asyncio

        publish = self._stream.publish_async
        sent = [await publish(topic, value, wait_stall=WAIT_S) for value in values]
        await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)

    async def send(self, topic: str, value: bytes, acknowledged: Callable[[], None]) -> None:
        """Send one message."""
        future = await self._stream.publish_async(topic, value)

        def note(future: asyncio.Future[object]) -> None:
            future.result()
            acknowledged()

        future.add_done_callback(note)

    def consume(
        self, topic: str, start: int, count: int, *, prompt: bool
    ) -> Generator[list[bytes], None, None]:
        """Take what an ordered push consumer delivers."""
        del count, prompt  # a callback gets each message as it arrives
        from nats.js.api import ConsumerConfig, DeliverPolicy

        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=start + 1
        )

        async def attach(note: Callable[[bytes], None]) -> Any:
            async def take(message: Any) -> None:
                note(message.data)

            subscription = await self._stream.subscribe(
                topic, stream=topic, cb=take, ordered_consumer=True, config=config
            )
            return subscription.unsubscribe

        return self.delivered(attach)

    def close(self) -> None:
        """Disconnect."""
        self.run(self._nats.close())


RIVAL = NatsJetStream
CLIENT = NatsJetStreamClient
