"""A compacted topic beside all others: whoever keeps a table by key has the right one.

One producer writes and deletes rows, a reader of compacted messages goes on with its table whatever
fails, and at the end each replica is read from its beginning.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from logboom.nodes.broker import Broker
from logboom.nodes.compaction.compacted_reader import read_survivors
from logboom.nodes.log.storage import Storage
from logboom.nodes.replica.entry_reader import read_batches as collect_log
from logboom.nodes.replica.replica import Replica
from logboom.wire.actor import Call
from logboom.wire.batch import open_batch, validate_batch
from logboom.wire.commands import CommandResult, CreateTopic
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.messages import AnyMessage, Pull, Pulled
from logboom.wire.view import TopicConfig
from tests.sim.cast.wire_client import WireClient
from tests.sim.cast.wire_producer import WireProducer
from tests.sim.judges.history import History, Queue
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

PROMISE: Final = "a table by key is right"
TABLE: Final = Queue("table", 0)
KEPT_BYTES: Final = 2_000
CONFIG: Final = TopicConfig(retention_ms=-1, retention_bytes=KEPT_BYTES, compaction=True)
ROWS: Final = (3, 10, 40)
"""Rows of the table; each seed has one of these."""
REST_S: Final = (0.05, 0.2)
"""Between two batches, on average; each seed has one of these."""
DELETED: Final = 0.15
"""Share of messages that delete their row."""
ANSWER_S: Final = 2.0
RETRY_S: Final = 0.3

Row = tuple[int, bytes, bytes | None]
"""offset, key, value."""


def key_of(value: bytes) -> bytes:
    """The row that a value `table/row/number` is of."""
    return value.split(b"/")[1]


class TableProducer(WireProducer):
    """Writes rows; a value that ends in a dash deletes its row."""

    def create(self) -> None:
        """Make the topic."""

        def done(result: CommandResult) -> None:
            if result.code not in ("", "ALREADY_EXISTS"):
                self.later(RETRY_S, self.create)

        self.propose(CreateTopic(TABLE.topic, 1, 3, CONFIG, self.now.wall_ms), done)

    def keys_of(self, values: Sequence[bytes]) -> list[bytes | None] | None:
        """See `WireProducer.keys_of`."""
        return [key_of(value) for value in values]

    def bodies_of(self, values: Sequence[bytes]) -> list[bytes | None]:
        """See `WireProducer.bodies_of`."""
        return [None if value.endswith(b"-") else value for value in values]


class TableReader(WireClient):
    """Reads compacted messages into a table, on and on."""

    def __init__(self, name: str, endpoints: Sequence[str], rng: random.Random) -> None:
        super().__init__(name, endpoints, rng)
        self.table: dict[bytes, bytes] = {}
        self.offset = 0
        self.anew = 0
        """How often it fell behind the log and had to begin again."""
        self.left_out = 0
        """Messages that it was spared."""
        self.hurry = False
        """Nothing is written any more: it does not pause between two pulls."""
        self._log_start = 0
        """Where the log began when it began to read: no end of a row before it is to be seen."""
        self._begun = False

    def changed(self, topics: Sequence[str]) -> None:
        """Begin once the topic is known."""
        if TABLE.topic in topics and not self._begun:
            self._begun = True
            self._pull()

    def _pull(self) -> None:
        leader = self.routes.leader(*TABLE)
        if leader is None:
            self.later(RETRY_S, self._pull)
            return
        offset = self.offset

        def answered(
            message: AnyMessage | None, batches: Sequence[Frame], error: LogboomError | None
        ) -> None:
            if isinstance(message, Pulled):
                self._pulled(offset, message, batches)
                pause = self.rng.choice((0.0, 0.0, 0.5, 5.0))
                self.later(0.0 if self.hurry else pause, self._pull)
                return
            assert error is not None, message
            if not error.retryable:
                raise BrokenProperty(PROMISE, f"a pull of it from {offset} on: {error}")
            self.later(RETRY_S, self._pull)

        size = self.rng.choice((1, 4096))
        message = Pull(0, 2_000, *TABLE, offset, size, 1_000, compacted=True)
        self.request(leader[1], message, answered, ANSWER_S)

    def _pulled(self, offset: int, message: Pulled, batches: Sequence[Frame]) -> None:
        if message.status == "OFFSET_ILLEGAL":
            raise BrokenProperty(PROMISE, f"offset {offset} is refused: {message}")
        if offset == 0:
            self._log_start = message.min_offset
        elif offset < message.min_offset and self._log_start < message.min_offset:
            # The end of a row that it has read may have gone meanwhile.
            self.anew += 1
            self.offset, self.table = 0, {}
            return
        rows: list[Row] = []
        for place, batch in enumerate(batches):
            bits = message.survivors[place] if message.survivors else b""
            found = rows_of(batch, bits)
            self.left_out += validate_batch(batch).count - len(found)
            rows += [row for row in found if row[0] >= offset]
        take_in(self.table, rows)
        self.offset = max(self.offset, message.next_offset)


def rows_of(batch: Frame, bits: bytes) -> list[Row]:
    """What survives of a batch."""
    alive = int.from_bytes(bits, "little") if bits else -1
    found = []
    for place, (offset, key, value, *_) in enumerate(
        open_batch(batch, validate_batch(batch)).iter_rows()
    ):
        if alive >> place & 1:
            if key is None or (value is not None and key_of(value) != key):
                raise BrokenProperty(PROMISE, f"offset {offset} is {key!r}: {value!r}")
            found.append((offset, key, value))
    return found


def take_in(table: dict[bytes, bytes], rows: Sequence[Row]) -> None:
    """Change a table as the rows say."""
    for offset, key, value in rows:
        if value is None:
            table.pop(key, None)
            continue
        if _number(value) <= _number(table.get(key, b"//-1")):
            raise BrokenProperty(PROMISE, f"offset {offset} {value!r} after {table[key]!r}")
        table[key] = value


def _number(value: bytes) -> int:
    return int(value.split(b"/")[2])


class Tables:
    """A guest of a run: the producer, the reader, and what is held against all replicas."""

    def __init__(self, world: World, endpoints: Sequence[str], rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._rows = rng.choice(ROWS)
        self._rest_s = rng.choice(REST_S)
        self._working = False
        self._sent: list[bytes] = []
        self._history = History(world.trace, lambda: world.scheduler.now)
        self._producer = TableProducer(
            "table-1", endpoints, random.Random(rng.random()), self._history
        )
        self._reader = TableReader("table-2", endpoints, random.Random(rng.random()))
        world.add("table-1", "client", {}, lambda: self._producer)
        world.add("table-2", "client", {}, lambda: self._reader)

    def begin(self) -> None:
        """Make the topic, and start to write."""
        self._working = True
        self._deliver(Call(self._producer.create))
        self._send()

    def _deliver(self, call: Call) -> None:
        process = self._world.machines["table-1"].process
        assert process is not None
        process.deliver(call)

    def _send(self) -> None:
        if not self._working:
            return
        rng = self._rng
        self._world.scheduler.after(rng.expovariate(1 / self._rest_s), self._send)
        values = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            end = "/-" if rng.random() < DELETED else ""
            row, number = rng.randrange(self._rows), len(self._sent)
            values.append(f"table/{row}/{number}{end}".encode())
            self._sent.append(values[-1])
        self._deliver(Call(partial(self._producer.send, TABLE, values)))

    def rest(self) -> None:
        """Write no more."""
        self._working = False
        self._reader.hurry = True

    def settled(self) -> bool:
        """Whether all is acknowledged, read, and nobody lacks a copy."""
        return not self.why_not()

    def why_not(self) -> str:
        """What `settled` waits for."""
        acked = len(self._history.acked)
        if acked < len(self._sent):
            return f"of the table {acked} of {len(self._sent)} are acknowledged"
        lacking = [name for name, replica, _ in self._replicas() if replica.compaction.lacks]
        if lacking:
            return f"{lacking} lack copies of the table"
        behind = [
            name
            for name, replica, _ in self._replicas()
            if replica.readable.offset < len(self._sent)
        ]
        if behind:
            return f"{behind} are behind with the table"
        if self._reader.offset < len(self._sent):
            return f"the table's reader is at {self._reader.offset} of {len(self._sent)}"
        return ""

    def _replicas(self) -> list[tuple[str, Replica, Storage]]:
        found = []
        for machine in self._world.nodes("broker"):
            core = machine.process.core if machine.process is not None else None
            if isinstance(core, Broker):
                replica = core.queues.by_name.get((TABLE.topic, 0))
                if replica is not None and replica.role != "none":
                    found.append((machine.name, replica, core.queues.storage))
        return found

    def compare(self) -> None:
        """Hold all tables against what was sent."""
        expected: dict[bytes, bytes] = {}
        for value in self._sent:
            if value.endswith(b"-"):
                expected.pop(key_of(value), None)
            else:
                expected[key_of(value)] = value
        tables = {"the reader": self._reader.table}
        trace = self._world.trace
        for name, replica, storage in self._replicas():
            tables[name] = self._table_of(replica, storage)
            trace.count("compacted", replica.compaction.horizon(replica.start))
            trace.count("copied below the log", replica.start)
        for name, table in tables.items():
            if table != expected:
                wrong = {
                    key: (table.get(key), expected.get(key))
                    for key in {*table, *expected}
                    if table.get(key) != expected.get(key)
                }
                raise BrokenProperty(PROMISE, f"{name} has (is, should be) {wrong}")
        trace.count("rows read by tables", self._reader.offset)
        trace.count("spared", self._reader.left_out)
        trace.count("tables begun anew", self._reader.anew)

    @staticmethod
    def _table_of(replica: Replica, storage: Storage) -> dict[bytes, bytes]:
        table: dict[bytes, bytes] = {}
        limit, offset = replica.readable, 0
        stop = min(replica.compaction.horizon(replica.start), limit.offset)
        while offset < stop:
            found = read_survivors(replica, storage, offset, stop, limit, 1 << 20, 0)
            for batch, bits in zip(found.batches, found.bits, strict=True):
                take_in(table, [row for row in rows_of(batch, bits) if row[0] >= offset])
            offset = found.next_offset
        while offset < limit.offset:
            live = collect_log(replica, storage, offset, 1 << 20, 0)
            for each in live.batches:
                take_in(table, [row for row in rows_of(each, b"") if row[0] >= offset])
            offset = live.next_offset
        return table
