"""Half messages: their producer decides at the queue's leader, or its producer group is asked.

A half message is parked like any batch of a transaction, but its decision is its queue's alone: the
first entry in the log that releases or recalls it counts. How often its group was to be asked is a
function of its age; beyond the last time it waits for a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from logboom.nodes.config import BrokerConfig
from logboom.nodes.disk.disk_space import SpaceGauge
from logboom.nodes.log.keys import LAST_SIDE, Position
from logboom.nodes.parking.release_scheduler import ReleaseScheduler, is_certain, parked_entry
from logboom.nodes.replica import decision_rows, parked_rows
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.leader_lookup import find_led_replica
from logboom.nodes.replica.leadership import Leadership, PendingProduce
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replica.replica_table import ReplicaTable
from logboom.nodes.requests.holds import Hold, Holds
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.nodes.transactions.undecided_handler import checks_at, described
from logboom.nodes.turn import BrokerTurn
from logboom.wire.actor import PeerAddress
from logboom.wire.batch import control_body
from logboom.wire.errors import (
    DataDamaged,
    LogboomError,
    TransactionError,
    Unavailable,
)
from logboom.wire.head import ControlKind
from logboom.wire.parking import encode_recalled, parked_body
from logboom.wire.routes import Routes
from logboom.wire.transactions import (
    HALF,
    CheckHalves,
    EndHalf,
    HalfEnded,
    HalvesToCheck,
    UndecidedBatch,
    check_app_id,
)

CHECK_INTERVAL_S: Final = 0.5
"""Seconds between two looks for half messages that want to be asked for."""
LONGEST_HOLD_MS: Final = 60_000
ASKED_AT_ONCE: Final = 32
"""Half messages in one answer."""
BYTES_AT_ONCE: Final = 1024 * 1024
"""Bytes of their batches, about."""


class EndHalfHandler:
    """Takes decisions on half messages and answers them once they lie below the HW."""

    def __init__(
        self,
        me: str,
        queues: ReplicaTable,
        routes: Routes,
        producing: ProduceHandler,
        releasing: ReleaseScheduler,
        space: SpaceGauge,
        refusal: Callable[[Replica], LogboomError],
        on_damage: Callable[[Replica, DamagedEntry], None],
    ) -> None:
        """`refusal` says what is told of a damaged queue."""
        self._me = me
        self._queues = queues
        self._routes = routes
        self._producing = producing
        self._releasing = releasing
        self._space = space
        self._refusal = refusal
        self._on_damage = on_damage

    def end(self, address: PeerAddress, message: EndHalf, turn: BrokerTurn) -> Replica | None:
        """Release a half message or take it back; the replica whose log grew, or None."""
        try:
            return self._end(address, message, turn)
        except LogboomError as error:
            turn.refuse(address, message.id, error)
            return None

    def _end(self, address: PeerAddress, message: EndHalf, turn: BrokerTurn) -> Replica | None:
        replica, leading = find_led_replica(self._queues, self._routes, self._me, message)
        if replica.damage is not None:
            raise Unavailable(self._refusal(replica).text)
        at = Position(message.offset, message.side)
        place = self._place(replica, leading, at)
        if place is None:
            turn.answer(address, self._ended(message, replica, at))
            return None
        self._producing.check_acks("all", leading, turn.mono)
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
        self._producing.wait(replica, leading, waiting, "all", turn)
        return replica

    def _release(
        self, replica: Replica, leading: Leadership, place: Position, turn: BrokerTurn
    ) -> Position:
        """Raises LogboomError: it cannot be released now."""
        if self._space.check(turn.mono):
            raise self._space.refusal()
        try:
            self._releasing.release(replica, leading, place, turn)
        except DamagedEntry as error:
            self._on_damage(replica, error)
            raise Unavailable(self._refusal(replica).text) from None
        return replica.end

    def _place(self, replica: Replica, leading: Leadership, at: Position) -> Position | None:
        """Where a half message waits now that was parked there first; None: nowhere.

        Raises:
            TransactionError: UNKNOWN_HANDLES, none was.
            Unavailable: it is not certain yet.
        """
        if at >= replica.end or min(at) < 0 or at.side > LAST_SIDE:
            raise _unknown(replica, at)
        if at >= replica.applied or not is_certain(replica, leading):
            raise Unavailable("what is parked is not in sync yet: ask again", "BUSY")
        ids, storage = replica.parked.ids, self._queues.storage
        place = parked_rows.place_of(storage, ids, at)
        standing = parked_rows.standing_at(storage, ids, place) if place is not None else None
        if place is None or standing is None:
            return None
        if standing.waits is None or not standing.waits.is_half:
            raise _unknown(replica, at)
        if any(place in p for p in (leading.releasing, leading.recalling, leading.carrying)):
            raise Unavailable("this half message is just being ended: ask again", "BUSY")
        return place

    def _ended(self, message: EndHalf, replica: Replica, at: Position) -> HalfEnded:
        """What became of a half message that waits no longer, as far as the log remembers."""
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
        return HalfEnded(message.id, "committed")


def _unknown(replica: Replica, at: Position) -> TransactionError:
    where = f"{at.offset}.{at.side} of {replica.topic}/{replica.queue}"
    text = f"no half message was parked at {where}: give the place that its send was answered with"
    return TransactionError(text, "UNKNOWN_HANDLES")


class HalfMessageChecker:
    """Asks producer groups for half messages that nobody has decided."""

    def __init__(
        self,
        config: BrokerConfig,
        queues: ReplicaTable,
        on_damage: Callable[[Replica, DamagedEntry], None],
    ) -> None:
        self._config = config
        self._queues = queues
        self._on_damage = on_damage
        self._holds: Holds[str, CheckHalves] = Holds()
        self._asked: dict[tuple[QueueKey, Position], int] = {}
        """How often each was asked for by this process."""
        self._next_at = float("-inf")

    def __len__(self) -> int:
        return len(self._holds)

    def ask(self, address: PeerAddress, message: CheckHalves, turn: BrokerTurn) -> None:
        """Hold until there is something to ask for."""
        try:
            check_app_id(message.producer_group)
            self._holds.check_room()
        except LogboomError as error:
            turn.refuse(address, message.id, error)
            return
        wait = min(max(0, message.wait_ms), LONGEST_HOLD_MS) / 1000
        hold = Hold(address, message, turn.mono + wait)
        self._holds.add(message.producer_group, message.id, hold)

    def deadline(self) -> float:
        """When `step` is wanted next."""
        return min(self._next_at, self._holds.deadline()) if len(self._holds) else float("inf")

    def step(self, led: Iterable[Replica], turn: BrokerTurn) -> None:
        """Ask for what is due, and let those go who have waited long."""
        if not len(self._holds):
            return
        if turn.mono >= self._next_at:
            self._next_at = turn.mono + CHECK_INTERVAL_S
            self._look(led, turn)
        for _, hold in self._holds.expired(turn.mono):
            turn.answer(hold.address, HalvesToCheck(hold.message.id, []))

    def _look(self, led: Iterable[Replica], turn: BrokerTurn) -> None:
        asked, self._asked = self._asked, {}
        found: dict[str, list[tuple[UndecidedBatch, bytes]]] = {}
        for replica in led:
            leading = replica.leading
            if not replica.parked.undecided or leading is None or not is_certain(replica, leading):
                continue
            try:
                self._due(replica, leading, asked, found, turn)
            except DamagedEntry as error:
                self._on_damage(replica, error)
            except DataDamaged as error:
                self._on_damage(replica, DamagedEntry(error.text, Position(replica.start)))
        for group, halves in found.items():
            # Who is answered asks again, and goes to the end of the line.
            first, *others = self._holds.take(group)
            for hold in others:
                self._holds.add(group, hold.message.id, hold)
            answer = HalvesToCheck(first.message.id, [half for half, _ in halves])
            turn.answer(first.address, answer, [batch for _, batch in halves])

    def _due(
        self,
        replica: Replica,
        leading: Leadership,
        asked: dict[tuple[QueueKey, Position], int],
        found: dict[str, list[tuple[UndecidedBatch, bytes]]],
        turn: BrokerTurn,
    ) -> None:
        """Note what of a queue is due to be asked for, and can be."""
        config, wall_ms = self._config, turn.now.wall_ms
        until_ms = wall_ms - config.half_check_after_ms + 1
        since_ms = until_ms - (config.half_checks + 1) * config.half_check_every_ms
        storage, ids = self._queues.storage, replica.parked.ids
        groups = self._holds.keys()
        scan = decision_rows.by_age(storage, ids, half=True, since_ms=since_ms, until_ms=until_ms)
        for parked_ms, at, waits in scan:
            name, group = (replica.key, at), waits.transaction.app_id
            checks, before = checks_at(config, parked_ms, wall_ms), asked.get(name, 0)
            if before:
                self._asked[name] = before
            if before >= checks or group not in groups:
                continue
            halves = found.get(group, [])
            full = sum(len(batch) for _, batch in halves) >= BYTES_AT_ONCE
            if full or len(halves) >= ASKED_AT_ONCE:
                continue
            standing = parked_rows.standing_at(storage, ids, at)
            if standing is None or at in leading.releasing or at in leading.recalling:
                continue
            batch = parked_body(control_body(parked_entry(replica, self._queues, at))).batch
            half = described(config, replica, standing, wall_ms)
            found.setdefault(group, []).append((half, bytes(batch)))
            self._asked[name] = checks
