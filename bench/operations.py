"""A cluster grows from three to four brokers under load, and a broker is drained."""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.figures import Figure, compared, percentile
from bench.references import compare
from bench.rolling import BEGUN_S, GapLog, SteadyLoad
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.deploy.layout import KEY_FILE
from logboom.deploy.polling import ask_until
from logboom.wire.errors import LogboomError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logboom.client import Client
    from logboom.client.futures import ManyFuture
    from logboom.wire.operation_messages import BrokerLoad, ClusterDescribed

QUEUES: Final = 16
REPLICAS: Final = 3
RATE: Final = 20_000
"""Messages per second of the load."""
EVERY_S: Final = 0.02
VALUE: Final = b"x" * 100
FILLING_BYTES: Final = 1024
"""Size of the messages that are there before; they are random, so nothing compresses them."""
AT_ONCE: Final = 500
WITHIN_S: Final = 800.0
SETTLED_S: Final = 30.0
"""Seconds that brokers have to report what they hold once nothing moves any more."""
PACE_S: Final = 0.2
MIB: Final = 1024 * 1024
EVEN: Final = 10.0
"""Percent of the mean by which a broker may differ from it."""
GROWN: Final = "grown"
"""The topic of the data and the load."""
BEFORE: Final = "the same before the growth"


class PacedLoad:
    """A producer with acks=all at `RATE`, and the time from each send to its acknowledgement."""

    def __init__(self, boom: Client, topic: str) -> None:
        self._boom, self._topic = boom, topic
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._taken: list[tuple[float, float]] = []
        self.sent = 0
        self.errors: list[LogboomError] = []
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def _produce(self) -> None:
        count = round(RATE * EVERY_S)
        values = [VALUE] * count
        with self._boom.producer(acks="all") as producer:
            due = time.monotonic()
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                due += EVERY_S
                # The time from when it was due: a sender that is held up must not hide it.
                sent = producer.send_many(self._topic, values)
                self.sent += count
                sent.add_done_callback(partial(self._acknowledged, due - EVERY_S))

    def _acknowledged(self, due: float, sent: ManyFuture) -> None:
        try:
            sent.result(0)
        except LogboomError as error:
            self.errors.append(error)
            return
        now = time.monotonic()
        with self._lock:
            self._taken.append((due, now - due))

    def await_flow(self) -> None:
        """Wait until the first messages are acknowledged, which open connections and find routes.

        Raises:
            TimeoutError: none is within a minute.
        """
        if not ask_until(lambda: self._taken, bool, BEGUN_S):
            raise TimeoutError(f"nothing is acknowledged: {self.errors[:1]}")

    def p99_s(self, begun: float, ended: float) -> float:
        """Return the time below which 99 % of the messages sent meanwhile were acknowledged."""
        with self._lock:
            return percentile([took for at, took in self._taken if begun <= at < ended], 0.99)

    def close(self) -> None:
        """Send no more, and wait for the acknowledgements."""
        self._stop.set()
        self._thread.join()


