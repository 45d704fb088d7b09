"""The scheduler of filtered pulls: each continues a little per turn, so that none stalls the loop.

A scan ends when it has found something, at the HW, or when its time is up; its reader then gets the
offset that it has reached. Unfinished scans go to the end of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica.batch_match import MatchQueue
from logboom.nodes.replica.entry_reader import (
    DamagedEntry,
    FilteredRead,
    filter_batches,
    readable_end,
)
from logboom.nodes.replica.pull_filter import PullFilter
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.requests.held_shares import HeldShares, Share
from logboom.nodes.requests.holds import Hold, Holds
from logboom.nodes.requests.read_replica_selector import ReadReplicaSelector
from logboom.nodes.turn import BrokerTurn, HeldRequest
from logboom.wire.actor import PeerAddress
from logboom.wire.errors import LogboomError
from logboom.wire.messages import Pull, Pulled

SLICE_UNITS: Final = 20_000
"""Units of work (`wire.filters.ScanBudget`) of one scan in one turn: some two milliseconds."""
SLICE_BYTES: Final = 1024 * 1024
"""Approximate bytes of entries that one scan reads in one turn."""
TURN_UNITS: Final = 40_000
"""Units of work of all scans in one turn."""
TURN_BYTES: Final = 4 * 1024 * 1024
"""Approximate bytes of entries that all scans read in one turn."""
LONGEST: Final = 1.0
"""Seconds after which a scan without a match reports its progress to its reader."""


@dataclass(slots=True)
class Scan:
    """One filtered pull; `message.offset` advances with it."""

    address: PeerAddress
    message: Pull
    key: QueueKey
    sieve: PullFilter
    deadline: float
    """When its reader stops waiting."""
    until: float
    """When it is answered with its progress; a batch that was begun is finished first."""
    woken: bool
    """True if it waited at the HW before, and returns there if it finds nothing."""
    moved: bool = False
    """True if it has skipped batches."""
    share: Share | None = None
    """What it counts for of all that waits."""


class ScanCost:
    """The cost of the scans of one turn."""

    __slots__ = ("size", "units")

    def __init__(self) -> None:
        self.units = 0
        self.size = 0

    @property
    def enough(self) -> bool:
        """True if the other scans have to wait for the next turn."""
        return self.units >= TURN_UNITS or self.size >= TURN_BYTES


class ScanScheduler:
    """The queue of scans in progress."""

    def __init__(
        self,
        context: BrokerContext,
        repair: ReplicaRepair,
        slow: ReadReplicaSelector,
        readable: Callable[[Pull], Replica],
        serve: Callable[[PeerAddress, Pull, Replica, BrokerTurn], bool],
        holds: Holds[QueueKey, Pull],
        shares: HeldShares,
    ) -> None:
        """Create the scheduler.

        Args:
            context: what all parts of the broker share.
            repair: the damaged replicas.
            slow: the choice of another replica for slow readers.
            readable: finds the replica that may answer, or raises why there is none.
            serve: answers pulls from outside the replica's log; False where they have to wait.
            holds: where a scan waits when it has reached the HW.
            shares: counts of what waits.
        """
        self._storage = context.storage
        self._stats = context.stats
        self._rights = context.rights
        self._repair = repair
        self._slow = slow
        self._readable = readable
        self._serve = serve
        self._holds = holds
        self._shares = shares
        self._line: dict[tuple[PeerAddress, int], Scan] = {}
        self._matching = MatchQueue()

    def __len__(self) -> int:
        return len(self._line)

    def begin(
        self,
        hold: Hold[Pull],
        key: QueueKey,
        sieve: PullFilter,
        turn: BrokerTurn,
        *,
        woken: bool = False,
    ) -> None:
        """Add a scan at the end of the queue; a repeated request replaces its earlier copy."""
        until = min(hold.deadline, turn.mono + LONGEST)
        address, message = hold.address, hold.message
        scan = Scan(address, message, key, sieve, hold.deadline, until, woken, hold.moved)
        scan.share = hold.share
        sieve.queue = self._matching
        name = (address, message.id)
        if name in self._line:
            self._take(name)
        if scan.share is not None:
            self._shares.add(scan.share)
        self._line[name] = scan

    def _take(self, name: tuple[PeerAddress, int]) -> Scan:
        """Remove a scan, which no longer waits."""
        scan = self._line.pop(name)
        if scan.share is not None:
            self._shares.remove(scan.share)
        return scan

    def take_if(self, key: QueueKey, wanted: Callable[[Pull], bool]) -> list[Scan]:
        """Remove and return the scans of a queue that are accepted."""
        line = self._line.items()
        names = [name for name, scan in line if scan.key == key and wanted(scan.message)]
        return [self._take(name) for name in names]

    def held(self) -> Iterator[HeldRequest]:
        """Yield the requests of all scans (`Service.held`)."""
        for name in list(self._line):
            scan = self._line.get(name)
            if scan is not None:
                yield HeldRequest(scan.address, scan.message, partial(self._take, name))

    def step(self, turn: BrokerTurn) -> None:
        """Continue each scan, as far as the turn's limits allow."""
        spent = ScanCost()
        for name in list(self._line):
            if spent.enough:
                return
            scan = self._line[name]
            if self._go_on(scan, spent, turn):
                self._take(name)
            else:
                # To the end of the line.
                self._line[name] = self._line.pop(name)

    def _go_on(self, scan: Scan, spent: ScanCost, turn: BrokerTurn) -> bool:
        """Continue a scan; True once it is answered or held."""
        address, message = scan.address, scan.message
        if not self._rights.allows(address, message, turn):
            return True
        try:
            replica = self._readable(message)
        except LogboomError as error:
            turn.refuse(address, message.id, error)
            return True
        if not replica.start <= message.offset < readable_end(replica, message).offset:
            # Retention has passed it, or the queue is led by another broker that is behind.
            if not self._serve(address, message, replica, turn):
                self._hold(scan, replica, turn)
            return True
        try:
            found = self._sift(scan, replica, spent)
        except DamagedEntry as error:
            self._repair.found(replica, error)
            turn.refuse(address, message.id, self._repair.refusal(replica))
            return True
        scan.moved |= found.next_offset > message.offset
        message.offset = found.next_offset
        if found.batches:
            self._answer(scan, replica, found, turn)
        elif message.offset < readable_end(replica, message).offset and (
            turn.mono < scan.until or scan.sieve.partial is not None
        ):
            return False
        elif scan.woken and turn.mono < scan.deadline:
            self._hold(scan, replica, turn)
        else:
            self._answer(scan, replica, found, turn)
        return True

    def _hold(self, scan: Scan, replica: Replica, turn: BrokerTurn) -> None:
        hold = Hold(
            scan.address, scan.message, scan.deadline, scan.moved, scan.share, since=turn.mono
        )
        self._holds.add(replica.key, scan.message.id, hold)

    def _sift(self, scan: Scan, replica: Replica, spent: ScanCost) -> FilteredRead:
        """Run one turn's part of a scan, and count its cost."""
        sieve = scan.sieve
        granted = min(SLICE_UNITS, sieve.left)
        budget = sieve.grant(granted)
        found = filter_batches(
            replica, self._storage, scan.message, sieve, budget, SLICE_BYTES, SLICE_UNITS
        )
        spent.units += found.guessed
        if sieve.looks:
            spent.units += sieve.settle(granted, budget)
        spent.size += found.size + found.passed
        replica.sent_bytes += found.size
        counters = self._stats.counters
        counters["pulled_batches"] += len(found.batches)
        counters["pulled_messages"] += found.messages
        counters["messages_out"] += found.messages
        counters["bytes_out"] += found.size
        counters["filter_passed_over_bytes"] += found.passed
        counters["filter_opened_batches"] += found.opened
        counters["filter_unseen_batches"] += found.unseen
        return found

    def _answer(self, scan: Scan, replica: Replica, found: FilteredRead, turn: BrokerTurn) -> None:
        message = scan.message
        turn.answer(
            scan.address,
            Pulled(
                message.id,
                "FOUND" if found.batches else "NO_MATCHED_MESSAGE",
                found.next_offset,
                replica.start,
                readable_end(replica, message).offset,
                self._slow.suggest(replica, message.group, found.next_offset),
                found.matches or None,
            ),
            found.batches,
        )
