"""Redis Streams, with an append-only file that is synced before each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from bench.rivals.installs import find_program, version_of
from bench.rivals.rival import BATCH, LOOPBACK, MAX_TAKEN, AsyncRivalClient, polled
from bench.rivals.servers import ProcessRival, free_ports

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

FIRST: Final = b"0-0"
"""The id below all others."""


class RedisStreams(ProcessRival):
    """One Redis server."""

    name = "redis"
    title = "Redis Streams"
    left_out: ClassVar = {
        "three brokers": "its replication is asynchronous: WAIT counts replicas that have received, "
        "not stored, and a failover may lose what was acknowledged",
        "LZ4": "it has no compression of streams",
    }

    def install_servers(self) -> str:
        """Find the server."""
        self._program = find_program("redis-server", "redis-server")
        return version_of(self._program, r"v=(\S+)")

    @property
    def durability(self) -> str:
        """What an acknowledgement means."""
        return "on disk (fsync) of the one server: appendfsync always; XADD in pipelines of 1,000"

    def start(self, folder: Path, brokers: int) -> None:
        """Start the server, with its append-only file alone."""
        assert brokers == 1
        self.ports = free_ports(brokers)
        words = ["--bind", LOOPBACK, "--port", str(self.ports[0]), "--dir", str(folder)]
        words += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        folder.mkdir(parents=True, exist_ok=True)
        self.servers.start(folder / "redis.log", [self._program, *words])
        self.servers.wait_listening(*self.ports)


class RedisStreamsClient(AsyncRivalClient):
    """redis-py with hiredis: pipelines from a thread, and its asyncio client for a steady pace."""

    async def open(self) -> None:
        """Connect."""
        import redis
        import redis.asyncio

        self._redis: Any = redis.Redis(self.host, self.port)
        self._redis.ping()
        self._paced: Any = redis.asyncio.Redis(host=self.host, port=self.port)
        await self._paced.ping()
        self._last: dict[str, bytes] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, topic: str, replicas: int) -> None:
        """Do nothing: the first XADD creates a stream."""

    def delete(self, topic: str) -> None:
        """Delete a stream."""
        self._redis.delete(topic)

    def produce(self, topic: str, values: Sequence[bytes], codec: str) -> None:
        """Send XADD in pipelines of 1,000."""
        for at in range(0, len(values), BATCH):
            chunk = values[at : at + BATCH]
            pipeline = self._redis.pipeline(transaction=False)
            for value in chunk:
                pipeline.xadd(topic, {b"v": value})
            pipeline.execute()

    async def send(self, topic: str, value: bytes, acknowledged: Callable[[], None]) -> None:
        """Send one XADD beside those that wait, each on a connection of the pool."""

        async def add() -> None:
            await self._paced.xadd(topic, {b"v": value})
            acknowledged()

        self._tasks.add(task := self.loop.create_task(add()))
        task.add_done_callback(self._tasks.discard)

    def consume(
        self, topic: str, start: int, count: int, *, prompt: bool
    ) -> Generator[list[bytes], None, None]:
        """Read with XREAD from the last id that this client has seen."""
        del start, prompt  # a stream has ids in place of numbers, and XREAD returns what is there

        def take(most: int) -> list[bytes]:
            last = self._last.get(topic, FIRST)
            found = self._redis.xread({topic: last}, count=min(MAX_TAKEN, most), block=1000)
            entries = found[0][1] if found else []
            if entries:
                self._last[topic] = entries[-1][0]
            return [fields[b"v"] for _, fields in entries]

        return polled([], take, count)

    def close(self) -> None:
        """Disconnect."""
        self._redis.close()
        self.run(self._paced.aclose())


RIVAL = RedisStreams
CLIENT = RedisStreamsClient
