"""The check of copies that users send to topics of retries and dead letters.

Whoever may read a group, or use a subscription, may send copies to its retries. Each has to
be what it says: a copy of that message, by the receipt of a broker that holds it. Without one it is a
message in the original's name, for which the user needs the right to write the original's topic.
"""

from __future__ import annotations

from itertools import repeat

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.turn import BrokerTurn
from logboom.wire.acceptor import PeerSession
from logboom.wire.access_requirements import Requirement
from logboom.wire.batch import open_batch
from logboom.wire.copy_receipts import (
    MAX_COPIES,
    ORIGIN,
    CopiedMessage,
    ReceiptSigner,
    headers_fault,
    map_length,
    parse_origin,
)
from logboom.wire.errors import Forbidden, InvalidRequest
from logboom.wire.features import COPIES_PROVEN
from logboom.wire.frames import Frame
from logboom.wire.head import BatchHead
from logboom.wire.messages import Produce
from logboom.wire.names import group_of, is_reserved, subscription_of


class CopyChecker:
    """Takes from users what is proven, and nothing else."""

    def __init__(self, context: BrokerContext, signer: ReceiptSigner) -> None:
        self._routes = context.routes
        self._acceptor = context.acceptor
        self._signer = signer

    def check(
        self, peer: PeerSession, message: Produce, batch: Frame, head: BatchHead, turn: BrokerTurn
    ) -> None:
        """Check a batch that is sent to a topic of the system, before anything of it is kept.

        Raises:
            LogboomError: it holds what is no copy, or not a proven one; or this turn has opened
                enough.
        """
        if peer.principal is None or self._routes.features < COPIES_PROVEN:
            return  # everybody may do everything; or clients of the release before send copies
        if message.transaction is not None:
            raise InvalidRequest("copies for retries and dead letters are in no transaction")
        if head.count > MAX_COPIES:
            text = f"a batch of {head.count} copies: send at most {MAX_COPIES} together"
            raise InvalidRequest(text, "TOO_LARGE", limit=MAX_COPIES)
        turn.opened.begin(peer.user)(head.plain_length)
        columns = open_batch(batch, head)
        encoded = columns.encoded_headers() or repeat(None)
        owner = group_of(message.topic) or ""
        writable: dict[str, None] = {}
        for row, stored in zip(columns.iter_rows(), encoded, strict=False):
            _, key, value, tag, headers, timestamp_ms = row
            copied = CopiedMessage(key, value, tag, headers or {}, timestamp_ms)
            if stored is not None and map_length(stored) != len(copied.headers):
                # Clients would not agree which of them counts.
                raise InvalidRequest("a copy has two headers of one name: leave one out")
            fault = headers_fault(copied.headers)
            if fault is not None:
                raise InvalidRequest(f"no copy for {message.topic!r}: {fault}")
            if self._signer.proves(peer.user, owner, copied, turn.now.wall_ms):
                continue
            origin = parse_origin(copied.headers.get(ORIGIN, b""))
            topic = "" if origin is None else origin[0]
            if topic not in writable:
                self._check_writer(peer, message, topic)
                writable[topic] = None

    def _check_writer(self, peer: PeerSession, message: Produce, topic: str) -> None:
        """Check that a user may send in the name of a topic what has no receipt.

        Raises:
            Forbidden: it may not.
        """
        source = subscription_of(message.topic)
        named = topic and not is_reserved(topic) and (source is None or source[0] == topic)
        needed = Requirement("write", "topic", topic)
        if named and self._acceptor.authorizer.lack(peer, message, needed) is None:
            return
        raise Forbidden(
            f"user {peer.user!r} may send to {message.topic!r} copies alone that a broker has signed "
            f"in the last minutes (SIGNCOPIES), or of topics that it may write: upgrade the client, "
            "and compare the clocks of the brokers",
            verb="write",
            kind="topic",
            name=topic,
        )
