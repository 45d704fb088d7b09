"""Damaged replicas: out of the ISR before anything else, then fetched again (Q14).

A damaged replica is reported; the name server takes it out of the ISR and moves the leadership if
another can lead. Only then is it cut where it is damaged and fetched again, and reported mended
once it holds all below the leader's HW. If no other can lead it serves what it can, and answers
DATA_DAMAGED for the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from logboom.nodes.keys import Position
from logboom.nodes.proposals import Proposals
from logboom.nodes.queues import Queues
from logboom.nodes.reading import Damaged
from logboom.nodes.refusals import damaged
from logboom.nodes.registration import Registration
from logboom.nodes.replica import QueueKey, Replica
from logboom.nodes.stats import Statistics
from logboom.nodes.turn import Turn
from logboom.wire.commands import ReportDamage, Result
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.routes import Routes


class Damages:
    """What is damaged, and how far its mending has come."""

    def __init__(
        self,
        me: str,
        queues: Queues,
        routes: Routes,
        registration: Registration,
        proposals: Proposals,
        stats: Statistics,
        halt: Callable[[Replica], None],
        refetch: Callable[[Replica, Turn], None],
    ) -> None:
        """`halt` ends the fetching of a replica that was found damaged; `refetch` is called when
        it was cut and may follow its leader again."""
        self._me = me
        self._queues = queues
        self._routes = routes
        self._registration = registration
        self._proposals = proposals
        self._stats = stats
        self._halt = halt
        self._refetch = refetch
        self._asking = False
        self._unreported: dict[QueueKey, None] = {}
        self._reported: dict[QueueKey, int] = {}
        """Metadata version from which on the report is known to all."""
        self._mending: dict[QueueKey, None] = {}
        self._mended: dict[QueueKey, None] = {}
        for replica in queues:
            if replica.damage is not None:
                self._unreported[replica.key] = None

    def __len__(self) -> int:
        return len(self._unreported) + len(self._reported) + len(self._mending)

    def found(self, replica: Replica, error: Damaged) -> None:
        """An entry could not be read."""
        if replica.damaged_at is not None and replica.damaged_at <= error.position:
            return
        self._stats.count("damages")
        replica.damage, replica.damaged_at = error.text, error.position
        self._mending.pop(replica.key, None)
        self._unreported[replica.key] = None
        self._halt(replica)

    def refusal(self, replica: Replica) -> LogboomError:
        """What a reader of the damaged place is told."""
        version = self._reported.get(replica.key)
        if version is None or self._routes.version < version:
            return Unavailable(
                f"queue {replica.queue} of {replica.topic!r} is damaged here and moves to another "
                "broker: ask again"
            )
        return damaged(replica, replica.damage or "an entry cannot be read")

    def may_follow(self, replica: Replica) -> bool:
        """Whether a replica may fetch: not while its damage stands."""
        return replica.damage is None or replica.key in self._mending

    def registered(self) -> None:
        """A new instance epoch: all that is damaged is reported anew."""
        self._asking = False
        for replica in self._queues:
            if replica.damage is not None and replica.key not in self._mending:
                self._unreported[replica.key] = None
        self._reported.clear()

    def forget(self, replica: Replica) -> None:
        """The replica is dropped."""
        for table in (self._unreported, self._reported, self._mending, self._mended):
            table.pop(replica.key, None)

    def step(self, turn: Turn) -> None:
        """Report what is new, cut what may be cut, report what is mended."""
        if self._reported:
            self._cut_reported(turn)
        if self._mending:
            self._look_after(turn)
        if self._asking or not self._registration.registered:
            return
        if self._unreported:
            keys = list(self._unreported)
            self._report(keys, False, self._unreported, turn)
        elif self._mended:
            self._report(list(self._mended), True, self._mended, turn)

    def _report(
        self, keys: list[QueueKey], mended: bool, source: dict[QueueKey, None], turn: Turn
    ) -> None:
        self._asking = True
        source.clear()
        command = ReportDamage(
            self._me, self._registration.instance_epoch, keys, mended, turn.now.wall_ms
        )
        self._proposals.propose(
            command, lambda result, later: self._decided(keys, mended, result, later), turn
        )

    def _decided(self, keys: list[QueueKey], mended: bool, result: Result, turn: Turn) -> None:
        self._asking = False
        if not mended:
            for key in keys:
                self._reported[key] = result.version
        self.step(turn)

    def _cut_reported(self, turn: Turn) -> None:
        """Cut and fetch again what has left the ISR and another leads."""
        for key, version in list(self._reported.items()):
            replica = self._queues.replicas.get(key)
            if replica is None:
                del self._reported[key]
                continue
            topic = self._routes.topics.get(replica.topic)
            if topic is None or self._routes.version < version:
                continue
            view = topic.queues[replica.queue]
            if view.leader in (None, self._me) or self._me in view.isr:
                continue
            del self._reported[key]
            self._mending[key] = None
            self._cut(replica, turn)
            self._refetch(replica, turn)

    def _cut(self, replica: Replica, turn: Turn) -> None:
        if replica.damaged_at is None or replica.damaged_at <= Position(replica.start):
            replica.wipe(turn.writes)
        else:
            replica.cut(replica.damaged_at, turn.writes, self._queues.storage)
        self._queues.touch(replica)

    def _look_after(self, turn: Turn) -> None:
        for key in list(self._mending):
            replica = self._queues.replicas.get(key)
            if replica is None or replica.role == "leader":
                del self._mending[key]
                if replica is not None:
                    replica.damage = replica.damaged_at = None
            elif replica.leader_hw is not None and replica.synced >= replica.leader_hw:
                del self._mending[key]
                replica.damage = replica.damaged_at = None
                self._mended[key] = None
                self._stats.count("mended")
