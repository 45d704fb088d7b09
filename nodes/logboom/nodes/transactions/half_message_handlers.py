"""Half messages: the decisions of their producers, and the checks of their producer groups.

A half message is parked like any batch of a transaction, but only its queue decides on it: the
first entry in the log that releases or recalls it counts. The number of checks that are due is a
function of its age. After the last check, it waits for an operator.

A clock that was ahead for a moment gives times of the future, since times never go back in a log.
Such a half message is as old as the leader has known it by its monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias

import msgspec

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import LAST_SIDE, Position
from logboom.nodes.parking.release_scheduler import ReleaseScheduler, is_certain, parked_entry
from logboom.nodes.replica import decision_rows, parked_rows
from logboom.nodes.replica.decision_rows import DecisionWait
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.leader_lookup import find_led_replica
from logboom.nodes.replica.leadership import Leadership, PendingProduce
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.requests.held_shares import HeldShares
from logboom.nodes.requests.holds import Hold, Holds
from logboom.nodes.requests.long_requests import Parts
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.nodes.transactions.orphan_aborter import LAST_MS, LOOKED_AT, PASSED_AT_ONCE
from logboom.nodes.transactions.undecided_handler import checks_at, described
from logboom.nodes.turn import BrokerTurn, Figures, Handler, HeldRequest, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.access_requirements import Requirement, half_requirements
from logboom.wire.batch import control_body
from logboom.wire.errors import (
    DataDamaged,
    LogboomError,
    TransactionError,
    Unavailable,
)
from logboom.wire.head import ControlKind
from logboom.wire.parking import encode_recalled, parked_body
from logboom.wire.transactions import (
    HALF,
    CheckHalves,
    EndHalf,
    HalfEnded,
    HalvesToCheck,
    UndecidedBatch,
    check_app_id,
)

_Waiting: TypeAlias = tuple[str, str]
"""(producer group, user) of a client that waits for checks; the user is "" without one."""
_HalfKey: TypeAlias = tuple[QueueKey, Position]
CHECK_INTERVAL_S: Final = 0.5
"""Seconds between two scans for half messages that are due for a check."""
LONGEST_HOLD_MS: Final = 60_000
ASKED_AT_ONCE: Final = 32
"""Half messages in one answer."""
BYTES_AT_ONCE: Final = 1024 * 1024
"""Approximate bytes of their batches."""


TURN_UNITS: Final = 12_000
"""Units of work, some 0.25 µs each, of one turn of a scan, …"""
PASSED_UNITS: Final = 2_000
"""… of passing over `PASSED_AT_ONCE` queues, …"""
QUEUE_UNITS: Final = 100
"""… of a look at one, …"""
ROW_UNITS: Final = 20
"""… at one half message, …"""
ROWS_AT_ONCE: Final = 256
"""(so many of them are read together)"""
BATCH_UNITS: Final = 120
"""… and at its batch."""
EXPIRED_AT_ONCE: Final = 200
"""Requests that one turn answers since their time is over."""


class _Due(NamedTuple):
    """A half message that is due for a check."""

    name: _HalfKey
    half: UndecidedBatch
    batch: bytes


_Found: TypeAlias = dict[_Waiting, list[_Due]]


class EndHalfHandler(Service):
    """Serves ENDHALF, and answers once the decision is committed."""

    def __init__(
        self,
        context: BrokerContext,
        produce_handler: ProduceHandler,
        release_scheduler: ReleaseScheduler,
        repair: ReplicaRepair,
        appended: Callable[[Replica], None],
    ) -> None:
        """Create a handler; `appended` is called when a queue's log grew."""
        self._me = context.me
        self._acceptor = context.acceptor
        self._queues = context.queues
        self._routes = context.routes
        self._space = context.space
        self._produce_handler = produce_handler
        self._release_scheduler = release_scheduler
        self._repair = repair
        self._appended = appended

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of ENDHALF."""
        return {EndHalf: self.end}

    def end(self, peer: PeerSession, message: EndHalf, turn: BrokerTurn) -> None:
        """Release a half message or take it back, and answer once that is committed."""
        try:
            self._end(peer, message, turn)
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)

    def _end(self, peer: PeerSession, message: EndHalf, turn: BrokerTurn) -> None:
        address = peer.address
        replica, leading = find_led_replica(self._queues, self._routes, self._me, message)
        if replica.damage is not None:
            raise Unavailable(self._repair.refusal(replica).text)
        at = Position(message.offset, message.side)
        place = self._place(peer, message, replica, leading, at)
        if place is None:
            turn.answer(address, self._ended(peer, message, replica, at))
            return
        self._produce_handler.check_acks("all", leading, turn.mono)
        if message.commit:
            after = self._release(replica, leading, place, turn)
        else:
            body = encode_recalled(*place)
            wall_ms = turn.now.wall_ms
            after = replica.append_control(
                ControlKind.RECALLED, body, wall_ms, turn.writes, self._queues.cache
            )
            self._queues.touch(replica)
            leading.recalling.add(place)
        reply = HalfEnded(message.id, "committed" if message.commit else "aborted")
        deadline = turn.mono + message.timeout_ms / 1000
        waiting = PendingProduce(after, address, message.id, 0, 0, deadline, reply=reply)
        self._produce_handler.wait(replica, leading, waiting, "all", turn)
        self._appended(replica)

    def _release(
        self, replica: Replica, leading: Leadership, place: Position, turn: BrokerTurn
    ) -> Position:
        """Release a parked half message, and return the end of its entry.

        Raises:
            LogboomError: it cannot be released now.
        """
        if self._space.check(turn.mono):
            raise self._space.refusal()
        try:
            self._release_scheduler.release(replica, leading, place, turn)
        except DamagedEntry as error:
            self._repair.found(replica, error)
            raise Unavailable(self._repair.refusal(replica).text) from None
        return replica.end

    def _check_group(
        self, peer: PeerSession, message: EndHalf, group: str, replica: Replica, at: Position
    ) -> None:
        """Check that a user may end half messages of a producer group.

        Raises:
            LogboomError: it may not. Who may not describe the group learns nothing of its message.
        """
        for needed in half_requirements(group):
            error = self._acceptor.authorizer.lack(peer, message, needed)
            sight = self._acceptor.authorizer.sight(peer)
            if error is not None and sight is not None:
                raise error if sight.transaction(group) else _unknown(replica, at)

    def _place(
        self,
        peer: PeerSession,
        message: EndHalf,
        replica: Replica,
        leading: Leadership,
        at: Position,
    ) -> Position | None:
        """Return the current position of the half message that was first parked at `at`.

        None if it is no longer parked.

        Raises:
            TransactionError: UNKNOWN_HANDLES, no half message was parked there.
            Unavailable: the answer is not certain yet.
        """
        if at >= replica.end or min(at) < 0 or at.side > LAST_SIDE:
            raise _unknown(replica, at)
        if at >= replica.applied or not is_certain(replica, leading):
            raise Unavailable(
                "the parked batches of this queue are not in sync yet: try again", "BUSY"
            )
        ids, storage = replica.parked.ids, self._queues.storage
        place = parked_rows.place_of(storage, ids, at)
        row = parked_rows.find_row(storage, ids, place) if place is not None else None
        if place is None or row is None:
            return None
        if row.waits is None or not row.waits.is_half:
            raise _unknown(replica, at)
        self._check_group(peer, message, row.waits.transaction.app_id, replica, at)
        if any(place in p for p in (leading.releasing, leading.recalling, leading.relocating)):
            raise Unavailable("this half message is being ended: try again", "BUSY")
        return place

    def _ended(
        self, peer: PeerSession, message: EndHalf, replica: Replica, at: Position
    ) -> HalfEnded:
        """Return the outcome of a half message that is not parked, if the log remembers it."""
        if parked_rows.was_recalled(self._queues.storage, replica.parked.ids, at):
            return HalfEnded(message.id, "aborted")
        if at.offset < replica.start:
            return HalfEnded(message.id, "unknown")
        try:
            parked = parked_body(control_body(parked_entry(replica, self._queues, at)))
        except DamagedEntry:
            raise _unknown(replica, at) from None
        if parked.transaction is None or parked.transaction.sequence != HALF:
            raise _unknown(replica, at)
        self._check_group(peer, message, parked.transaction.app_id, replica, at)
        return HalfEnded(message.id, "committed")


def _unknown(replica: Replica, at: Position) -> TransactionError:
    where = f"{at.offset}.{at.side} of {replica.topic}/{replica.queue}"
    text = f"no half message was parked at {where}: give the position that its send returned"
    return TransactionError(text, "UNKNOWN_HANDLES")


class HalfMessageChecker(Service):
    """Serves CHECKHALVES: asks producer groups about half messages that nobody has decided."""

    def __init__(
        self, context: BrokerContext, on_damage: Callable[[Replica, DamagedEntry], None]
    ) -> None:
        self._settings = context.settings
        self._acceptor = context.acceptor
        self._rights = context.rights
        self._queues = context.queues
        self._on_damage = on_damage
        self._holds: Holds[_Waiting, CheckHalves] = Holds(HeldShares(context.acceptor.peer))
        self._asked: dict[_HalfKey, int] = {}
        """How often this process has asked about each half message."""
        self._ahead: dict[_HalfKey, float] = {}
        """Half messages with times of the future, and since when they are known here."""
        self._next_at = float("-inf")
        self._look_left: Parts | None = None
        """What is left of a scan."""

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of CHECKHALVES."""
        return {CheckHalves: self.ask}

    def figures(self, now: float) -> Figures:
        """Return how many clients wait for checks, and the limits that count."""
        settings = self._settings
        checks_ms = settings.half_checks * settings.half_check_every_ms
        return {
            "half_checks_held": len(self._holds),
            "transaction_timeout_ms": settings.transaction_timeout_ms,
            "half_checks_over_ms": settings.half_check_after_ms + checks_ms,
        }

    def ask(self, peer: PeerSession, message: CheckHalves, turn: BrokerTurn) -> None:
        """Hold the request until there is something to check."""
        address = peer.address
        wait = min(max(0, message.wait_ms), LONGEST_HOLD_MS) / 1000
        try:
            check_app_id(message.producer_group)
            hold = self._holds.checked(Hold(address, message, turn.mono + wait))
        except LogboomError as error:
            turn.refuse(address, message.id, error)
            return
        self._holds.add((message.producer_group, peer.user), message.id, hold)

    def held(self) -> Iterator[HeldRequest]:
        """Yield the requests that wait."""
        return self._holds.held()

    def deadline(self) -> float:
        """Return when `step` is wanted next."""
        if self._look_left is not None:
            return float("-inf")
        return min(self._next_at, self._holds.deadline()) if len(self._holds) else float("inf")

    def step(self, turn: BrokerTurn) -> None:
        """Ask about half messages that are due, and answer the requests whose time is over."""
        if self._look_left is None and len(self._holds) and turn.mono >= self._next_at:
            self._look_left = self._look()
            next(self._look_left)
        if self._look_left is not None:
            units = 0
            try:
                while units < TURN_UNITS:
                    units += self._look_left.send(turn)
            except StopIteration:
                self._look_left = None
                self._next_at = turn.mono + CHECK_INTERVAL_S
        for _, hold in self._holds.expired(turn.mono, EXPIRED_AT_ONCE):
            turn.answer(hold.address, HalvesToCheck(hold.message.id, []))

    def _look(self) -> Parts:
        """Look at all queues once, and answer the clients of producer groups with what is due."""
        turn = yield 0
        asked, self._asked = self._asked, {}
        ahead, self._ahead = self._ahead, {}
        found: _Found = {}
        groups: dict[str, list[str]] = {}
        for group, user in self._holds.awaited():
            groups.setdefault(group, []).append(user)
        queues = [*self._queues.led.values()]
        for begin in range(0, len(queues), PASSED_AT_ONCE):
            turn = yield PASSED_UNITS
            # Nearly all queues wait for nothing, and a comprehension passes over thousands quickly.
            part = queues[begin : begin + PASSED_AT_ONCE]
            for replica in [each for each in part if each.parked.undecided]:
                try:
                    yield from self._due(replica, groups, (asked, ahead), found, turn)
                except DamagedEntry as error:
                    self._on_damage(replica, error)
                except DataDamaged as error:
                    self._on_damage(replica, DamagedEntry(error.text, Position(replica.start)))
                turn = yield QUEUE_UNITS
        for waiting, halves in found.items():
            self._tell(waiting, halves, turn)
            turn = yield BATCH_UNITS

    def _tell(self, waiting: _Waiting, found: list[_Due], turn: BrokerTurn) -> None:
        """Answer one of the clients that wait for the checks of a producer group, if any still does.

        It asks again then, and goes to the end of the line.
        """
        halves = [each for each in found if self._may_end(waiting[1], each.half.topic)]
        while halves and (holds := self._holds.take_first(waiting, 1)):
            (hold,) = holds
            if self._rights.allows(hold.address, hold.message, turn):
                self._asked.update({each.name: each.half.checks for each in halves})
                answer = HalvesToCheck(hold.message.id, [each.half for each in halves])
                turn.answer(hold.address, answer, [each.batch for each in halves])
                return

    def _may_end(self, user: str, topic: str) -> bool:
        """True for a user to whom half messages of a topic are shown, since it may end them."""
        needed = Requirement("write", "topic", topic)
        return not user or self._acceptor.authorizer.allowed(user, needed)

    def _due(
        self,
        replica: Replica,
        groups: dict[str, list[str]],
        before_look: tuple[dict[_HalfKey, int], dict[_HalfKey, float]],
        found: _Found,
        turn: BrokerTurn,
    ) -> Parts:
        """Collect the half messages of a queue that are due and have a client that waits.

        `groups` names the users that wait for each producer group.
        """
        leading = replica.leading
        if leading is None or not is_certain(replica, leading):
            return
        settings, wall_ms = self._settings, turn.now.wall_ms
        asked, ahead = before_look
        until_ms = wall_ms - settings.half_check_after_ms + 1
        since_ms = until_ms - (settings.half_checks + 1) * settings.half_check_every_ms
        storage, ids = self._queues.storage, replica.parked.ids
        scan = self._rows(replica, since_ms, until_ms)
        for parked_ms, at, waits in chain(scan, self._known_since(replica, ahead, turn)):
            yield ROW_UNITS
            if replica.leading is not leading:
                return
            name, group = (replica.key, at), waits.transaction.app_id
            checks, before = checks_at(settings, parked_ms, wall_ms), asked.get(name, 0)
            if before:
                self._asked[name] = before
            if before >= checks:
                continue
            users = [each for each in groups.get(group, ()) if self._may_end(each, replica.topic)]
            if not users:
                continue
            due = found.setdefault((group, users[-1]), [])
            full = sum(len(each.batch) for each in due) >= BYTES_AT_ONCE
            if full or len(due) >= ASKED_AT_ONCE:
                continue
            row = parked_rows.find_row(storage, ids, at)
            if row is None or at in leading.releasing or at in leading.recalling:
                continue
            batch = bytes(parked_body(control_body(parked_entry(replica, self._queues, at))).batch)
            half = described(settings, replica, row, wall_ms)
            due.append(_Due(name, msgspec.structs.replace(half, checks=checks), batch))
            yield BATCH_UNITS + (len(batch) >> 10)

    def _rows(
        self, replica: Replica, since_ms: int, until_ms: int
    ) -> Iterator[tuple[int, Position, DecisionWait]]:
        """Yield half messages as `decision_rows.by_age` does. Turns may come between two."""
        storage, ids, since = self._queues.storage, replica.parked.ids, Position(0)
        while True:
            found = decision_rows.by_age(
                storage, ids, half=True, since_ms=since_ms, until_ms=until_ms, since=since
            )
            page = list(islice(found, ROWS_AT_ONCE))
            yield from page
            if len(page) < ROWS_AT_ONCE:
                return
            since_ms, last, _ = page[-1]
            since = Position(last.offset, last.side + 1)

    def _known_since(
        self, replica: Replica, ahead: dict[_HalfKey, float], turn: BrokerTurn
    ) -> Iterator[tuple[int, Position, DecisionWait]]:
        """Yield half messages with times of the future, with the time since when they are known."""
        wall_ms = turn.now.wall_ms
        found = self._rows(replica, wall_ms + 1, LAST_MS)
        for _, at, waits in islice(found, LOOKED_AT):
            name = (replica.key, at)
            since = self._ahead[name] = ahead.get(name, turn.mono)
            yield wall_ms - int((turn.mono - since) * 1000), at, waits
