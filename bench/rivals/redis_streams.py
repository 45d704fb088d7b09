"""Redis Streams, with an append-only file that is synced before each answer."""

from __future__ import annotations

import re
import subprocess
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bench.rivals.installs import find_program
from bench.rivals.rival import BATCH, LOOPBACK, MAX_TAKEN, WAIT_S, AsyncRivalClient, Rival
from bench.rivals.servers import ServerProcesses, free_port

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

FIRST: Final = b"0-0"
"""The id below all others."""


class RedisStreams(Rival):
    """One Redis server."""

    name = "redis"
    title = "Redis Streams"
    left_out: ClassVar = {
        "three brokers": "its replication is asynchronous: WAIT counts replicas that have received, "
        "not stored, and a failover may lose what was acknowledged",
        "LZ4": "it has no compression of streams",
    }

    def install(self) -> str:
        """Find the server, and fetch the client."""
        self._program = find_program("redis-server", "redis-server")
        self.cache.python()
        said = subprocess.run(
            [self._program, "--version"], capture_output=True, text=True, check=True
        )
        found = re.search(r"v=(\S+)", said.stdout)
        return found[1] if found else said.stdout.strip()

    @property
    def durability(self) -> str:
        """What an acknowledgement means."""
        return "on disk (fsync) of the one server: appendfsync always; XADD in pipelines of 1,000"

    @property
    def python(self) -> Path:
        """The interpreter that has redis-py and hiredis."""
        return self.cache.python()

    def start(self, folder: Path, brokers: int) -> None:
        """Start the server, with its append-only file alone."""
        assert brokers == 1
        self._servers = ServerProcesses()
        self._port = free_port()
        words = ["--bind", LOOPBACK, "--port", str(self._port), "--dir", str(folder)]
        words += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        folder.mkdir(parents=True, exist_ok=True)
        self._servers.start(folder / "redis.log", [self._program, *words])
        self._servers.wait_listening(self._port)

    @property
    def address(self) -> str:
        """The server's address."""
        return f"{LOOPBACK}:{self._port}"

    def cpu_s(self) -> float:
        """The processor seconds of the server."""
        return self._servers.cpu_s()

    def close(self) -> None:
        """Kill the server."""
        if hasattr(self, "_servers"):
            self._servers.close()


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
        yield []
        deadline = time.monotonic() + WAIT_S
        while True:
            last = self._last.get(topic, FIRST)
            found = self._redis.xread(
                {topic: last}, count=min(MAX_TAKEN, max(count, 1)), block=1000
            )
            if found:
                entries = found[0][1]
                self._last[topic] = entries[-1][0]
                yield [fields[b"v"] for _, fields in entries]
                count -= len(entries)
                deadline = time.monotonic() + WAIT_S
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{count} messages did not arrive")

    def close(self) -> None:
        """Disconnect."""
        self._redis.close()
        self.run(self._paced.aclose())


RIVAL = RedisStreams
CLIENT = RedisStreamsClient
