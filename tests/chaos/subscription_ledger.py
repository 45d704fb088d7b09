"""Holds what the consumers of subscriptions were handed against the promises to them (P10).

The promises are those of the simulation (`tests/sim/judges/subscription_ledger.py`). That one sees
what leaders do; this one has what consumers wrote down.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos import fates
from tests.chaos.fates import Fates
from tests.chaos.ledger import Verdict
from tests.chaos.payload import KEYS
from tests.chaos.record import Befell, Confirmed, Fate, Handed, Record, TooLate
from tests.sim.judges.logs import UNSTABLE, Log, Stored
from tests.sim.judges.subscription_ledger import CONFIRMED, DISORDER, UNCONSUMED

SLACK_S: Final = 5.0
"""What a leader had sent before it may still be handed out, by a consumer that has yet to hear that
its session is over."""
NEVER: Final = float("inf")


@dataclass(slots=True)
class SubscriptionFigures:
    """How the subscriptions fared."""

    handed: int = 0
    """Messages that consumers were handed, the same one each time."""
    again: int = 0
    """Of these, how many not for the first time."""
    given_back: int = 0
    confirmed: int = 0
    """Of these, how many were confirmed to be acknowledged."""
    killed: int = 0
    stopped: int = 0


def judge_subscriptions(
    records: Sequence[Record],
    stored: Mapping[int, Sequence[Stored]],
    names: Iterable[str],
    verdict: Verdict,
) -> SubscriptionFigures:
    """Check everything; what is wrong goes into `verdict`.

    Args:
        records: of all clients.
        stored: queue → what its replicas hold, in the order of offsets.
        names: of all subscriptions; in that of this name keys have an order, "key_shared".
        verdict: what is wrong goes in there.
    """
    befell = [Fate(r.member, r.what, r.at) for r in records if isinstance(r, Befell)]
    known = Fates(befell, fates.unserved(records))
    figures = SubscriptionFigures(
        killed=known.count(fates.KILLED), stopped=known.count(fates.PAUSED)
    )
    safe = _Confirmations(records)
    handed: defaultdict[tuple[str, int], list[Handed]] = defaultdict(list)
    for record in records:
        if isinstance(record, Handed):
            handed[record.subscription, record.queue].append(record)
    for name in names:
        for queue, rows in sorted(stored.items()):
            mine = sorted(handed[name, queue], key=lambda record: record.at)
            judge = _Queue(name, Log(queue, rows), known, safe, figures, verdict)
            judge.deliveries(mine)
            if name == "key_shared":
                judge.order(mine)
    return figures


class _Confirmations:
    """When what a consumer acknowledged was known to be safe."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._of: defaultdict[str, list[Confirmed]] = defaultdict(list)
        self._too_late: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        for record in records:
            if isinstance(record, Confirmed):
                self._of[record.member].append(record)
            elif isinstance(record, TooLate):
                for span in record.spans:
                    self._too_late[record.member, record.queue].update(range(*span))

    def of(self, record: Handed) -> tuple[float, list[int]]:
        """When the acknowledgement of what a consumer was handed was confirmed, and of which
        offsets; never if nobody heard of it."""
        offsets = range(record.offset, record.offset + record.count)
        late = self._too_late.get((record.member, record.queue), set())
        known = self._of[record.member]
        place = bisect_right(known, record.at, key=lambda each: each.before)
        at = known[place].at if place < len(known) else NEVER
        return at, [offset for offset in offsets if offset not in late]


class _Queue:
    """One queue of one subscription."""

    def __init__(
        self,
        name: str,
        log: Log,
        known: Fates,
        safe: _Confirmations,
        figures: SubscriptionFigures,
        verdict: Verdict,
    ) -> None:
        self._name = name
        self._log = log
        self._fates = known
        self._safe = safe
        self._figures = figures
        self._verdict = verdict

    def deliveries(self, handed: Sequence[Handed]) -> None:
        """Consumers get what is stored, all of it, and nothing that was confirmed before."""
        end = self._log.end
        seen, done = bytearray(end), bytearray(end)
        safe_at = array("d", [NEVER]) * end
        for record in handed:
            first, stop = record.offset, record.offset + record.count
            for detail in self._log.differing(first, record.stream, record.first, record.count):
                self._verdict.found(UNSTABLE, f"{record.member} was handed at {detail}")
            before = seen[first:stop].count(1)
            self._figures.handed += record.count
            self._figures.again += before
            if before and not self._fates.behind(record.member, record.at):
                late = sum(at + SLACK_S < record.at for at in safe_at[first:stop])
                if late:
                    self._verdict.found(CONFIRMED, f"{self._where(record)}: {late}", late)
            seen[first:stop] = b"\1" * record.count
            if record.failed:
                self._figures.given_back += record.count
                continue
            done[first:stop] = b"\1" * record.count
            at, safe = self._safe.of(record)
            if at < NEVER:
                self._figures.confirmed += len(safe)
                for offset in safe:
                    safe_at[offset] = min(at, safe_at[offset])
        if missing := done.count(0):
            detail = f"{self._name}: {missing} messages, the first at {done.index(0)}"
            self._verdict.found(UNCONSUMED, detail, missing)

    def order(self, handed: Sequence[Handed]) -> None:
        """Of a key, messages are handed out for the first time in their order."""
        seen = bytearray(self._log.end)
        last: dict[tuple[int, int], int] = {}
        for record in handed:
            for place in range(record.count):
                offset = record.offset + place
                if seen[offset]:
                    continue
                seen[offset] = 1
                key = record.sent_to, (record.first + place) % KEYS
                if offset < last.get(key, -1):
                    detail = f"{self._where(record)}: {offset} after {last[key]}"
                    self._verdict.found(DISORDER, detail)
                last[key] = max(offset, last.get(key, -1))

    def _where(self, record: Handed) -> str:
        span = f"{record.offset} to {record.offset + record.count - 1}"
        return f"{self._name} {record.queue}, {span}: {record.member} at {record.at:.2f}"
