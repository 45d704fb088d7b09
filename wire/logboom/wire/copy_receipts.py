"""Copies of failed messages in topics of retries and dead letters, and the receipts that prove them.

A copy says in its headers of which message it is one. A broker believes that of a user only with
the receipt of a broker that holds the message, or if the user may write the original's topic. A
receipt is made with a key that brokers alone have; it names the user, the group or subscription, the
origin and the content, and counts for some minutes. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from logboom.wire.base import Name, Request, WireMessage
from logboom.wire.key_pair import SecretBytes
from logboom.wire.names import DLQ_PREFIX, RETRY_PREFIX, subscription_of

ATTEMPT_HEADER: Final = "boom-attempt"
"""Number of the delivery that the copy will be, as text."""
ORIGIN: Final = "boom-origin"
"""topic/queue/offset of the original message."""
CAUSE: Final = "boom-cause"
"""Reason why the last attempt failed, in one line."""
RECEIPT: Final = "boom-receipt"
"""The receipt of the broker that holds the message."""
OWN_HEADERS: Final = (ATTEMPT_HEADER, ORIGIN, CAUSE, RECEIPT)
"""Headers of the copy, not of the message."""
MAX_DIGITS: Final = 18
"""Maximum digits of a number in a header: more do not fit into 64 bits."""
MAX_CAUSE_BYTES: Final = 4_096
"""Maximum bytes of a cause: 1,024 characters."""
VALID_MS: Final = 15 * 60_000
"""Milliseconds for which a receipt counts, by the clocks of two brokers."""
MAX_SIGNED: Final = 500
"""Maximum messages of one request for receipts."""
MAX_COPIES: Final = 1_000
"""Maximum copies in one batch: each is checked while other requests wait."""
_TIME_BYTES: Final = 8
_MAC_BYTES: Final = 16
_encode: Final = msgspec.msgpack.Encoder().encode


class SignCopies(Request, array_like=True):
    """Request receipts for copies of messages, of the leader of the queue that holds the messages."""

    topic: Name
    queue: int
    owner: Name
    """The group, or topic%subscription, whose retries or dead letters take the copies."""
    offsets: Annotated[list[int], Meta(max_length=MAX_SIGNED)]
    kept: bool = False
    """True: the messages are themselves copies for this owner, and the new ones name the same origin."""
    topic_id: int = 0
    """As in Produce."""


class CopiesSigned(WireMessage, array_like=True):
    """Receipts of the first messages asked for, at least of one; ask again for the others."""

    receipts: list[bytes]
    """Empty: the message is not there any more, or the user has no consumer that holds it."""


class CopiedMessage(NamedTuple):
    """What a copy has of its original."""

    key: bytes | None
    value: bytes | None
    tag: str | None
    headers: dict[str, bytes]
    timestamp_ms: int


class ReceiptSigner:
    """Makes and checks receipts with a key derived from that of the cluster."""

    def __init__(self, cluster_key: bytes) -> None:
        self._keys: list[SecretBytes] = []
        self.take_cluster_keys((cluster_key,))

    def take_cluster_keys(self, keys: Sequence[bytes]) -> None:
        """Sign with the first of these keys from now on, and accept each."""
        made = (hmac.new(key, b"logboom copies", hashlib.sha256).digest() for key in keys)
        self._keys = [SecretBytes(key) for key in made]

    def sign(
        self, user: str, owner: str, origin: bytes, message: CopiedMessage, wall_ms: int
    ) -> bytes:
        """Return the receipt with which a user may copy a message, at a wall time."""
        time = max(0, wall_ms).to_bytes(_TIME_BYTES, "big")
        return time + self._mac(self._keys[0], time, (user, owner), origin, message)

    def proves(self, user: str, owner: str, message: CopiedMessage, wall_ms: int) -> bool:
        """Return True if a copy has the receipt of its user for its owner, origin and content, and
        that still counts."""
        receipt = message.headers.get(RECEIPT, b"")
        time, mac = receipt[:_TIME_BYTES], receipt[_TIME_BYTES:]
        if len(mac) != _MAC_BYTES or abs(wall_ms - int.from_bytes(time, "big")) > VALID_MS:
            return False
        origin = message.headers.get(ORIGIN, b"")
        return any(
            hmac.compare_digest(self._mac(key, time, (user, owner), origin, message), mac)
            for key in self._keys
        )

    def _mac(
        self,
        signed_by: bytes,
        time: bytes,
        of: tuple[str, str],
        origin: bytes,
        message: CopiedMessage,
    ) -> bytes:
        key, value, tag, headers, timestamp_ms = message
        own = sorted(each for each in headers.items() if each[0] not in OWN_HEADERS)
        text = _encode((time, of, origin, key, value, tag, own, timestamp_ms))
        return hashlib.blake2b(text, key=signed_by, digest_size=_MAC_BYTES).digest()


def parse_origin(origin: bytes) -> tuple[str, int, int] | None:
    """Return (topic, queue, offset) that the header of a copy names, or None."""
    topic, *place = origin.rsplit(b"/", 2)
    match list(map(parse_number, place)):
        case [int(queue), int(offset)]:
            return topic.decode("utf-8", "replace"), queue, offset
        case _:
            return None


def parse_number(text: bytes) -> int | None:
    """Return a number that a client may have written, and None for anything else."""
    return int(text) if text.isdigit() and len(text) <= MAX_DIGITS else None


def headers_fault(headers: dict[str, bytes]) -> str | None:
    """Return why the headers of a copy are not those of one, in one line, or None."""
    if not parse_number(headers.get(ATTEMPT_HEADER, b"")):
        return f"{ATTEMPT_HEADER} is the number of the next delivery, from 1"
    cause = headers.get(CAUSE, b"")
    if len(cause) > MAX_CAUSE_BYTES or not _is_one_line(cause):
        return f"{CAUSE} is one line of UTF-8 of at most {MAX_CAUSE_BYTES} bytes"
    return None


def _is_one_line(text: bytes) -> bool:
    try:
        shown = text.decode()
    except UnicodeDecodeError:
        return False
    return len(shown.splitlines()) <= 1


def source_fault(asked: SignCopies) -> str | None:
    """Return why an owner gets no copies of messages from a topic, in one line, or None."""
    owner, own = asked.owner, (RETRY_PREFIX + asked.owner, DLQ_PREFIX + asked.owner)
    if asked.kept:
        known = asked.topic in own
    elif "%" in owner:
        source = subscription_of(own[0])
        known = source is not None and asked.topic in (source[0], own[0])
    else:
        known = True
    if known:
        return None
    return f"messages of {asked.topic[:160]!r} are not those of {owner[:160]!r}, or no copies"


def map_length(encoded: bytes) -> int:
    """Return the number of entries that a msgpack map says it has; -1: it is none."""
    first = encoded[0] if encoded else 0
    if first & 0xF0 == 0x80:
        return first & 0x0F
    if first in (0xDE, 0xDF):
        return int.from_bytes(encoded[1 : 3 if first == 0xDE else 5], "big")
    return -1
