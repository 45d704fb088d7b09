"""Receipts: what they prove, and that nothing else proves it."""

from __future__ import annotations

import msgspec
import pytest

from logboom.wire.copy_receipts import (
    ATTEMPT_HEADER,
    CAUSE,
    ORIGIN,
    RECEIPT,
    VALID_MS,
    CopiedMessage,
    ReceiptSigner,
    SignCopies,
    headers_fault,
    map_length,
    parse_origin,
    source_fault,
)

NOW = 1_800_000_000_000
MESSAGE = CopiedMessage(b"k", b"v", "t", {"h": b"1", "g": b"2"}, 5)
SIGNER = ReceiptSigner(b"cluster key")
PLACE = b"orders/0/5"


def copied(
    receipt: bytes, origin: bytes = PLACE, message: CopiedMessage = MESSAGE
) -> CopiedMessage:
    """The copy of a message, its headers in another order."""
    headers = {RECEIPT: receipt, ORIGIN: origin, ATTEMPT_HEADER: b"7", CAUSE: b"x"}
    return message._replace(headers={**headers, "g": b"2", **message.headers})


@pytest.mark.parametrize("key", [b"", b"cluster key", b"k" * 200])
def test_a_copy_is_proven_by_its_receipt_whatever_it_says_of_its_failures(key: bytes) -> None:
    signer = ReceiptSigner(key)
    before = MESSAGE._replace(headers={**MESSAGE.headers, CAUSE: b"of an earlier copy"})
    receipt = signer.sign("ann", "g", PLACE, before, NOW)
    for later_ms in (-VALID_MS, 0, VALID_MS):
        assert signer.proves("ann", "g", copied(receipt), NOW + later_ms)
    assert not signer.proves("ann", "g", copied(receipt), NOW + VALID_MS + 1)
    assert not signer.proves("ann", "g", copied(receipt), NOW - VALID_MS - 1)
    assert not ReceiptSigner(b"another key").proves("ann", "g", copied(receipt), NOW)


@pytest.mark.parametrize(
    ("message", "origin"),
    [
        (MESSAGE._replace(key=None), PLACE),
        (MESSAGE._replace(key=b""), PLACE),
        (MESSAGE._replace(value=None), PLACE),
        (MESSAGE._replace(value=b"other"), PLACE),
        (MESSAGE._replace(tag=None), PLACE),
        (MESSAGE._replace(tag=""), PLACE),
        (MESSAGE._replace(headers={"h": b"2"}), PLACE),
        (MESSAGE._replace(headers={"h": b"1", "i": b""}), PLACE),
        (MESSAGE._replace(timestamp_ms=6), PLACE),
        (MESSAGE, b"orders/0/6"),
        (MESSAGE, b""),
    ],
    ids=str,
)
def test_a_receipt_proves_no_other_message(message: CopiedMessage, origin: bytes) -> None:
    receipt = SIGNER.sign("ann", "g", PLACE, MESSAGE, NOW)
    assert SIGNER.proves("ann", "g", copied(receipt), NOW)
    assert not SIGNER.proves("ann", "g", copied(receipt, origin, message), NOW)


def test_a_receipt_proves_nothing_of_another_owner_or_time_and_none_proves_nothing() -> None:
    receipt = SIGNER.sign("ann", "g", PLACE, MESSAGE, NOW)
    assert not SIGNER.proves("ann", "h", copied(receipt), NOW)
    assert not SIGNER.proves("eve", "g", copied(receipt), NOW)
    later = (NOW + 1).to_bytes(8, "big") + receipt[8:]
    for forged in (b"", later, receipt[:-1], receipt + b"\0", receipt[:8]):
        assert not SIGNER.proves("ann", "g", copied(forged), NOW)


@pytest.mark.parametrize(
    ("origin", "parsed"),
    [
        (b"orders/0/5", ("orders", 0, 5)),
        (b"a/b/1/2", ("a/b", 1, 2)),
        (b"orders/0", None),
        (b"", None),
        (b"orders/-1/5", None),
        (b"orders/0/" + b"9" * 19, None),
        ("orders/0/²".encode(), None),
    ],
)
def test_an_origin_is_a_place(origin: bytes, parsed: tuple[str, int, int] | None) -> None:
    assert parse_origin(origin) == parsed


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {ATTEMPT_HEADER: b"0"},
        {ATTEMPT_HEADER: b"-1"},
        {ATTEMPT_HEADER: b"9" * 19},
        {ATTEMPT_HEADER: b"1", CAUSE: b"a\nb"},
        {ATTEMPT_HEADER: b"1", CAUSE: "a\u2028b".encode()},
        {ATTEMPT_HEADER: b"1", CAUSE: b"\xff"},
        {ATTEMPT_HEADER: b"1", CAUSE: b"x" * 4_097},
    ],
    ids=str,
)
def test_headers_of_a_copy_are_checked(headers: dict[str, bytes]) -> None:
    assert headers_fault(headers) is not None
    assert headers_fault({ATTEMPT_HEADER: b"1", CAUSE: "ä".encode() * 1_024}) is None


@pytest.mark.parametrize(
    ("owner", "topic", "kept", "allowed"),
    [
        ("g", "orders", False, True),
        ("g", "orders", True, False),
        ("g", "%RETRY%g", True, True),
        ("g", "%DLQ%g", True, True),
        ("g", "%RETRY%h", True, False),
        ("t%s", "t", False, True),
        ("t%s", "%RETRY%t%s", False, True),
        ("t%s", "%RETRY%t%s", True, True),
        ("t%s", "%DLQ%t%s", True, True),
        ("t%s", "%DLQ%t%s", False, False),
        ("t%s", "u", False, False),
        ("t%s", "%RETRY%t%r", False, False),
        ("t%s%r", "t", False, False),
        ("%s", "", False, False),
        ("t%", "t", False, False),
    ],
)
def test_an_owner_has_copies_of_its_own_messages(
    owner: str, topic: str, kept: bool, allowed: bool
) -> None:
    fault = source_fault(SignCopies(1, 0, topic, 0, owner, [0], kept))
    assert (fault is None) == allowed


@pytest.mark.parametrize("length", [0, 1, 15, 16, 70_000])
def test_a_map_says_how_many_entries_it_has(length: int) -> None:
    encoded = msgspec.msgpack.encode({str(number): b"" for number in range(length)})
    assert map_length(encoded) == length


def test_what_is_no_map_has_no_length() -> None:
    assert map_length(b"") == map_length(b"\x90") == -1


def test_receipts_of_both_keys_count_while_the_cluster_key_is_changed() -> None:
    signer = ReceiptSigner(b"old")
    before = signer.sign("ann", "g", PLACE, MESSAGE, NOW)
    signer.take_cluster_keys((b"new", b"old"))
    after = signer.sign("ann", "g", PLACE, MESSAGE, NOW)
    assert all(signer.proves("ann", "g", copied(each), NOW) for each in (before, after))
    signer.take_cluster_keys((b"new",))
    assert not signer.proves("ann", "g", copied(before), NOW)
    assert signer.proves("ann", "g", copied(after), NOW)
