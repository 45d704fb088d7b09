"""Reports of the decisions that were carried out, to the name servers and to waiting clients (T3).

Both are sent once the decision's entries are below the HW of the queue's leader. A new leader
reports again what it finds done, since a decision is kept until all of its queues have reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.replica.leader_lookup import find_led_replica
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replica.request_errors import not_leader
from logboom.nodes.requests.held_shares import HeldShares
from logboom.nodes.requests.holds import Hold, Holds
from logboom.nodes.transactions.decision_executor import DecisionExecutor
from logboom.nodes.turn import BrokerTurn, Figures, Handler, HeldRequest, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.commands import CommandResult
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.messages import Ok
from logboom.wire.transactions import AppliedDecision, AwaitDecided, ReportDecided

AT_ONCE: Final = 1_000
"""Decisions in one command: some 20 KiB of the 60 KiB that it may have."""
UNDER_WAY: Final = 4
"""Commands in flight. Decisions that are carried out meanwhile share the next one."""
REFUSED_PAUSE: Final = 1.0
"""Seconds before a rejected report is repeated."""
GATHER: Final = 0.5
"""Seconds between two commands while there are many decisions. Nobody waits for a report, since
waiting clients are answered here. The first report after a pause is sent immediately."""
LONGEST_HOLD_MS: Final = 60_000
LOOKED_AT_ONCE: Final = 200
"""Requests that a turn looks at after a change, queues with such requests, and requests that it ends."""


class DecisionReports(Service):
    """The reports, and the clients that wait for decisions."""

    def __init__(
        self, context: BrokerContext, proposals: ProposalQueue, decision_executor: DecisionExecutor
    ) -> None:
        """Create the reports; `proposals` must be used by nothing else but decisions."""
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._registration = context.registration
        self._rights = context.rights
        self._proposals = proposals
        self._decision_executor = decision_executor
        self._holds: Holds[QueueKey, AwaitDecided] = Holds(HeldShares(context.acceptor.peer))
        self._to_settle: dict[QueueKey, None] = {}
        """Queues whose requests a change of the metadata may concern."""
        self._woken: dict[QueueKey, int] = {}
        """Queue → the first so many of its requests are to be looked at."""
        self._done: dict[AppliedDecision, None] = {}
        self._refused: dict[QueueKey, None] = {}
        self._again_at = 0.0
        """When the rejected reports are repeated."""
        self._under_way = 0
        self._proposed_at = float("-inf")

    def __len__(self) -> int:
        return len(self._holds)

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of AWAITDECIDED."""
        return {AwaitDecided: self.ask}

    def figures(self, now: float) -> Figures:
        """Return how many clients wait for a decision to be carried out."""
        return {"decisions_awaited": len(self._holds)}

    def moved(self, replica: Replica, turn: BrokerTurn) -> None:
        """Continue with the decisions of a queue, and report those that are done."""
        parked, decision_executor = replica.parked, self._decision_executor
        if parked.done or parked.release is not None or len(decision_executor) or len(self._holds):
            decision_executor.arm(replica)
            self.settle(replica, turn)

    def settle(self, replica: Replica, turn: BrokerTurn) -> None:
        """Report the decisions of a queue that are done, and answer clients that wait for them."""
        leading, done = replica.leading, replica.parked.done
        if leading is None:
            return
        known = (done, replica.applied >= leading.election_end, self._routes.version)
        if known != leading.settled:
            leading.settled = known
            if count := self._holds.count_of(replica.key):
                self._woken[replica.key] = count
        if not leading.reported < done or replica.applied < leading.election_end:
            return
        for number in self._decision_executor.on(replica.key):
            if leading.reported < number <= done:
                self._done[AppliedDecision(number, *replica.key)] = None
        leading.reported = done

    def flush(self, turn: BrokerTurn) -> None:
        """Answer clients whose decisions are carried out, and propose what is to be reported."""
        room = LOOKED_AT_ONCE
        while self._woken and room > 0:
            key, left = next(iter(self._woken.items()))
            looks = min(left, room)
            room -= looks
            self._woken[key] -= looks
            if looks == left:
                del self._woken[key]
            replica = self._queues.replicas.get(key)
            for hold in self._holds.take_first(key, looks):
                if not self._rights.allows(hold.address, hold.message, turn):
                    continue
                if replica is None or not self._answer(hold.address, hold.message, replica, turn):
                    self._holds.add(key, hold.message.id, hold)
        self._report(turn)

    def _report(self, turn: BrokerTurn) -> None:
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
        self._report(turn)

    def fenced(self, turn: BrokerTurn) -> None:
        """Forget all reports of the instance epoch, which would be rejected."""
        self._done.clear()
        self._refused.clear()
        self._proposals.drop_all()
        self._under_way = 0

    # ── who waits ───────────────────────────────────────────────────────────────────────────────

    def ask(self, peer: PeerSession, message: AwaitDecided, turn: BrokerTurn) -> None:
        """Answer once a decision is carried out."""
        address = peer.address
        wait = min(max(0, message.timeout_ms), LONGEST_HOLD_MS) / 1000
        try:
            replica, _ = find_led_replica(self._queues, self._routes, self._me, message)
            hold = self._holds.checked(Hold(address, message, turn.mono + wait))
        except LogboomError as error:
            turn.refuse(address, message.id, error)
            return
        if not self._answer(address, message, replica, turn):
            self._holds.add(replica.key, message.id, hold)

    def held(self) -> Iterator[HeldRequest]:
        """Yield the requests that wait."""
        return self._holds.held()

    def _answer(
        self, address: PeerAddress, message: AwaitDecided, replica: Replica, turn: BrokerTurn
    ) -> bool:
        leading = replica.leading
        if leading is None or replica.applied < leading.election_end:
            return False
        waits = self._decision_executor.concerns(replica.key, message.number)
        if waits and replica.parked.done < message.number:
            return False
        turn.answer(address, Ok(message.id))
        return True

    def step(self, turn: BrokerTurn) -> None:
        """Repeat rejected reports.

        Answer clients whose time is over, or whose queue is no longer led here.
        """
        if self._refused and turn.mono >= self._again_at:
            refused, self._refused = self._refused, {}
            for key in refused:
                replica = self._queues.replicas.get(key)
                if replica is not None:
                    self.settle(replica, turn)
        for key in list(islice(self._to_settle, LOOKED_AT_ONCE)):
            del self._to_settle[key]
            replica = self._queues.replicas.get(key)
            if replica is not None:
                self.settle(replica, turn)
        if not len(self._holds):
            return
        for _, hold in self._holds.expired(turn.mono, LOOKED_AT_ONCE):
            text = f"decision {hold.message.number} is not carried out yet: try again"
            turn.refuse(hold.address, hold.message.id, Unavailable(text, "BUSY"))
        for key in self._holds.awaited():
            replica = self._queues.replicas.get(key)
            if replica is not None and replica.leading is not None:
                continue
            for hold in self._holds.take(key):
                message = hold.message
                error = not_leader(self._routes, message.topic, message.queue, self._me)
                turn.refuse(hold.address, message.id, error)

    def learned(self, topics: Sequence[str], groups: Sequence[str], turn: BrokerTurn) -> None:
        """Begin with new decisions.

        Those that the metadata no longer names have been carried out.
        """
        for key, number in self._decision_executor.take_new().items():
            replica = self._queues.replicas.get(key)
            if replica is not None and replica.leading is not None:
                # Decisions that were done before this broker learned of them are not reported yet.
                replica.leading.reported = min(replica.leading.reported, number - 1)
                self.moved(replica, turn)
        self._to_settle.update(dict.fromkeys(self._holds.awaited()))

    def deadline(self) -> float:
        """Return when `step` or `flush` is wanted next."""
        if self._to_settle or self._woken:
            return float("-inf")
        again_at = self._again_at if self._refused else float("inf")
        report_at = float("inf")
        if self._done and self._under_way < UNDER_WAY and self._registration.registered:
            report_at = self._proposed_at + GATHER
        return min(again_at, report_at, self._holds.deadline())
