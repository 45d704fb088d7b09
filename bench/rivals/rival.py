"""What the harness asks of each rival: servers that it starts and ends, and a client.

A rival's module has one class of each kind, named by `RIVAL` and `CLIENT`. The client runs in a process
of its own with the Python of the cache, so this module and the modules of rivals import nothing but
the standard library at their top.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, TypeVar

    from bench.rivals.installs import Cache

    T = TypeVar("T")

LOOPBACK: Final = "127.0.0.1"
BATCH: Final = 1_000
"""Messages of one call, where a client sends several with one."""
MAX_TAKEN: Final = 10_000
"""Messages that a consumer takes at once, where its client has a limit."""
WAIT_S: Final = 20.0
"""Seconds without an acknowledgement or a message after which a client gives up."""


class RivalUnavailable(Exception):
    """Something that a rival needs is not on this machine; the text names it and the remedy."""


class RivalFailed(Exception):
    """A rival's server or client failed; the text says where its log is."""


class WaitableFuture(Protocol):
    """What one call of a client returns, if its result can be waited for."""

    def result(self, timeout_s: float, /) -> object:
        """Wait, and raise the call's error if it failed."""


class Rival(ABC):
    """The servers of one rival on this machine."""

    name: ClassVar[str]
    """The name on the command line and in the JSON."""
    title: ClassVar[str]
    """The name in tables and plots."""
    codecs: ClassVar[tuple[str, ...]] = ("none",)
    broker_counts: ClassVar[tuple[int, ...]] = (1,)
    sends_singly: ClassVar[bool] = False
    """True if `produce` takes whole columns, and `produce_singly` one message a call."""
    exposed_with: ClassVar[tuple[int, ...]] = ()
    """The numbers of brokers with which its servers listen on all addresses of the machine."""
    left_out: ClassVar[Mapping[str, str]] = {}
    """What is not measured of it, and why."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    @property
    @abstractmethod
    def durability(self) -> str:
        """What has happened to a message when it is acknowledged, and the settings for it."""

    @abstractmethod
    def install(self) -> str:
        """Fetch into the cache what is not there yet, and return the version.

        Raises:
            RivalUnavailable: something is needed that the harness does not install.
        """

    @property
    @abstractmethod
    def python(self) -> Path:
        """The interpreter of its client."""

    @abstractmethod
    def start(self, folder: Path, brokers: int) -> None:
        """Start the servers with their data in `folder`, and wait until they listen.

        Raises:
            RivalFailed: a server did not start.
        """

    @property
    @abstractmethod
    def address(self) -> str:
        """The servers' address for the client."""

    @abstractmethod
    def cpu_s(self) -> float:
        """The processor seconds of all servers so far."""

    @abstractmethod
    def close(self) -> None:
        """End the servers. A second call does nothing."""


class RivalClient(ABC):
    """The client of one rival, in a process of its own: one queue, one producer, one consumer."""

    @abstractmethod
    def __init__(self, address: str) -> None:
        """Connect."""

    @abstractmethod
    def create(self, topic: str, replicas: int) -> None:
        """Create a topic with one queue."""

    @abstractmethod
    def delete(self, topic: str) -> None:
        """Delete a topic."""

    @abstractmethod
    def produce(self, topic: str, values: Sequence[bytes], codec: str) -> None:
        """Send all values in bulk, and return when every one is acknowledged."""

    def produce_singly(self, topic: str, values: Sequence[bytes], codec: str) -> None:
        """Send all values with one call for each, and return when every one is acknowledged."""
        self.produce(topic, values, codec)

    @abstractmethod
    def pace(self, topic: str, values: Sequence[bytes], interval_s: float) -> list[float]:
        """Send one value each `interval_s`, stamped, and return ms until each acknowledgement."""

    @abstractmethod
    def consume(
        self, topic: str, start: int, count: int, *, prompt: bool
    ) -> Generator[list[bytes], None, None]:
        """Yield the values of a topic as they arrive, from the one with number `start`.

        The first list may be empty; it says that the consumer waits at its position.

        Args:
            count: The number of values after which the caller stops.
            prompt: True if each value is wanted as soon as it is there; False if throughput counts.
        """

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


def stamped(value: bytes) -> bytes:
    """Return the value with the monotonic time, in ns, in place of its first 8 bytes."""
    return time.monotonic_ns().to_bytes(8, "little") + value[8:]


