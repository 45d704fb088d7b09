"""The snapshot's container: versioned msgpack behind a CRC, the same on disk and on the wire.

| bytes | field |
|---|---|
| 8 | magic `LBSNAP` and the version, u16 |
| 4 | crc32c of everything after it |
| rest | msgpack array: the last two entries, the members, the state |
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from logboom.metadata.raft.journal_store import MEND, Entry, JournalError
from logboom.wire.base import UNDECODABLE
from logboom.wire.validation import crc32c

VERSION: Final = 1
_HEAD = struct.Struct("<6sHI")
_MAGIC: Final = b"LBSNAP"


class RaftSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state after `last`, and what PySyncObj needs to continue from there (R7)."""

    before: Entry
    """The entry before `last`."""
    last: Entry
    """The last entry that the state contains."""
    members: list[str]
    """Raft ids of the voting members as of `last`, sorted."""
    state: bytes


_decoder = msgspec.msgpack.Decoder(RaftSnapshot)


def encode_snapshot(snapshot: RaftSnapshot) -> bytes:
    """Encode a snapshot."""
    body = msgspec.msgpack.encode(snapshot)
    return _HEAD.pack(_MAGIC, VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> RaftSnapshot:
    """Decode a snapshot; raises `JournalError` if it is damaged or of a newer format."""
    if len(data) < _HEAD.size:
        raise JournalError(f"the snapshot is damaged: {len(data)} bytes are too few")
    magic, version, checksum = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != _MAGIC:
        raise JournalError("the snapshot is damaged: it does not begin like one")
    if crc32c(body) != checksum:
        raise JournalError("the snapshot is damaged: its checksum does not hold")
    if version != VERSION:
        raise JournalError(
            f"the snapshot has format {version}, this program reads {VERSION}: upgrade it"
        )
    try:
        snapshot = _decoder.decode(body)
    except (*UNDECODABLE, ValueError) as error:
        raise JournalError(f"the snapshot is damaged: {error}") from error
    if snapshot.last[1] != snapshot.before[1] + 1 or snapshot.before[1] < 1:
        raise JournalError("the snapshot is damaged: its two entries do not follow each other")
    return snapshot


def own_snapshot(data: bytes) -> RaftSnapshot:
    """Decode this node's own snapshot; the `JournalError` names the remedy if it is damaged."""
    try:
        return decode_snapshot(data)
    except JournalError as error:
        mend = "" if "upgrade" in str(error) else f": {MEND}"
        raise JournalError(f"{error}{mend}") from None
