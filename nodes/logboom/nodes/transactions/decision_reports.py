"""Who is told that a decision was carried out: the name servers, and who waits for it (T3).

Both once it lies below the HW of the queue's leader. A new leader reports again what it finds done:
a decision lives until all its queues have reported.
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.cluster.registration import Registration
from logboom.nodes.replica.leader_lookup import find_led_replica
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replica.replica_table import ReplicaTable
from logboom.nodes.replica.request_errors import not_leader
from logboom.nodes.requests.holds import Hold, Holds
from logboom.nodes.transactions.decision_executor import DecisionExecutor
from logboom.nodes.turn import BrokerTurn
from logboom.wire.actor import PeerAddress
from logboom.wire.commands import CommandResult
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.messages import Ok
from logboom.wire.routes import Routes
from logboom.wire.transactions import AppliedDecision, AwaitDecided, ReportDecided

AT_ONCE: Final = 1_000
"""Decisions in one command: some 20 KiB of the 60 that it may have."""
UNDER_WAY: Final = 4
"""Commands under way; what is done meanwhile shares the next one."""
REFUSED_PAUSE: Final = 1.0
"""Seconds before a refused report is repeated."""
GATHER: Final = 0.5
"""Seconds between two commands, while there are many decisions. Nobody waits for a report: who awaits
a decision is answered here. The first one after a rest goes at once."""
LONGEST_HOLD_MS: Final = 60_000


class DecisionReports:
    """Reports and answers of what was carried out."""

    def __init__(
        self,
        me: str,
        queues: ReplicaTable,
        routes: Routes,
        registration: Registration,
        proposals: ProposalQueue,
        deciding: DecisionExecutor,
    ) -> None:
        """`proposals` are this part's own."""
        self._me = me
        self._queues = queues
        self._routes = routes
        self._registration = registration
        self._proposals = proposals
        self._deciding = deciding
        self._holds: Holds[QueueKey, AwaitDecided] = Holds()
        self._done: dict[AppliedDecision, None] = {}
        self._refused: dict[QueueKey, None] = {}
        self._again_at = 0.0
        """When the refused ones are repeated."""
        self._under_way = 0
        self._proposed_at = float("-inf")

    def __len__(self) -> int:
        return len(self._holds)

    def settle(self, replica: Replica, turn: BrokerTurn) -> None:
        """Decisions were carried out, or a leadership began that finds some done."""
        leading, done = replica.leading, replica.parked.done
        if leading is None:
            return
        known = (done, replica.applied >= leading.election_end, self._routes.version)
        if known != leading.settled:
            leading.settled = known
            for hold in self._holds.take(replica.key):
                if not self._answer(hold.address, hold.message, replica, turn):
                    self._holds.add(replica.key, hold.message.id, hold)
        if not leading.reported < done or replica.applied < leading.election_end:
            return
        for number in self._deciding.on(replica.key):
            if leading.reported < number <= done:
                self._done[AppliedDecision(number, *replica.key)] = None
        leading.reported = done

    def flush(self, turn: BrokerTurn) -> None:
        """Propose what is to be reported."""
        if not self._done or turn.mono < self._proposed_at + GATHER:
            return
        if self._under_way >= UNDER_WAY or not self._registration.registered:
            return
        self._proposed_at = turn.mono
        done = list(self._done)[:AT_ONCE]
        for each in done:
            del self._done[each]
        self._under_way += 1
        command = ReportDecided(self._me, self._registration.instance_epoch, done)
        self._proposals.propose(
            command, lambda result, later: self._reported(done, result, later), turn
        )

    def _reported(
        self, done: list[AppliedDecision], result: CommandResult, turn: BrokerTurn
    ) -> None:
        self._under_way -= 1
        for each in done if result.code else ():
            key = (each.topic_id, each.queue)
            replica = self._queues.replicas.get(key)
            if replica is not None and replica.leading is not None:
                replica.leading.reported = min(replica.leading.reported, each.number - 1)
                self._refused[key] = None
                self._again_at = turn.mono + REFUSED_PAUSE
        self.flush(turn)

    def fenced(self) -> None:
        """This broker's instance epoch is over: nobody takes its reports."""
        self._done.clear()
        self._refused.clear()
        self._proposals.drop_all()
        self._under_way = 0

    # ── who waits ───────────────────────────────────────────────────────────────────────────────

    def ask(self, address: PeerAddress, message: AwaitDecided, turn: BrokerTurn) -> None:
        """Answer once a decision is carried out."""
        try:
            replica, _ = find_led_replica(self._queues, self._routes, self._me, message)
            self._holds.check_room()
        except LogboomError as error:
            turn.refuse(address, message.id, error)
            return
        if not self._answer(address, message, replica, turn):
            wait = min(max(0, message.timeout_ms), LONGEST_HOLD_MS) / 1000
            self._holds.add(replica.key, message.id, Hold(address, message, turn.mono + wait))

    def _answer(
        self, address: PeerAddress, message: AwaitDecided, replica: Replica, turn: BrokerTurn
    ) -> bool:
        leading = replica.leading
        if leading is None or replica.applied < leading.election_end:
            return False
        waits = self._deciding.concerns(replica.key, message.number)
        if waits and replica.parked.done < message.number:
            return False
        turn.answer(address, Ok(message.id))
        return True

    def step(self, turn: BrokerTurn) -> None:
        """Repeat what was refused; let those go who have waited long, or at a leader that is none
        any more."""
        if self._refused and turn.mono >= self._again_at:
            refused, self._refused = self._refused, {}
            for key in refused:
                replica = self._queues.replicas.get(key)
                if replica is not None:
                    self.settle(replica, turn)
        if not len(self._holds):
            return
        for _, hold in self._holds.expired(turn.mono):
            text = f"decision {hold.message.number} is not carried out yet: ask again"
            turn.refuse(hold.address, hold.message.id, Unavailable(text, "BUSY"))
        for key in self._holds.keys():  # noqa: SIM118 - a method of ours
            replica = self._queues.replicas.get(key)
            if replica is not None and replica.leading is not None:
                continue
            for hold in self._holds.take(key):
                message = hold.message
                error = not_leader(self._routes, message.topic, message.queue, self._me)
                turn.refuse(hold.address, message.id, error)

    def learned(self, turn: BrokerTurn) -> None:
        """The metadata went forward: what it does not name any more was carried out."""
        for key in self._holds.keys():  # noqa: SIM118 - a method of ours
            replica = self._queues.replicas.get(key)
            if replica is not None:
                self.settle(replica, turn)

    def deadline(self) -> float:
        """When `step` is wanted next."""
        again_at = self._again_at if self._refused else float("inf")
        report_at = float("inf")
        if self._done and self._under_way < UNDER_WAY and self._registration.registered:
            report_at = self._proposed_at + GATHER
        return min(again_at, report_at, self._holds.deadline())