def age_ms(value: bytes, now_ns: int) -> float:
    """Return the ms since a value was stamped."""
    return (now_ns - int.from_bytes(value[:8], "little")) / 1e6


def pace_calls(
    values: Sequence[bytes],
    interval_s: float,
    send: Callable[[bytes, Callable[[], None]], None],
    idle: Callable[[float], object] = time.sleep,
) -> list[float]:
    """Send one value each interval from this thread; `send` returns before the acknowledgement.

    Args:
        values: What to send; each is stamped first.
        interval_s: Seconds between two values.
        send: Sends a value, and calls its second argument when it is acknowledged.
        idle: Waits up to so many seconds; a client that needs polling does it here.

    Returns:
        The ms of each acknowledgement, in the order of the acknowledgements.

    Raises:
        TimeoutError: some are not acknowledged in time.
    """
    found: list[float] = []

    def acknowledged(item: bytes) -> None:
        found.append(age_ms(item, time.monotonic_ns()))

    due = time.monotonic()
    for value in values:
        while (wait_s := due - time.monotonic()) > 0:
            idle(wait_s)
        due += interval_s
        item = stamped(value)
        send(item, partial(acknowledged, item))
    deadline = time.monotonic() + WAIT_S
    while len(found) < len(values):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(values) - len(found)} messages are not acknowledged")
        idle(0.001)
    return found


def wait_for_each(futures: Iterable[WaitableFuture], most: int) -> None:
    """Wait for every future; the next one is made only when fewer than `most` are in flight."""
    waiting: deque[WaitableFuture] = deque()
    for future in futures:
        waiting.append(future)
        if len(waiting) >= most:
            waiting.popleft().result(WAIT_S)
    for future in waiting:
        future.result(WAIT_S)


def polled(
    first: list[bytes], take: Callable[[int], list[bytes]], count: int
) -> Generator[list[bytes], None, None]:
    """Yield the first values, and then whatever arrives.

    Args:
        first: Values that are there already; none says that the consumer waits.
        take: Waits a moment for values; its argument is how many are still wanted, at least 1.
        count: How many are wanted in all.

    Raises:
        TimeoutError: nothing arrives for `WAIT_S`.
    """
    yield first
    count -= len(first)
    deadline = time.monotonic() + WAIT_S
    while True:
        if values := take(max(count, 1)):
            yield values
            count -= len(values)
            deadline = time.monotonic() + WAIT_S
        elif time.monotonic() > deadline:
            raise TimeoutError(f"{count} messages did not arrive")


class AsyncRivalClient(RivalClient):
    """A client for asyncio, whose loop runs only while one of its methods does."""

    def __init__(self, address: str) -> None:
        import asyncio

        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.host, _, port = address.partition(":")
        self.port = int(port)
        self.run(self.open())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(work)

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def send(self, topic: str, value: bytes, acknowledged: Callable[[], None]) -> None:
        """Send one value, and call `acknowledged` later; returns before that."""

    def delivered(
        self,
        attach: Callable[
            [Callable[[bytes], None]], Coroutine[Any, Any, Callable[[], Coroutine[Any, Any, Any]]]
        ],
    ) -> Generator[list[bytes], None, None]:
        """Yield the values that a consumer's callback gets.

        Args:
            attach: Starts the consumer, which calls its argument with each value, and returns what
                ends the consumer.
        """
        import asyncio

        arrived: list[bytes] = []
        some = asyncio.Event()

        def note(value: bytes) -> None:
            arrived.append(value)
            some.set()

        detach = self.run(attach(note))
        try:
            yield []
            while True:
                self.run(asyncio.wait_for(some.wait(), WAIT_S))
                some.clear()
                values = arrived.copy()
                arrived.clear()
                yield values
        finally:
            self.run(detach())

    def pace(self, topic: str, values: Sequence[bytes], interval_s: float) -> list[float]:
        """Send one value each interval from the loop, and return ms until each acknowledgement."""
        return self.run(self._pace(topic, values, interval_s))

    async def _pace(self, topic: str, values: Sequence[bytes], interval_s: float) -> list[float]:
        import asyncio

        found: list[float] = []
        done = asyncio.Event()

        def note(item: bytes) -> None:
            found.append(age_ms(item, time.monotonic_ns()))
            if len(found) == len(values):
                done.set()

        due = time.monotonic()
        for value in values:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            due += interval_s
            item = stamped(value)
            await self.send(topic, item, partial(note, item))
        await asyncio.wait_for(done.wait(), WAIT_S)
        return found
