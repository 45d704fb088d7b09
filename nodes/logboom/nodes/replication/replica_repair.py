"""The repair of damaged replicas: out of the ISR first, then fetched again (Q14).

A damaged replica is marked on disk and then reported. The name server removes it from the ISR, and
moves the leadership if another replica can lead. Only then is the log truncated where it is
damaged, and fetched again from there. Once it has everything below the leader's HW it is reported
as repaired. If no other replica can lead, it serves what it can and answers DATA_DAMAGED for the
rest.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import Position
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replica.request_errors import damaged
from logboom.nodes.replication.damage_marks import DamageMark, drop_mark, put_mark, read_mark
from logboom.nodes.turn import BrokerTurn, Figures, Service
from logboom.wire.actor import note
from logboom.wire.commands import CommandResult, QueueTail, ReportDamage, ReportTails
from logboom.wire.errors import DamagedBatch, DataDamaged, LogboomError, Unavailable

REPORTED_AT_ONCE: Final = 1_000
"""Queues in one report: a command has at most 60 KiB."""
TAILS_AT_ONCE: Final = 1_000
"""Log ends in one report."""
NAMED_DAMAGES: Final = 20
"""Damaged queues that STATS name."""
UNKNOWN: Final = 1 << 62
"""Token of a mark that is not written yet."""


class ReplicaRepair(Service):
    """The damaged replicas, and the progress of their repair."""

    def __init__(
        self,
        context: BrokerContext,
        halt: Callable[[Replica], None],
        refetch: Callable[[Replica], None],
    ) -> None:
        """Restore what is known of damage from before this start.

        Args:
            context: what all parts of the broker share.
            halt: ends the fetching of a replica that was found damaged.
            refetch: called when a replica was truncated and may follow its leader again.
        """
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._applied = context.applied
        self._registration = context.registration
        self._proposals = context.proposals
        self._stats = context.stats
        self._halt = halt
        self._refetch = refetch
        self._asking = False
        self._synced = 0
        """Token up to which everything is on disk."""
        self._unreported: dict[QueueKey, int] = {}
        """Damage that is not reported yet, and the token whose sync brings the mark to disk."""
        self._reported: dict[QueueKey, int] = {}
        """Metadata version from which on everybody knows of the report."""
        self._mending: dict[QueueKey, None] = {}
        self._mended: dict[QueueKey, None] = {}
        """Replicas that are intact again, which the name servers do not know yet."""
        self._untold: dict[QueueKey, None] = {}
        """Damage that is not logged yet, because the names of its topics are not known."""
        for replica in self._queues:
            self._remember(replica)

    def _remember(self, replica: Replica) -> None:
        """Restore what was known of a replica's damage before this start."""
        if replica.damage is None:
            try:
                mark = read_mark(self._queues.storage, replica.key)
            except DataDamaged as error:
                replica.damage, replica.damaged_at = error.text, Position(replica.start)
            else:
                if mark is None:
                    return
                if mark.mending:
                    replica.damage = "it was damaged and is fetched again"
                    self._mending[replica.key] = None
                    return
                replica.damage, replica.damaged_at = "an entry was found damaged", mark.at
        # Damage that an opening finds at no certain position needs no mark: the next one finds it
        # again.
        certain = replica.damaged_at is not None and replica.damaged_at > Position(replica.start)
        self._unreported[replica.key] = UNKNOWN if certain else 0
        self._untold[replica.key] = None

    def __len__(self) -> int:
        return len(self._unreported) + len(self._reported) + len(self._mending)

    def found(self, replica: Replica, error: DamagedEntry) -> None:
        """Note that an entry could not be read."""
        if replica.damaged_at is not None and replica.damaged_at <= error.position:
            return
        self._stats.count("damages")
        replica.damage, replica.damaged_at = error.text, error.position
        for table in (self._mending, self._mended, self._reported):
            table.pop(replica.key, None)
        self._unreported[replica.key] = UNKNOWN
        self._untold[replica.key] = None
        self._halt(replica)

    def may_move(self, replica: Replica) -> bool:
        """Return True if another broker may lead the queue without our knowledge.

        This lasts from the discovery of damage until the outcome of its report is known here.
        """
        if replica.key in self._unreported:
            return True
        return self._reported.get(replica.key, -1) > self._applied.version

    def refusal(self, replica: Replica) -> LogboomError:
        """Build the error for a reader of the damaged position."""
        version = self._reported.get(replica.key)
        if version is None or self._applied.version < version:
            return Unavailable(
                f"queue {replica.queue} of {replica.topic!r} is damaged here and moves to another "
                "broker: ask again"
            )
        return damaged(replica, replica.damage or "an entry cannot be read")

    def may_follow(self, replica: Replica) -> bool:
        """Return True if a replica may fetch: not while it is damaged."""
        return replica.damage is None or replica.key in self._mending

    def registered(self, turn: BrokerTurn) -> None:
        """Report all damage under the new instance epoch, and the log ends of a suspect store."""
        self._asking = False
        for replica in self._queues:
            if replica.damage is not None and replica.key not in self._mending:
                self._unreported.setdefault(replica.key, 0)
        self._reported.clear()
        if self._queues.storage.suspect:
            self._report_tails(turn)
        self.step(turn)

    def _report_tails(self, turn: BrokerTurn) -> None:
        tails = [
            QueueTail(*replica.key, replica.epochs.last, *replica.end)
            for replica in self._queues
            if replica.damage is None
        ]
        for at in range(0, len(tails), TAILS_AT_ONCE):
            share = tails[at : at + TAILS_AT_ONCE]
            epoch, wall_ms = self._registration.instance_epoch, turn.now.wall_ms
            command = ReportTails(self._me, epoch, share, wall_ms)
            self._proposals.propose(command, lambda _result, _later: None, turn)

    def figures(self, now: float) -> Figures:
        """Return how many queues are damaged, and the names of some."""
        return {"damaged": len(self), "damaged_queues": " ".join(self.names()[:NAMED_DAMAGES])}

    def synced(self, token: int, turn: BrokerTurn) -> None:
        """Note that everything up to `token` is on disk."""
        self._synced = token

    def deadline(self) -> float:
        """Return when `step` is due: at once, or not before the next event."""
        if not (self._unreported or self._mending or self._mended):
            return float("inf")
        tokens = self._unreported.values()
        marked = any(token <= self._synced for token in tokens) if tokens else self._mended
        may_report = not self._asking and self._registration.registered
        if UNKNOWN in tokens or (marked and may_report) or any(map(self._is_whole, self._mending)):
            return float("-inf")
        return float("inf")

    def forget(self, replica: Replica) -> None:
        """Forget a replica that was dropped."""
        for table in (
            self._unreported,
            self._reported,
            self._mending,
            self._mended,
            self._untold,
        ):
            table.pop(replica.key, None)

    def step(self, turn: BrokerTurn) -> None:
        """Mark and report new damage, truncate where that is allowed, and report what is repaired."""
        if self._untold:
            self._tell(turn)
        for key, token in self._unreported.items():
            replica = self._queues.replicas.get(key)
            if token == UNKNOWN and replica is not None:
                put_mark(turn.writes, key, DamageMark(False, replica.damaged_at or Position(0)))
                self._unreported[key] = self._queues.token + 1
        if self._reported:
            self._cut_reported(turn)
        if self._mending:
            self._look_after(turn)
        if not (self._unreported or self._mended):
            return
        if not self._asking and self._registration.registered:
            self._report_next(turn)

    def _tell(self, turn: BrokerTurn) -> None:
        """Log what is damaged, and what happens to it."""
        for key in list(self._untold):
            replica = self._queues.replicas.get(key)
            topic = self._routes.topics.get(replica.topic) if replica is not None else None
            if replica is None or topic is None or replica.queue >= len(topic.queues):
                continue
            del self._untold[key]
            at = replica.damaged_at or Position(replica.start)
            if topic.queues[replica.queue].replicas == [self._me]:
                then = (
                    "This is its only replica: what can be read is served, the rest is answered with "
                    "DATA_DAMAGED; `logboom store inspect` lists what the stopped broker's folder holds"
                )
            else:
                then = "It leaves the in-sync replicas and is fetched again from another broker"
            turn.out.notes.append(
                note(
                    "damage_found",
                    topic=topic.name,
                    queue=replica.queue,
                    offset=at.offset,
                    error=replica.damage,
                    text=then,
                )
            )

    def names(self) -> list[str]:
        """Return topic and number of each queue that is damaged here or under repair."""
        keys = {**self._unreported, **self._reported, **self._mending}
        replicas = (self._queues.replicas.get(key) for key in keys)
        return sorted(f"{each.topic}/{each.queue}" for each in replicas if each is not None)

    def _report_next(self, turn: BrokerTurn) -> None:
        marked = (key for key, token in self._unreported.items() if token <= self._synced)
        keys = list(islice(marked, REPORTED_AT_ONCE))
        if not keys and not self._unreported:
            mended = list(islice(self._mended, REPORTED_AT_ONCE))
            if mended:
                self._report(mended, True, turn)
        elif keys:
            self._report(keys, False, turn)

    def _report(self, keys: list[QueueKey], mended: bool, turn: BrokerTurn) -> None:
        self._asking = True
        command = ReportDamage(
            self._me, self._registration.instance_epoch, keys, mended, turn.now.wall_ms
        )
        self._proposals.propose(
            command, lambda result, later: self._decided(keys, mended, result, later), turn
        )

    def _decided(
        self, keys: list[QueueKey], mended: bool, result: CommandResult, turn: BrokerTurn
    ) -> None:
        if result.code:
            # Fenced: nothing was done. After the registration, everything is reported again.
            return
        self._asking = False
        for key in keys:
            if not mended and self._unreported.get(key, UNKNOWN) != UNKNOWN:
                del self._unreported[key]
                self._reported[key] = result.version
            elif mended and key in self._mended:
                del self._mended[key]
                drop_mark(turn.writes, key)
        self.step(turn)

    def _cut_reported(self, turn: BrokerTurn) -> None:
        """Truncate and refetch reported replicas that have left the ISR and have another leader."""
        for key, version in list(self._reported.items()):
            replica = self._queues.replicas.get(key)
            if replica is None:
                del self._reported[key]
                continue
            topic = self._routes.topics.get(replica.topic)
            if topic is None or self._applied.version < version:
                continue
            view = topic.queues[replica.queue]
            if view.leader in (None, self._me) or self._me in view.isr:
                continue
            del self._reported[key]
            self._mending[key] = None
            self._cut(replica, turn)
            self._refetch(replica)

    def _cut(self, replica: Replica, turn: BrokerTurn) -> None:
        """Truncate the log where it is damaged. Entries before that stay if they are readable."""
        self._stats.count("damage_cuts")
        place = replica.damaged_at
        try:
            if place is None or place <= Position(replica.start):
                replica.wipe(turn.writes)
            else:
                replica.cut(place, turn.writes, self._queues.storage)
        except (DataDamaged, DamagedBatch):
            replica.wipe(turn.writes)
        put_mark(turn.writes, replica.key, DamageMark(True, replica.end))
        replica.damaged_at = None
        self._queues.touch(replica)

    def _is_whole(self, key: QueueKey) -> bool:
        """Return True if a replica that was cut has everything again.

        If it became leader meanwhile, its log is the queue now.
        """
        replica = self._queues.replicas.get(key)
        return replica is not None and (
            replica.role == "leader"
            or (
                replica.leader_hw is not None
                and replica.synced >= replica.leader_hw
                and replica.compaction.lacks is None
            )
        )

    def _look_after(self, turn: BrokerTurn) -> None:
        for key in list(self._mending):
            replica = self._queues.replicas.get(key)
            if replica is None:
                del self._mending[key]
            elif self._is_whole(key):
                del self._mending[key]
                replica.damage = replica.damaged_at = None
                # What became committed while it was damaged was neither applied nor indexed.
                self._queues.hw_moved(replica)
                self._mended[key] = None
                self._stats.count("mended")
                turn.out.notes.append(
                    note("damage_mended", topic=replica.topic, queue=replica.queue)
                )
