"""Holds what clients saw against what the disks hold at the end: the promises of DESIGN §10.

The names of the properties are those of `tests/sim/judges/history.py`. That one follows single messages as
they happen; this one compares runs of them afterwards, so that millions fit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.payload import Stream
from tests.chaos.record import Acked, Failed, Read, Record, Sent, Wrong

KEPT: Final = 20
"""Details kept of each broken property; the number counts them all."""

LOST: Final = "nothing acknowledged is lost"
DOUBLED: Final = "nothing is doubled"
REORDERED: Final = "producers' order holds"
PHANTOM: Final = "what is stored was sent"
UNSTABLE: Final = "reads are final"
GAPS: Final = "offsets are gap-free"
UNREAD: Final = "everything is read at last"
OUTCOMES: Final = "one outcome per send"
SERVED: Final = "clients are served"


@dataclass(frozen=True, slots=True)
class Stored:
    """Messages in a row on the disks of a queue's replicas."""

    offset: int
    stream: Stream
    first: int
    count: int


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


class Log:
    """One queue's messages by offset."""

    def __init__(self, rows: Sequence[Stored]) -> None:
        self._rows = rows
        self._offsets = [row.offset for row in rows]
        self.end = rows[-1].offset + rows[-1].count if rows else 0

    def differing(self, offset: int, stream: Stream, first: int, count: int) -> Iterator[str]:
        """One text for each message from `offset` on that is not the one expected there."""
        place = bisect_right(self._offsets, offset) - 1
        done = 0
        while done < count:
            at, number = offset + done, first + done
            row = self._rows[place] if 0 <= place < len(self._rows) else None
            if row is None or not row.offset <= at < row.offset + row.count:
                yield from (
                    f"queue {stream.queue} offset {offset + n}: {stream.producer}/{first + n}, "
                    "nothing is stored there"
                    for n in range(done, count)
                )
                return
            part = min(count - done, row.offset + row.count - at)
            stored = row.first + at - row.offset
            if (row.stream, stored) != (stream, number):
                yield from (
                    f"queue {stream.queue} offset {at + n}: {stream.producer}/{number + n}, "
                    f"stored is {row.stream.producer}/{stored + n}"
                    for n in range(part)
                )
            done += part
            place += 1


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
    logs = {queue: Log(rows) for queue, rows in stored.items()}
    sent = {Stream(r.producer, r.queue): r.count for r in records if isinstance(r, Sent)}
    verdict.sent = sum(sent.values())
    _disks(verdict, stored, sent)
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


def _disks(
    verdict: Verdict, stored: Mapping[int, Sequence[Stored]], sent: Mapping[Stream, int]
) -> None:
    """Offsets without a gap; every message sent, stored once, in its producer's order."""
    for queue, rows in stored.items():
        end = 0
        parts: defaultdict[Stream, list[tuple[int, int]]] = defaultdict(list)
        for row in rows:
            if row.offset != end:
                verdict.found(GAPS, f"queue {queue}: offset {row.offset} follows on {end}")
            end = row.offset + row.count
            verdict.stored += row.count
            if row.stream.queue != queue or row.first + row.count > sent.get(row.stream, 0):
                verdict.found(PHANTOM, f"queue {queue} offset {row.offset}: {row}", row.count)
            known = parts[row.stream]
            if known and row.first < known[-1][1]:
                _again(verdict, queue, row, known)
            known.append((row.first, row.first + row.count))


def _again(verdict: Verdict, queue: int, row: Stored, known: list[tuple[int, int]]) -> None:
    """A row begins before the one that was stored last: again, or too late."""
    numbers = range(row.first, row.first + row.count)
    twice = sum(any(a <= number < b for a, b in known) for number in numbers)
    detail = f"queue {queue} offset {row.offset}: {row.stream.producer} from {row.first} on"
    if twice:
        verdict.found(DOUBLED, f"{detail}, {twice} of {row.count} again", twice)
    if twice < row.count:
        verdict.found(REORDERED, f"{detail}, behind {known[-1][1] - 1}", row.count - twice)


def _answers(
    verdict: Verdict,
    records: Sequence[Record],
    logs: Mapping[int, Log],
    sent: Mapping[Stream, int],
) -> None:
    """What was acknowledged lies where it was said; every send has one outcome."""
    answered: defaultdict[Stream, list[tuple[int, int]]] = defaultdict(list)
    nothing = Log([])
    for record in records:
        if isinstance(record, Acked):
            verdict.acked += record.count
            stream = Stream(record.producer, record.queue)
            log = logs.get(record.queue, nothing)
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
    nothing = Log([])
    for record in records:
        if not isinstance(record, Read):
            continue
        verdict.read += record.count
        log = logs.get(record.queue, nothing)
        for detail in log.differing(record.offset, record.stream, record.first, record.count):
            verdict.found(UNSTABLE, f"{record.reader} read at {detail}")
        ends[record.reader, record.queue] = record.offset + record.count
    for reader, queues in readers.items():
        for queue in queues:
            end, all_ = ends.get((reader, queue), 0), logs[queue].end
            if end != all_:
                detail = f"{reader} read queue {queue} to {end} of {all_}"
                verdict.found(UNREAD, detail, abs(all_ - end))
