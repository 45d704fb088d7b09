"""Holds what the members of a group were given against the promises to groups (P7 to P9).

The promises are those of the simulation (`tests/sim/judges/group_ledger.py`). That one sees
what every process knows; this one has what members wrote down, and what name servers said of the
group meanwhile.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from tests.chaos import fates
from tests.chaos.fates import Fates
from tests.chaos.ledger import Verdict
from tests.chaos.outages import longest_gap
from tests.chaos.record import RETRIES, Committed, Consumed, Dead, Fate, Record
from tests.sim.judges.group_ledger import AGAIN, BACK, TWO_OWNERS, UNCONSUMED, UNFINISHED
from tests.sim.judges.logs import UNSTABLE, Log, Stored, Stream

COMMITTED_AGAIN: Final = "what is committed does not come again"
UNTRIED: Final = "dead letters were tried often enough"
NOBODY: Final = -1


@dataclass(slots=True)
class GroupFigures:
    """How a group fared."""

    delivered: int = 0
    """Messages that members were given, the same one each time."""
    again: int = 0
    """Of these, how many not for the first time."""
    owners: int = 0
    """How often a queue got an owner whom it showed a message."""
    fates: dict[str, int] = field(default_factory=dict)
    """What became of members → how often."""
    failed: int = 0
    """How often a member could do nothing with a message."""
    dead: int = 0
    """Messages among the dead letters."""
    copies: int = 0
    """Copies of failed messages that members were given; not part of `delivered`."""
    pauses: dict[int, float] = field(default_factory=dict)
    """Queue → longest time under load without a message for anybody, in seconds."""

    @property
    def longest_pause(self) -> float:
        """Of all queues."""
        return max(self.pauses.values(), default=0.0)


def judge_group(
    records: Sequence[Record],
    stored: Mapping[int, Sequence[Stored]],
    load: tuple[float, float],
    verdict: Verdict,
    attempts: int = 1,
    losses: Sequence[tuple[float, float]] = (),
) -> GroupFigures:
    """Check everything; what is wrong goes into `verdict`.

    Args:
        records: of all clients.
        stored: queue → what its replicas hold, in the order of offsets.
        load: when the load began and ended, in seconds of the records.
        verdict: what is wrong goes in there.
        attempts: how often a message has to fail to be a dead letter.
        losses: from when to when name servers forgot, one after the other: of what was committed
            since one began, nothing need be left once it is over.
    """
    known = Fates((r for r in records if isinstance(r, Fate)), fates.unserved(records))
    given: defaultdict[int, list[Consumed]] = defaultdict(list)
    committed: defaultdict[int, list[Committed]] = defaultdict(list)
    for record in records:
        if isinstance(record, Consumed):
            given[record.queue].append(record)
        elif isinstance(record, Committed):
            committed[record.queue].append(record)
    counted = (fates.JOINED, fates.LEFT, fates.UNHEARD, fates.KILLED, fates.PAUSED, fates.OUT)
    figures = GroupFigures(fates={what: known.count(what) for what in counted})
    everything = sorted((r for rows in given.values() for r in rows), key=lambda record: record.at)
    figures.failed = sum(record.count for record in everything if record.failed)
    dead = {record.name for record in records if isinstance(record, Dead)}
    figures.dead = len(dead)
    tried = failures(everything, dead)
    if any(map(known.count, fates.LOST)):
        tried.update(dead & blamed(everything))
    for stream, number in sorted(dead):
        if tried[stream, number] < attempts:
            detail = f"{stream.producer}/{number}: {tried[stream, number]} of {attempts}"
            verdict.found(UNTRIED, detail)
    for (stream, number), member in sorted(unmended(everything, dead).items()):
        verdict.found(UNCONSUMED, f"{stream.producer}/{number} failed at {member}, and no more")
    logs = {queue: Log(queue, rows) for queue, rows in sorted(stored.items())}
    logs[RETRIES] = _copies(given[RETRIES])
    for queue, log in logs.items():
        mine = sorted(given[queue], key=lambda record: record.at)
        judge = _Queue(queue, log, known, figures, verdict, losses)
        judge.owners(mine)
        judge.deliveries(mine, committed[queue])
        judge.commits(mine, committed[queue])
        if queue != RETRIES:
            times = [record.at for record in mine]
            figures.pauses[queue] = round(longest_gap(times, *load), 3)
    return figures


def failures(
    given: Iterable[Consumed], names: Collection[tuple[Stream, int]]
) -> Counter[tuple[Stream, int]]:
    """How often each of these messages failed."""
    counted: Counter[tuple[Stream, int]] = Counter()
    for record in given:
        if record.failed:
            numbers = range(record.first, record.first + record.count)
            counted.update((record.stream, n) for n in numbers if (record.stream, n) in names)
    return counted


def blamed(given: Iterable[Consumed]) -> set[tuple[Stream, int]]:
    """Messages that failed as the first that an owner of their queue was given.

    If the owner before was lost, it counts as an attempt with this message, which it may have had in
    its hands; nobody writes that down.

    Args:
        given: what members were given, in order of time.
    """
    owners: set[tuple[int, int]] = set()
    found: set[tuple[Stream, int]] = set()
    for record in given:
        owner = record.queue, record.owner_epoch
        if record.failed and (record.owner_epoch == NOBODY or owner not in owners):
            found.add((record.stream, record.first))
        owners.add(owner)
    return found


def unmended(
    given: Iterable[Consumed], dead: Collection[tuple[Stream, int]] = ()
) -> dict[tuple[Stream, int], str]:
    """(stream, number) of messages that failed and were done by nobody → who had them last.

    Args:
        given: what members were given, in any order.
        dead: those among the dead letters, which nobody need be done with.
    """
    given = list(given)
    failed: dict[tuple[Stream, int], str] = {}
    for record in given:
        if record.failed:
            for number in range(record.first, record.first + record.count):
                if (record.stream, number) not in dead:
                    failed[record.stream, number] = record.member
    numbers: defaultdict[Stream, list[int]] = defaultdict(list)
    for stream, number in sorted(failed):
        numbers[stream].append(number)
    for record in given:
        known = [] if record.failed else numbers.get(record.stream, [])
        for number in known[bisect_left(known, record.first) :]:
            if number >= record.first + record.count:
                break
            failed.pop((record.stream, number), None)
    return failed


def lasting(
    committed: Sequence[Committed], losses: Sequence[tuple[float, float]]
) -> list[Committed]:
    """What was committed, without what name servers may have forgotten since."""
    return [
        each for each in committed if not any(since < each.at <= until for since, until in losses)
    ]


def forgets(losses: Sequence[tuple[float, float]], done: float, later: float) -> bool:
    """Whether name servers may have forgotten, by a later time, what was committed after `done`."""
    return any(done <= until and since <= later for since, until in losses)


def _copies(given: Iterable[Consumed]) -> Log:
    """The queue of copies, as members tell of it: nobody else knows what it holds."""
    rows: list[Stored] = []
    end = 0
    for record in sorted(given, key=lambda record: (record.offset, record.at)):
        skipped = end - record.offset
        if skipped < record.count:
            first = max(0, skipped)
            rows.append(
                Stored(
                    record.offset + first, record.stream, record.first + first, record.count - first
                )
            )
            end = record.offset + record.count
    return Log(RETRIES, rows)


class _Queue:
    """One queue of the group."""

    def __init__(
        self,
        queue: int,
        log: Log,
        known: Fates,
        figures: GroupFigures,
        verdict: Verdict,
        losses: Sequence[tuple[float, float]],
    ) -> None:
        self._queue = queue
        self._log = log
        self._fates = known
        self._figures = figures
        self._verdict = verdict
        self._losses = losses

    def owners(self, given: Sequence[Consumed]) -> None:
        """P9: one owner per owner epoch, which is a process: a static member has a new epoch after
        each restart."""
        owners: dict[int, str] = {}
        for record in given:
            if record.owner_epoch == NOBODY:
                continue
            owner = owners.setdefault(record.owner_epoch, record.member)
            if owner != record.member:
                detail = f"{self._where(record)}, whose owner is {owner}"
                self._verdict.found(TWO_OWNERS, detail, record.count)
        if self._queue != RETRIES:
            self._figures.owners += len(owners)

    def deliveries(self, given: Sequence[Consumed], committed: Sequence[Committed]) -> None:
        """What members were given is what is stored, and nothing came again that must not."""
        last = array("i", [NOBODY]) * self._log.end
        committed = lasting(committed, self._losses)
        seen = [each.at for each in committed]
        highest = [0, *accumulate((each.offset for each in committed), max)]
        if self._queue == RETRIES:
            self._figures.copies += sum(record.count for record in given)
        else:
            self._figures.delivered += sum(record.count for record in given)
        for number, record in enumerate(given):
            first, stop = record.offset, record.offset + record.count
            for detail in self._log.differing(first, record.stream, record.first, record.count):
                self._verdict.found(UNSTABLE, f"{record.member} was given at {detail}")
            before = last[first:stop]
            if any(one != NOBODY for one in set(before)):
                self._again(record, given, before)
            below = min(stop, highest[bisect_left(seen, record.at)]) - first
            if below > 0 and not self._fates.behind(record.member, record.at):
                detail = f"{self._where(record)}, {below} of {record.count} were committed"
                self._verdict.found(COMMITTED_AGAIN, detail, below)
            last[first:stop] = array("i", [number]) * len(before)
        if missing := last.count(NOBODY):
            at = last.index(NOBODY)
            self._verdict.found(
                UNCONSUMED, f"queue {self._queue}: {missing} messages, the first at {at}", missing
            )

    def _again(self, record: Consumed, given: Sequence[Consumed], before: array[int]) -> None:
        """Some were given to somebody before: only what that one could not commit may come again."""
        if self._queue != RETRIES:
            self._figures.again += len(before) - before.count(NOBODY)
        if self._fates.behind(record.member, record.at):
            return
        for number in set(before) - {NOBODY}:
            former = given[number]
            # Whoever could not send a copy of what failed has it once more.
            if (
                not former.failed
                and not self._fates.undone(former.member, former.at)
                and not forgets(self._losses, former.at, record.at)
            ):
                where = f"{self._where(record)}, finished by {self._where(former)}"
                self._verdict.found(AGAIN, where, before.count(number))

    def commits(self, given: Sequence[Consumed], committed: Sequence[Committed]) -> None:
        """P8: a committed offset never goes back, and covers only what was finished."""
        finished = _Floor()
        place = at = 0
        for each in lasting(committed, self._losses):
            if each.offset < at:
                detail = f"queue {self._queue}: from {at} to {each.offset}"
                self._verdict.found(BACK, detail, at - each.offset)
            at = each.offset
            while place < len(given) and given[place].at <= each.at:
                finished.add(given[place].offset, given[place].offset + given[place].count)
                place += 1
            if at > finished.floor:
                detail = f"queue {self._queue}: {at} is committed, {finished.floor} was not given"
                self._verdict.found(UNFINISHED, detail, at - finished.floor)
        if at != self._log.end:
            detail = f"queue {self._queue}: at {at} of {self._log.end} in the end"
            self._verdict.found(UNCONSUMED, detail, abs(self._log.end - at))

    def _where(self, record: Consumed) -> str:
        span = f"{record.offset} to {record.offset + record.count - 1}"
        epoch = f"in owner epoch {record.owner_epoch} at {record.at:.2f}"
        return f"queue {record.queue}, {span}: {record.member} {epoch}"


class _Floor:
    """The offset below which everything was added, in whatever order."""

    def __init__(self) -> None:
        self.floor = 0
        self._above: list[tuple[int, int]] = []

    def add(self, first: int, stop: int) -> None:
        """One more range; it may overlap others."""
        self._above.append((first, stop))
        if first > self.floor:
            return
        self._above.sort()
        left = []
        for begin, end in self._above:
            if begin <= self.floor:
                self.floor = max(self.floor, end)
            else:
                left.append((begin, end))
        self._above = left
