"""What an entry of the Raft log holds: a command, who proposed it, and when.

Beside the commands of `logboom.wire.commands` there are those that only name servers make.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from logboom.wire.base import Command
from logboom.wire.commands import AnyCommand, CommandResult, ReportRoom
from logboom.wire.group_commands import GroupCommand
from logboom.wire.transactions import TransactionCommand

ENTRY_FORMAT: Final = 4
"""Newest format of `LogEntry` that is read. 2 has the commands of consumer groups besides, 3 those of
transactions, 4 `ReportRoom`: a name server that does not know them must stop instead of refusing what others apply."""


class NoteNameServer(Command, frozen=True, array_like=True):
    """Where a name server listens that is about to join; before its raft id is added (R12)."""

    name_server: str
    endpoint: str
    raft_endpoint: str


class ForgetNameServer(Command, frozen=True, array_like=True):
    """A name server left the raft group; its id is not used again (R9)."""

    name_server: str


AnyLogCommand = AnyCommand | NoteNameServer | ForgetNameServer


class LogEntry(Struct, frozen=True, array_like=True):
    """One command in the log; `(proposer, number)` is deduplicated unless proposer is ""."""

    format: int
    proposer: str
    number: int
    time_ms: int
    """`LogTime` of the raft leader that took it; the state's clock is the greatest of these."""
    command: AnyLogCommand


class EntryFormat(Struct, frozen=True, array_like=True):
    """The first field of an entry of any format."""

    format: int


def entry_of(proposer: str, number: int, time_ms: int, command: AnyLogCommand) -> LogEntry:
    """An entry, in the oldest format that can hold the command."""
    oldest = 1
    if isinstance(command, GroupCommand):
        oldest = 2
    elif isinstance(command, TransactionCommand):
        oldest = 3
    elif isinstance(command, ReportRoom):
        oldest = 4
    return LogEntry(oldest, proposer, number, time_ms, command)


encode_entry: Final = msgspec.msgpack.Encoder().encode
decode_entry: Final = msgspec.msgpack.Decoder(LogEntry).decode
decode_entry_format: Final = msgspec.msgpack.Decoder(EntryFormat).decode
encode_result: Final = msgspec.msgpack.Encoder().encode
decode_result: Final = msgspec.msgpack.Decoder(CommandResult).decode
