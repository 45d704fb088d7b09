"""What clients saw, held against the disks at the end: the promises of docs/RELIABILITY.md.

The logs are judged as those of the simulation (`tests/sim/judges/logs.py`). What clients saw is
written down in rows of messages, and held against the logs afterwards.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.record import Acked, Failed, Read, Record, Sent, Wrong
from tests.sim.judges.logs import LOST, OUTCOMES, UNSTABLE, Log, Stored, Stream

KEPT: Final = 20
"""Details kept of each broken property; the number counts them all."""

UNREAD: Final = "everything is read at last"
SERVED: Final = "clients are served"


@dataclass(slots=True)
class Verdict:
    """What was counted, and what was found wrong."""

    sent: int = 0
    acked: int = 0
    failed: int = 0
    """Sends that were given up; they may be stored or not."""
    stored: int = 0
    read: int = 0
    """By all readers together."""
    broken: Counter[str] = field(default_factory=Counter)
    """Property → messages (or findings) that break it."""
    details: dict[str, list[str]] = field(default_factory=dict)

    def found(self, name: str, detail: str, count: int = 1) -> None:
        """A property is broken."""
        self.broken[name] += count
        kept = self.details.setdefault(name, [])
        if len(kept) < KEPT:
            kept.append(detail)

    @property
    def clean(self) -> bool:
        """Whether every promise was kept."""
        return not self.broken


def judge(
    records: Sequence[Record],
    stored: Mapping[int, Sequence[Stored]],
    readers: Mapping[str, set[int]],
    verdict: Verdict | None = None,
    healed: float = float("inf"),
) -> Verdict:
    """Check everything.

    Args:
        records: of all clients.
        stored: queue → what its replicas hold, in the order of offsets.
        readers: reader → the queues that it had to read to the end.
        verdict: what was found before; more goes in there.
        healed: when the cluster was whole after the last fault: from then on no send may fail.
    """
    verdict = verdict or Verdict()
    logs = {queue: Log(queue, rows) for queue, rows in stored.items()}
    sent = {Stream(r.producer, r.queue): r.count for r in records if isinstance(r, Sent)}
    verdict.sent = sum(sent.values())
    verdict.stored = sum(row.count for rows in stored.values() for row in rows)
    _disks(verdict, logs, sent)
    _answers(verdict, records, logs, sent)
    _readings(verdict, records, logs, readers)
    _service(verdict, records, stored, healed)
    for record in records:
        if isinstance(record, Wrong):
            verdict.found(record.property, f"{record.who}: {record.detail}")
    return verdict


def _service(
    verdict: Verdict,
    records: Sequence[Record],
    stored: Mapping[int, Sequence[Stored]],
    healed: float,
) -> None:
    """Something came of it: every other promise is kept where nothing is acknowledged or read."""
    acked = {r.queue for r in records if isinstance(r, Acked)}
    read = {r.queue for r in records if isinstance(r, Read)}
    for queue in stored:
        if queue not in acked:
            verdict.found(SERVED, f"queue {queue}: nothing was acknowledged")
        if queue not in read:
            verdict.found(SERVED, f"queue {queue}: nothing was read")
    if not stored:
        verdict.found(SERVED, "there is no queue")
    for record in records:
        if isinstance(record, Failed) and record.at > healed:
            detail = f"queue {record.queue}: a send failed {record.at - healed:.1f} s after healing"
            verdict.found(SERVED, f"{detail}: {record.error}", record.count)


def _disks(verdict: Verdict, logs: Mapping[int, Log], sent: Mapping[Stream, int]) -> None:
    """Offsets without a gap; every message sent, stored once, in its producer's order."""
    for queue, log in logs.items():

        def was_sent(row: Stored, queue: int = queue) -> bool:
            return row.stream.queue == queue and row.first + row.count <= sent.get(row.stream, 0)

        log.check(verdict.found, was_sent)


def _answers(
    verdict: Verdict,
    records: Sequence[Record],
    logs: Mapping[int, Log],
    sent: Mapping[Stream, int],
) -> None:
    """What was acknowledged lies where it was said; every send has one outcome."""
    answered: defaultdict[Stream, list[tuple[int, int]]] = defaultdict(list)
    for record in records:
        if isinstance(record, Acked):
            verdict.acked += record.count
            stream = Stream(record.producer, record.queue)
            log = logs.get(record.queue, Log(record.queue, []))
            for detail in log.differing(record.offset, stream, record.first, record.count):
                verdict.found(LOST, f"acknowledged at {detail}")
        elif isinstance(record, Failed):
            verdict.failed += record.count
        else:
            continue
        parts = answered[Stream(record.producer, record.queue)]
        parts.append((record.first, record.first + record.count))
    for stream in sent.keys() | answered.keys():
        end = 0
        for first, behind in sorted(answered[stream]):
            if first != end:
                verdict.found(OUTCOMES, f"{stream}: {first} follows on {end}", abs(first - end))
            end = behind
        if end != sent.get(stream, 0):
            missing = abs(sent.get(stream, 0) - end)
            verdict.found(OUTCOMES, f"{stream}: {end} of {sent.get(stream, 0)} answered", missing)


def _readings(
    verdict: Verdict,
    records: Sequence[Record],
    logs: Mapping[int, Log],
    readers: Mapping[str, set[int]],
) -> None:
    """What was read is what is stored, and it was all."""
    ends: dict[tuple[str, int], int] = {}
    for record in records:
        if not isinstance(record, Read):
            continue
        verdict.read += record.count
        log = logs.get(record.queue, Log(record.queue, []))
        for detail in log.differing(record.offset, record.stream, record.first, record.count):
            verdict.found(UNSTABLE, f"{record.reader} read at {detail}")
        ends[record.reader, record.queue] = record.offset + record.count
    for reader, queues in readers.items():
        for queue in queues:
            end, all_ = ends.get((reader, queue), 0), logs[queue].end
            if end != all_:
                detail = f"{reader} read queue {queue} to {end} of {all_}"
                verdict.found(UNREAD, detail, abs(all_ - end))
