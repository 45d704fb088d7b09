"""What a backup holds, read by somebody who knows the log's format and nothing of brokers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from logboom.backup.backup_format import LogPosition, Manifest, position_after
from logboom.backup.backup_reader import BackupReader
from logboom.wire.backup_messages import ClusterSnapshot
from logboom.wire.batch import (
    control_body,
    open_batch,
    released_from,
    split_entries,
    validate_batch,
)
from logboom.wire.cursor_deltas import decode_deltas
from logboom.wire.head import ControlKind
from logboom.wire.parking import parked_body, recalled_body
from logboom.wire.transactions import TransactionId, decided_body


@dataclass
class Parked:
    """A parked batch."""

    values: list[bytes]
    transaction: TransactionId | None
    first: LogPosition


@dataclass
class QueueContents:
    """What one queue shows after a restore."""

    end: int = 0
    values: list[bytes] = field(default_factory=list)
    """Of all messages, by offset from the log's start."""
    start: int = 0
    parked: dict[LogPosition, Parked] = field(default_factory=dict)
    acked: dict[str, set[int]] = field(default_factory=dict)
    """Subscription → acknowledged offsets."""
    decided: int = 0
    """The last decision that was carried out."""

    def take(self, at: LogPosition, entry: bytes) -> LogPosition:
        """Take the next entry of the log."""
        head = validate_batch(entry)
        assert head.base_offset == at[0]
        if not head.is_control:
            self.values += [bytes(value or b"") for value in open_batch(entry, head).values()]
            source = released_from(entry, head)
            if source is not None:
                del self.parked[source]
        elif head.kind == ControlKind.PARKED:
            body = parked_body(control_body(entry, head))
            values = [bytes(value or b"") for value in open_batch(bytes(body.batch)).values()]
            first = at
            if body.carried is not None:
                first, last = body.carried
                del self.parked[last]
            self.parked[at] = Parked(values, body.transaction, first)
        elif head.kind == ControlKind.RECALLED:
            self.parked.pop(recalled_body(control_body(entry, head)), None)
        elif head.kind == ControlKind.DECIDED:
            decided = decided_body(control_body(entry, head))
            assert decided.number > self.decided
            self.decided = decided.number
            for place, parked in list(self.parked.items()):
                whose = parked.transaction
                same = whose is not None and (whose.app_id, whose.sequence) == (
                    decided.app_id,
                    decided.sequence,
                )
                if same and place not in decided.places:
                    del self.parked[place]
        elif head.kind == ControlKind.CURSOR_DELTA:
            for delta in decode_deltas(control_body(entry, head)):
                acked = self.acked.setdefault(delta.subscription, set())
                acked.update(range(delta.floor))
                for begin, end in delta.spans():
                    acked.update(range(begin, end))
        after = position_after(at, head.count)
        self.end = after[0]
        return after

    def value(self, offset: int) -> bytes:
        """The value of the message at an offset."""
        return self.values[offset - self.start]


class BackupContents:
    """Everything in a backup, as a restored cluster shows it once it has carried out the decisions
    that were outstanding."""

    def __init__(self, reader: BackupReader, backup: str = "") -> None:
        self.manifest: Manifest = reader.manifest(backup)
        self.state: ClusterSnapshot = reader.state(self.manifest)
        self.queues: dict[tuple[str, int], QueueContents] = {}
        for topic in self.manifest.topics:
            for queue in topic.queues:
                found = QueueContents(start=queue.begin[0], end=queue.begin[0])
                at = queue.begin
                for block in reader.entries(topic.id, queue):
                    assert block.begin == at
                    for entry in split_entries(block.content):
                        at = found.take(at, bytes(entry))
                    assert block.end == at
                assert at == queue.end
                assert found.decided <= self.state.version
                self._carry_out(found, topic.id, queue.queue)
                self.queues[topic.name, queue.queue] = found

    def _carry_out(self, found: QueueContents, topic_id: int, queue: int) -> None:
        for decision in self.state.decisions:
            for parked in decision.queues:
                if (parked.topic_id, parked.queue) != (topic_id, queue) or not decision.commit:
                    continue
                by_first = {each.first: place for place, each in found.parked.items()}
                for first in parked.places:
                    place = by_first.get(first)
                    if place is not None:
                        found.values += found.parked.pop(place).values

    def values(self, topic: str) -> Counter[bytes]:
        """How often each value can be read from a topic."""
        found: Counter[bytes] = Counter()
        for (name, _), queue in self.queues.items():
            if name == topic:
                found.update(queue.values)
        return found

    def delayed(self, topic: str) -> Counter[bytes]:
        """The same of messages that wait for their time."""
        found: Counter[bytes] = Counter()
        for (name, _), queue in self.queues.items():
            if name == topic:
                for parked in queue.parked.values():
                    if parked.transaction is None:
                        found.update(parked.values)
        return found
