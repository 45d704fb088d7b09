"""Aborts of transactions that stay undecided for too long, proposed by the leader of their queue.

The timeout is measured by the wall clocks of the leaders. If a clock was ahead, so that the parking
time is in the future, the timeout starts when this leader first sees the batch. No leader drops a
batch by its own clock (T2), since the name servers may have decided to commit in the meantime. They
answer with their decision, which is carried out like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.log.keys import Position
from logboom.nodes.parking.release_scheduler import is_certain
from logboom.nodes.replica import decision_rows as rows
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.commands import CommandResult
from logboom.wire.errors import DataDamaged
from logboom.wire.transactions import Decide, ParkedBatches, TransactionId

SCAN_INTERVAL_S: Final = 1.0
"""Seconds between two scans."""
LOOKED_AT: Final = 1_000
"""Oldest batches of a queue that one scan reads."""
PASSED_AT_ONCE: Final = 4_096
"""Queues that one turn passes over, …"""
LOOKED_PER_TURN: Final = 16
"""… and those with transactions that it looks at."""
ASKED_AT_ONCE: Final = 32
"""Aborts in flight."""
LAST_MS: Final = (1 << 63) - 1
"""Later than all times."""
UNFENCED: Final = -1
"""Stands for a producer epoch."""
ANSWERED_WITHIN: Final = 10.0
"""Seconds in which a decision must arrive before its abort is proposed again."""


class OrphanAborter(Service):
    """Finds transactions that have timed out, and proposes their abort."""

    def __init__(
        self,
        context: BrokerContext,
        proposals: ProposalQueue,
        on_damage: Callable[[Replica, DamagedEntry], None],
    ) -> None:
        self._settings = context.settings
        self._storage = context.storage
        self._queues = context.queues
        self._stats = context.stats
        self._proposals = proposals
        self._on_damage = on_damage
        self._asked: dict[tuple[QueueKey, TransactionId], float] = {}
        """When the abort of a transaction was proposed for a queue."""
        self._ahead: dict[tuple[QueueKey, TransactionId], float] = {}
        """When this leader first saw transactions whose parking time is in the future."""
        self._before: dict[tuple[QueueKey, TransactionId], float] = {}
        """The same by the scan before."""
        self._left: list[Replica] = []
        """Queues that the scan has yet to look at."""
        self._under_way = 0
        self.next_at = float("-inf")
        """Monotonic time of the next scan, or of the next part of one."""

    def deadline(self) -> float:
        """Return when `step` is wanted next."""
        return self.next_at

    def fenced(self, turn: BrokerTurn) -> None:
        """Forget all proposals: nothing is led any longer, and later leaders scan again."""
        self._asked.clear()
        self._ahead.clear()
        self._before.clear()
        self._left.clear()
        self._under_way = 0

    def step(self, turn: BrokerTurn) -> None:
        """Scan some of the queues that are led here, if it is time."""
        if turn.mono < self.next_at:
            return
        if not self._left:
            self._begin(turn)
        part = self._left[-PASSED_AT_ONCE:]
        del self._left[-PASSED_AT_ONCE:]
        # Nearly all queues wait for nothing, and a comprehension passes over thousands quickly.
        waiting = [each for each in part if each.parked.undecided]
        self._left += waiting[LOOKED_PER_TURN:]
        self.next_at = turn.mono + (0.0 if self._left else SCAN_INTERVAL_S)
        for replica in waiting[:LOOKED_PER_TURN]:
            leading = replica.leading
            if leading is None or not is_certain(replica, leading):
                continue
            try:
                self._look(replica, self._before, turn)
            except DataDamaged as error:
                self._on_damage(replica, DamagedEntry(error.text, Position(replica.start)))

    def _begin(self, turn: BrokerTurn) -> None:
        """Begin to scan all queues that are led here."""
        self._left = [*self._queues.led.values()]
        old = [name for name, at in self._asked.items() if at < turn.mono - ANSWERED_WITHIN]
        for name in old:
            del self._asked[name]
        self._before, self._ahead = self._ahead, {}

    def _look(
        self, replica: Replica, ahead: dict[tuple[QueueKey, TransactionId], float], turn: BrokerTurn
    ) -> None:
        wall_ms, now = turn.now.wall_ms, turn.mono
        late = dict.fromkeys(
            self._parked(replica, 0, wall_ms - self._settings.transaction_timeout_ms)
        )
        for transaction in self._parked(replica, wall_ms + 1, LAST_MS):
            name = (replica.key, transaction)
            seen = self._ahead[name] = ahead.get(name, now)
            if now - seen >= self._settings.transaction_timeout_ms / 1000:
                late[transaction] = None
        for transaction in late:
            name = (replica.key, transaction)
            if name not in self._asked and self._under_way < ASKED_AT_ONCE:
                self._asked[name] = now
                self._abort(replica, transaction, turn)

    def _parked(self, replica: Replica, since_ms: int, until_ms: int) -> list[TransactionId]:
        """Return the transactions of the oldest batches parked in this time.

        Raises:
            DataDamaged: the store cannot be read.
        """
        ids = replica.parked.ids
        found = rows.by_age(self._storage, ids, half=False, since_ms=since_ms, until_ms=until_ms)
        return [waits.transaction for _, _, waits in islice(found, LOOKED_AT)]

    def _abort(self, replica: Replica, transaction: TransactionId, turn: BrokerTurn) -> None:
        self._stats.count("orphans")
        self._under_way += 1
        parked = [ParkedBatches(*replica.key, [])]
        command = Decide(
            transaction.app_id,
            UNFENCED,
            transaction.sequence,
            transaction.attempt,
            False,
            parked,
            [],
            turn.now.wall_ms,
        )
        self._proposals.propose(command, self._decided, turn)

    def _decided(self, _result: CommandResult, _turn: BrokerTurn) -> None:
        self._under_way -= 1
