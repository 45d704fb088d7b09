"""What the bytes of a raft entry mean: one kind byte, then msgpack. Nothing is ever unpickled.

The kinds are PySyncObj's own numbers, because it writes the empty entries itself.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

COMMANDS: Final = b"\x00"
"""A msgpack list of commands, applied in order."""
EMPTY: Final = b"\x01"
"""PySyncObj's own: index 1 of every log, and the first entry of every leader."""
MEMBERSHIP: Final = b"\x02"
"""A msgpack ["found", all raft ids]; the first entry of every log holds the founders (SAFETY R12)."""

_encode = msgspec.msgpack.encode
_commands = msgspec.msgpack.Decoder(list[bytes])


class MembershipChange(NamedTuple):
    """One change of the membership.

    `found` names all members from there on; entries are of this kind. The others name one raft id:
    so changes are asked for, and so they stand in older journals.
    """

    operation: Literal["found", "add", "remove"]
    node_ids: tuple[str, ...]

    def applied_to(self, members: frozenset[str]) -> frozenset[str]:
        """The membership after this change."""
        match self.operation:
            case "found":
                return frozenset(self.node_ids)
            case "add":
                return members | set(self.node_ids)
            case "remove":
                return members - set(self.node_ids)


_change = msgspec.msgpack.Decoder(MembershipChange)


def pack_commands(commands: list[bytes]) -> bytes:
    """One entry that holds these commands."""
    return COMMANDS + _encode(commands)


def unpack_commands(entry: bytes) -> list[bytes]:
    """The commands of an entry of kind COMMANDS; `msgspec.DecodeError` if it is none."""
    return _commands.decode(memoryview(entry)[1:])


def pack_change(change: MembershipChange) -> bytes:
    """One entry that holds a membership change."""
    return MEMBERSHIP + _encode(change)


def unpack_change(entry: bytes) -> MembershipChange | None:
    """The membership change of an entry, None if the entry is of another kind."""
    if entry[:1] != MEMBERSHIP:
        return None
    return _change.decode(memoryview(entry)[1:])


def is_readable(entry: bytes) -> bool:
    """Whether an entry can be unpacked; one of a kind unknown here is left to a newer program.

    Looked at before an entry enters the log: once committed, every member would fail on it.
    """
    try:
        if entry[:1] == COMMANDS:
            unpack_commands(entry)
        else:
            unpack_change(entry)
    except (msgspec.DecodeError, ValueError):
        return False
    return True


def split(sizes: list[int], limit: int) -> list[int]:
    """How many commands go into each entry, in order, so that none outgrows `limit` bytes (R11).

    A single command of `limit` bytes still gets an entry of its own.
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