def _fill(boom: Client, topic: str, size: int) -> None:
    """Store about so many bytes on all brokers together."""
    draw = random.Random(1)
    values = [draw.randbytes(FILLING_BYTES) for _ in range(AT_ONCE)]
    with boom.producer(acks="all") as producer:
        for _ in range(max(1, size // (REPLICAS * FILLING_BYTES * AT_ONCE))):
            producer.send_many(topic, values)
        producer.flush()


def _wait(
    boom: Client, done: Callable[[ClusterDescribed], bool], what: str, within_s: float = WITHIN_S
) -> ClusterDescribed:
    """Wait until the cluster is as it should be.

    Raises:
        RuntimeError: it is not in time.
    """

    def ask() -> ClusterDescribed | None:
        try:
            return boom.admin.describe_cluster()
        except RetryableError:
            return None

    seen = ask_until(ask, lambda seen: seen is not None and done(seen), within_s, PACE_S)
    if seen is None or not done(seen):
        raise RuntimeError(f"{what} after {within_s:.0f} s: {seen}")
    return seen


def _unevenness(brokers: list[BrokerLoad]) -> float:
    """Return the largest difference of a broker's bytes from the mean, in percent."""
    mean = sum(broker.size_bytes for broker in brokers) / len(brokers)
    return 100 * max(abs(broker.size_bytes - mean) for broker in brokers) / max(1.0, mean)


def rows(data_mib: int, steady_s: float, rounds: int) -> list[Figure]:
    """Return the figures of growing a cluster to four brokers and draining one of them, in rounds.

    `data_mib` is what lies on the disks of all brokers together before. Each load runs `steady_s`
    before anything is done, and is compared with itself.
    """
    grown: list[Growth] = []
    drained: list[Drain] = []
    with Cluster(
        name_servers=3, brokers=3, broker_settings={"replica_delete_grace_s": 1.0}
    ) as cluster:
        key = read_key(cluster.data / KEY_FILE)
        with connect(cluster.endpoints, cluster_key=key) as boom:
            boom.admin.create_topic(GROWN, queues=QUEUES, replicas=REPLICAS)
            _fill(boom, GROWN, data_mib * MIB)
            for number in range(rounds):
                # A new one each time: the reader of its load counts what is in it.
                topic = f"drained-{number}"
                boom.admin.create_topic(topic, queues=QUEUES, replicas=REPLICAS)
                grown.append(_grow(cluster, boom, steady_s))
                drained.append(_drain(boom, topic, steady_s))
                boom.admin.delete_topic(topic)
                _remove(cluster, boom, drained[-1].broker)
    return [
        *_growth_figures(f"{data_mib:,} MiB", grown),
        *_drain_figures(drained),
    ]


class Growth(NamedTuple):
    """One growth under load."""

    took_s: float
    unevenness: float
    before_ms: float
    during_ms: float
    per_s: float
    errors: int


class Drain(NamedTuple):
    """One drain under load."""

    broker: str
    replicas: int
    took_s: float
    before_ms: float
    """Longest gap of a queue in the same load before the drain."""
    during_ms: float
    lacking: int
    """Queues that lack a replica after it."""
    errors: int


def _grow(cluster: Cluster, boom: Client, steady_s: float) -> Growth:
    load = PacedLoad(boom, GROWN)
    try:
        load.await_flow()
        calm = time.monotonic()
        # The measured span of the reference.
        time.sleep(steady_s)
        begun = time.monotonic()
        new = cluster.add_broker()
        # The start of its process costs what elsewhere another machine does.
        registered = time.monotonic()

        def filled(seen: ClusterDescribed) -> bool:
            (broker,) = [each for each in seen.brokers if each.broker == new]
            return broker.replicas > 0 and not broker.filling and not seen.moves

        _wait(boom, filled, "moves have not ended")
        ended = time.monotonic()
        try:
            seen = _wait(boom, lambda seen: _unevenness(seen.brokers) <= EVEN, "", SETTLED_S)
        except RuntimeError:
            # It is reported as it is.
            seen = boom.admin.describe_cluster()
        sent_per_s = load.sent / (time.monotonic() - calm)
    finally:
        load.close()
    return Growth(
        ended - begun,
        _unevenness(seen.brokers),
        1000 * load.p99_s(calm, begun),
        1000 * load.p99_s(registered, ended),
        sent_per_s,
        len(load.errors),
    )


def _growth_figures(stored: str, rounds: Sequence[Growth]) -> list[Figure]:
    p99 = compare(BEFORE, [each.during_ms for each in rounds], [each.before_ms for each in rounds])
    name = f"grow 3 → 4 brokers, {stored}, {RATE:,} msg/s: balanced after"
    return [
        Figure(name, max(each.took_s for each in rounds), "s"),
        Figure(
            "  … largest difference of a broker from the mean",
            max(each.unevenness for each in rounds),
            "%",
            EVEN,
            "less",
        ),
        compared("  … p99 from send to acks=all meanwhile", p99, "ms", 2.0, "less"),
        Figure("  … sent by the load", min(each.per_s for each in rounds), "msg/s"),
        Figure("  … errors at the client", sum(each.errors for each in rounds), "", 0, "less"),
    ]


def _drain(boom: Client, topic: str, steady_s: float) -> Drain:
    load = SteadyLoad(boom, topic)
    try:
        load.await_flow(QUEUES)
        load.acked = calm = GapLog()
        # The same without a drain, on this machine at this time.
        time.sleep(steady_s)
        load.acked = moving = GapLog()
        leaving = max(boom.admin.describe_cluster().brokers, key=lambda each: each.leading)
        begun = time.monotonic()
        boom.admin.set_broker_mode(leaving.broker, "draining")

        def drained(seen: ClusterDescribed) -> bool:
            modes = {each.broker: each.mode for each in seen.brokers}
            return modes[leaving.broker] == "drained" and not seen.moves

        _wait(boom, drained, "not drained")
        took = time.monotonic() - begun
    finally:
        load.close()
    queues = [queue for name in (GROWN, topic) for queue in boom.admin.describe_topic(name).queues]
    lacking = sum(
        len(each.replicas) < REPLICAS
        or leaving.broker in each.replicas
        or len(each.isr) < len(each.replicas)
        for each in queues
    )
    return Drain(
        leaving.broker,
        leaving.replicas,
        took,
        1000 * max(calm.longest_s.values()),
        1000 * max(moving.longest_s.values()),
        lacking,
        len(load.errors) + load.lost,
    )


def _drain_figures(rounds: Sequence[Drain]) -> list[Figure]:
    replicas = max(each.replicas for each in rounds)
    return [
        Figure(
            f"drain of a broker with {replicas} replicas", max(each.took_s for each in rounds), "s"
        ),
        Figure(
            "  … longest gap between acknowledgements of a queue",
            max(each.during_ms for each in rounds),
            "ms",
            300,
            "less",
            f"before the drain {max(each.before_ms for each in rounds):.0f} ms",
        ),
        Figure(
            "  … queues that lack a replica", sum(each.lacking for each in rounds), "", 0, "less"
        ),
        Figure("  … errors, and messages lost", sum(each.errors for each in rounds), "", 0, "less"),
    ]


def _remove(cluster: Cluster, boom: Client, broker: str) -> None:
    """Stop a drained broker and remove it, so that the next round finds three."""
    cluster.stop(broker)

    def fenced(seen: ClusterDescribed) -> bool:
        return not any(each.broker == broker and each.alive for each in seen.brokers)

    _wait(boom, fenced, f"{broker} is alive")
    boom.admin.remove_broker(broker)
    cluster.discard_broker(broker)
