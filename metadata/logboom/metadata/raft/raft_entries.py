"""The encoding of Raft entries: one byte for the kind, then msgpack. Nothing is unpickled.

The kinds are PySyncObj's own numbers, because it writes the empty entries itself.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from logboom.wire.base import UNDECODABLE

COMMANDS: Final = b"\x00"
"""A msgpack list of commands, applied in order."""
EMPTY: Final = b"\x01"
"""PySyncObj's empty entry: index 1 of every log, and the first entry of every leader."""
MEMBERSHIP: Final = b"\x02"
"""A msgpack ["found", all Raft ids]; the first entry of every log holds the founders (R12)."""

_encode = msgspec.msgpack.encode
_commands = msgspec.msgpack.Decoder(list[bytes])


class MembershipChange(NamedTuple):
    """One change of the membership.

    `found` names all members from then on; entries are of this kind. The other kinds name one Raft
    id. Changes are requested in this form, and older journals contain them.
    """

    operation: Literal["found", "add", "remove"]
    node_ids: tuple[str, ...]

    def applied_to(self, members: frozenset[str]) -> frozenset[str]:
        """Return the membership after this change."""
        match self.operation:
            case "found":
                return frozenset(self.node_ids)
            case "add":
                return members | set(self.node_ids)
            case "remove":
                return members - set(self.node_ids)


_change = msgspec.msgpack.Decoder(MembershipChange)


def pack_commands(commands: list[bytes]) -> bytes:
    """Encode commands into one entry."""
    return COMMANDS + _encode(commands)


def unpack_commands(entry: bytes) -> list[bytes]:
    """Decode the commands of an entry; raises `msgspec.DecodeError` if it is malformed."""
    return _commands.decode(memoryview(entry)[1:])


def pack_change(change: MembershipChange) -> bytes:
    """Encode a membership change into one entry."""
    return MEMBERSHIP + _encode(change)


def unpack_change(entry: bytes) -> MembershipChange | None:
    """Decode the membership change of an entry; None if the entry is of another kind."""
    if entry[:1] != MEMBERSHIP:
        return None
    return _change.decode(memoryview(entry)[1:])


def is_readable(entry: bytes) -> bool:
    """Return True if an entry can be decoded, or is of a kind that only a newer program knows.

    This is checked before an entry enters the log: once it is committed, every member would fail.
    """
    try:
        if entry[:1] == COMMANDS:
            unpack_commands(entry)
        else:
            unpack_change(entry)
    except (*UNDECODABLE, ValueError):
        return False
    return True


def split(sizes: list[int], limit: int) -> list[int]:
    """Split commands into entries of at most `limit` bytes; return the count of each, in order.

    A single command of `limit` bytes still gets an entry of its own (R11).
    """
    counts: list[int] = []
    room = 0
    for size in sizes:
        needed = size + 5
        if counts and needed <= room:
            counts[-1] += 1
        else:
            counts.append(1)
            room = limit
        room -= needed
    return counts
