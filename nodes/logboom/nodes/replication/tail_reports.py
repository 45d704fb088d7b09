"""Reports of log ends after a recovery of the name servers, by which queues get leaders again (R15).

The name servers may have lost who was in sync, and moves. So no queue has a leader before enough of its
replicas have told how far their logs go. A log cannot change while its queue has no leader, thus one
report per leader epoch is enough. It is made once the replica has its role by that metadata: before, it
may still lead or follow as it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replication.replica_repair import TAILS_AT_ONCE
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.commands import QueueTail, ReportTails
from logboom.wire.view import QueueView


class TailReports(Service):
    """The log ends that this broker has to report under its registration."""

    def __init__(self, context: BrokerContext) -> None:
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._applied = context.applied
        self._registration = context.registration
        self._proposals = context.proposals
        self._told: dict[QueueKey, int] = {}
        """Queue without a leader → its leader epoch."""
        self._complete = False
        """True once all of this registration were told."""

    def fenced(self, turn: BrokerTurn) -> None:
        """Forget what was told: the name servers do, too."""
        self._told.clear()
        self._complete = False

    def report(self, topics: Sequence[str], turn: BrokerTurn) -> None:
        """Report the logs of queues that have no leader, of topics whose queues have their roles."""
        routes, registration = self._routes, self._registration
        # Under older metadata a log may still be followed.
        if (
            not routes.recoveries
            or not registration.registered
            or routes.version < registration.version
        ):
            return
        applied = self._applied
        if not self._complete and (applied.version < routes.version or applied.opens):
            # All are reported, once all are open and have their roles.
            return
        replicas = self._of(topics) if self._complete else self._queues
        tails = [tail for each in replicas if (tail := self._tail(each)) is not None]
        if not tails and self._complete:
            return
        shares = [tails[at : at + TAILS_AT_ONCE] for at in range(0, len(tails), TAILS_AT_ONCE)]
        for share in shares[:-1]:
            self._report(share, turn, complete=False)
        self._report(shares[-1] if shares else [], turn, complete=True)
        self._complete = True

    def _of(self, topics: Sequence[str]) -> Iterable[Replica]:
        """Yield the replicas of these topics, those that are kept aside included."""
        for topic in [each for name in topics if (each := self._routes.topics.get(name))]:
            for number in range(len(topic.queues)):
                replica = self._queues.replicas.get((topic.id, number))
                if replica is not None:
                    yield replica

    def _tail(self, replica: Replica) -> QueueTail | None:
        """Return what is to be reported of a replica, or None."""
        view = self._view(replica)
        if view is None or view.leader is not None or replica.damage is not None:
            self._told.pop(replica.key, None)
            return None
        if self._told.get(replica.key) == view.leader_epoch:
            return None
        self._told[replica.key] = view.leader_epoch
        return QueueTail(*replica.key, replica.epochs.last, *replica.end)

    def _view(self, replica: Replica) -> QueueView | None:
        topic = self._routes.topics.get(self._routes.names.get(replica.topic_id, ""))
        if topic is None or replica.queue >= len(topic.queues):
            return None
        return topic.queues[replica.queue]

    def _report(self, tails: list[QueueTail], turn: BrokerTurn, *, complete: bool) -> None:
        epoch, wall_ms = self._registration.instance_epoch, turn.now.wall_ms
        command = ReportTails(self._me, epoch, tails, wall_ms, complete)
        self._proposals.propose(command, lambda _result, _later: None, turn)
