"""The handler of SIGNCOPIES: receipts for copies of messages that this broker holds as their leader.

A copy for a group is that of any message that its user may read. One for a subscription is that of a
message that a consumer of the user holds, so nobody delivers again what is acknowledged, or not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.replica import Replica
from logboom.nodes.subscriptions.entry_source import LogEntrySource
from logboom.nodes.subscriptions.subscription_handler import SubscriptionLookup
from logboom.nodes.subscriptions.subscription_service import SubscriptionService
from logboom.nodes.turn import BrokerTurn, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.columns import Columns, Row
from logboom.wire.copy_receipts import (
    MAX_SIGNED,
    ORIGIN,
    CopiedMessage,
    CopiesSigned,
    ReceiptSigner,
    SignCopies,
    parse_origin,
    source_fault,
)
from logboom.wire.errors import DamagedBatch, InvalidRequest, LogboomError, Unavailable
from logboom.wire.names import DLQ_PREFIX, RETRY_PREFIX, subscription_of

MAX_READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes of opened batches after which an answer ends."""
MAX_READ_BATCHES: Final = 64
"""Batches after which it ends."""
MAX_LOOKUPS: Final = 20_000
"""Looks at what consumers hold after which it ends."""


class CopySigner(Service):
    """Signs what is about to be retried or given up."""

    def __init__(
        self,
        context: BrokerContext,
        access: SubscriptionLookup,
        subscriptions: SubscriptionService,
        signer: ReceiptSigner,
        on_damage: Callable[[Replica, DamagedEntry], None],
    ) -> None:
        self._storage = context.storage
        self._access = access
        self._subscriptions = subscriptions
        self._signer = signer
        self._on_damage = on_damage

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of SIGNCOPIES."""
        return {SignCopies: self.sign}

    def sign(self, peer: PeerSession, message: SignCopies, turn: BrokerTurn) -> None:
        """Answer with receipts of the first messages that are asked for."""
        try:
            receipts = self._receipts(peer, message, turn)
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)
            return
        turn.answer(peer.address, CopiesSigned(message.id, receipts))

    def _receipts(self, peer: PeerSession, message: SignCopies, turn: BrokerTurn) -> list[bytes]:
        if not message.offsets:
            raise InvalidRequest(f"receipts for no copies: ask for 1 to {MAX_SIGNED}")
        fault = source_fault(message)
        if fault is not None:
            raise InvalidRequest(fault)
        replica, _ = self._access.led(message)
        most, held = self._holds(replica, peer.user, message)
        opens = turn.opened.begin(peer.user or peer.address)
        return [
            b"" if row is None else self._receipt(peer.user, message, offset, row, turn.now.wall_ms)
            for offset, row in self._rows(replica, message.offsets[:most], held, opens)
        ]

    def _holds(
        self, replica: Replica, user: str, message: SignCopies
    ) -> tuple[int, Callable[[int], bool]]:
        """Return whether a message, by its offset, may have a copy now; and of how many to look."""
        source = subscription_of(RETRY_PREFIX + message.owner)
        if source is None or message.topic == DLQ_PREFIX + message.owner:
            return MAX_SIGNED, lambda _: True
        served = self._subscriptions.served.get((replica.key, source[1]))
        if served is None or served.stale:
            return MAX_SIGNED, lambda _: False
        own = [name for name, session in served.sessions.items() if session.user == user]
        most = max(1, MAX_LOOKUPS // max(1, len(own)))
        return most, lambda offset: served.dispatcher.is_held(offset, own)

    def _rows(
        self,
        replica: Replica,
        offsets: list[int],
        held: Callable[[int], bool],
        opens: Callable[[int], None],
    ) -> Iterator[tuple[int, Row | None]]:
        """Yield messages by their offsets, until enough was read; None: there is none to copy."""
        source = LogEntrySource(replica, self._storage, self._on_damage)
        opened: Columns | None = None
        size, batches = MAX_READ_BYTES, MAX_READ_BATCHES
        for offset in offsets:
            if not replica.start <= offset < replica.readable.offset or not held(offset):
                yield offset, None
                continue
            if opened is None or not opened.base_offset <= offset < opened.next_offset:
                if size <= 0 or batches <= 0:
                    return
                opened, batches = None, batches - 1
                for entry in source.read(offset, 1, 1, 1):
                    if entry.base <= offset < entry.next:
                        opened = entry.columns()
                        size -= entry.head.plain_length
                        opens(entry.head.plain_length)
            yield offset, None if opened is None else self._row(replica, opened, offset)

    @staticmethod
    def _row(replica: Replica, columns: Columns, offset: int) -> Row:
        at = offset - columns.base_offset
        try:
            return next(columns.slice(at, at + 1).iter_rows())
        except DamagedBatch as error:
            # The scrubber finds it, and a good copy may return at any moment.
            place = f"{replica.topic}/{replica.queue}"
            raise Unavailable(f"message {offset} of {place} cannot be read: {error}") from error

    def _receipt(
        self, user: str, message: SignCopies, offset: int, row: Row, wall_ms: int
    ) -> bytes:
        _, key, value, tag, headers, timestamp_ms = row
        copied = CopiedMessage(key, value, tag, headers or {}, timestamp_ms)
        origin = f"{message.topic}/{message.queue}/{offset}".encode()
        if message.kept:
            origin = copied.headers.get(ORIGIN, b"")
            named, source = parse_origin(origin), subscription_of(RETRY_PREFIX + message.owner)
            if named is None or (source is not None and named[0] != source[0]):
                return b""
        return self._signer.sign(user, message.owner, origin, copied, wall_ms)
