"""Growing and shrinking the ISRs of the queues that this broker leads (Q6, Q7).

Requests of one moment share one AlterIsr. While its outcome is unknown, the queue has no other
change in flight, and followers that were asked to be added count for the HW. The outcome is known
when the metadata has reached the version that the answer named.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica.leadership import REFUSED_PAUSE, Leadership, PendingIsrChange
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.commands import AlterIsr, CommandResult, IsrChange

MAX_REQUEST_BYTES: Final = 12 * 1024
"""Bytes of changes in one command: of a hundred queues or so, since every name server applies them in
one turn. A log entry could hold 60 KiB."""


class _IsrRequest(NamedTuple):
    replica: Replica
    leading: Leadership
    pending: PendingIsrChange
    change: IsrChange

    @property
    def stands(self) -> bool:
        """True while its outcome is awaited."""
        return self.replica.leading is self.leading and self.leading.pending is self.pending


class IsrKeeper(Service):
    """The ISR changes of all queues, followed to their outcome."""

    def __init__(self, context: BrokerContext) -> None:
        self._me = context.me
        self._out_of_sync_s = context.config.out_of_sync_ms / 1000
        self._queues = context.queues
        self._routes = context.routes
        self._applied = context.applied
        self._registration = context.registration
        self._proposals = context.proposals
        self._stats = context.stats
        self._wishes: dict[QueueKey, _IsrRequest] = {}
        self._asking = False
        self._unsettled: dict[QueueKey, Replica] = {}

    def position_counted(self, replica: Replica, broker: str) -> None:
        """Count the HW again after a follower's report, and let the follower join if it may."""
        leading = replica.leading
        if leading is None:
            return
        self._queues.recount(replica)
        if broker in leading.isr:
            return
        now = leading.followers[broker].seen_at
        heard = {broker: now}
        if leading.may_join(broker, replica.hw, replica.end, now, self._out_of_sync_s, heard):
            self.grow(replica, broker)

    def grow(self, replica: Replica, broker: str) -> None:
        """Ask to add a follower that has everything it needs; it counts from now on (Q6)."""
        leading = replica.leading
        if leading is None:
            return
        self._wish(replica, leading, (*leading.isr, broker), (broker,))
        self._stats.count("isr_growths")

    def shrink(self, replica: Replica, slow: list[str]) -> None:
        """Ask to remove members that are out of sync; they count until the outcome is known."""
        leading = replica.leading
        if leading is None or leading.pending is not None:
            return
        kept = tuple(broker for broker in leading.isr if broker not in slow)
        self._wish(replica, leading, kept, ())
        self._stats.count("isr_shrinks")

    def _wish(
        self, replica: Replica, leading: Leadership, isr: tuple[str, ...], added: tuple[str, ...]
    ) -> None:
        members = [(broker, self._epoch_of(leading, broker)) for broker in isr]
        change = IsrChange(replica.topic_id, replica.queue, leading.epoch, leading.version, members)
        pending = leading.pending = PendingIsrChange(added, leading.version)
        self._wishes[replica.key] = _IsrRequest(replica, leading, pending, change)

    def _epoch_of(self, leading: Leadership, broker: str) -> int:
        """Return the instance epoch for a member: that of the process whose position counts."""
        if broker == self._me:
            return self._registration.instance_epoch
        progress = leading.followers.get(broker)
        if broker not in leading.isr and progress is not None:
            return progress.instance_epoch
        known = self._routes.brokers.get(broker)
        return known.instance_epoch if known is not None else -1

    def propose(self, turn: BrokerTurn) -> None:
        """Propose the requested changes, if none is in flight."""
        if not self._wishes or self._asking or not self._registration.registered:
            return
        wishes = self._take()
        if not wishes:
            return
        self._asking = True
        command = AlterIsr(
            self._me,
            self._registration.instance_epoch,
            [wish.change for wish in wishes],
            turn.now.wall_ms,
        )
        self._proposals.propose(
            command, lambda result, later: self._decided(wishes, result, later), turn
        )

    def _take(self) -> list[_IsrRequest]:
        """Take the oldest requests that fit into one command; the others wait for its answer."""
        wishes: list[_IsrRequest] = []
        room = MAX_REQUEST_BYTES
        for key, wish in list(self._wishes.items()):
            if room <= 0:
                break
            del self._wishes[key]
            if wish.stands:
                wishes.append(wish)
                room -= _size(wish.change)
        return wishes

    def _decided(self, wishes: list[_IsrRequest], result: CommandResult, turn: BrokerTurn) -> None:
        self._asking = False
        codes = result.value if isinstance(result.value, list) else []
        for at, wish in enumerate(wishes):
            if not wish.stands:
                continue
            if result.code or (at < len(codes) and codes[at]):
                self._refused(wish, turn.mono)
            wish.pending.resolved_at = result.version
            self._unsettled[wish.replica.key] = wish.replica
        self.settle()
        self.propose(turn)

    def _refused(self, wish: _IsrRequest, now: float) -> None:
        self._stats.count("isr_refusals")
        for broker in wish.pending.added:
            progress = wish.leading.followers.get(broker)
            if progress is not None:
                progress.pause_until = now + REFUSED_PAUSE

    def settle(self) -> None:
        """End the changes whose outcome is known from an answer, or the roles here (Q6)."""
        for key, replica in list(self._unsettled.items()):
            leading = replica.leading
            if leading is None or leading.pending is None:
                del self._unsettled[key]
            elif leading.settle(self._applied.version):
                del self._unsettled[key]
                self._queues.recount(replica)

    def fenced(self, turn: BrokerTurn) -> None:
        """Forget all changes: this broker's instance epoch is over, and it leads nothing."""
        self._wishes.clear()
        self._unsettled.clear()
        self._asking = False


def _size(change: IsrChange) -> int:
    """Return an upper bound of the bytes that a change takes in a command."""
    return 40 + sum(12 + len(broker) for broker, _ in change.isr)
