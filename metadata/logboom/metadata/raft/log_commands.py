"""The contents of a Raft log entry: a command, its proposer, and its time.

Besides the commands of `logboom.wire.commands`, entries hold those that only name servers make.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from logboom.wire.base import Command
from logboom.wire.commands import AnyCommand, CommandResult, RegisterBroker, ReportRoom
from logboom.wire.group_commands import GroupCommand
from logboom.wire.transactions import TransactionCommand

ENTRY_FORMAT: Final = 5
"""Newest format of `LogEntry` that is read. Format 2 added the commands of consumer groups, 3 those
of transactions, 4 `ReportRoom`, 5 the host of `RegisterBroker`. A name server that does not know a
command must stop instead of refusing what others apply, or placing replicas differently."""


class NoteNameServer(Command, frozen=True, array_like=True):
    """The endpoints of a name server about to join, noted before its Raft id is added (R12)."""

    name_server: str
    endpoint: str
    raft_endpoint: str


class ForgetNameServer(Command, frozen=True, array_like=True):
    """The removal of a name server that left the Raft group; its id is not reused (R9)."""

    name_server: str


AnyLogCommand = AnyCommand | NoteNameServer | ForgetNameServer


class LogEntry(Struct, frozen=True, array_like=True):
    """One command in the log; `(proposer, number)` is deduplicated unless `proposer` is ""."""

    format: int
    proposer: str
    number: int
    time_ms: int
    """`LogTime` of the Raft leader that proposed it; the state's clock is the latest of these."""
    command: AnyLogCommand


class EntryFormat(Struct, frozen=True, array_like=True):
    """The first field of an entry of any format."""

    format: int


def entry_of(proposer: str, number: int, time_ms: int, command: AnyLogCommand) -> LogEntry:
    """Build an entry, in the oldest format that can hold the command."""
    oldest = 1
    if isinstance(command, GroupCommand):
        oldest = 2
    elif isinstance(command, TransactionCommand):
        oldest = 3
    elif isinstance(command, ReportRoom):
        oldest = 4
    elif isinstance(command, RegisterBroker) and command.host:
        oldest = 5
    return LogEntry(oldest, proposer, number, time_ms, command)


encode_entry: Final = msgspec.msgpack.Encoder().encode
decode_entry: Final = msgspec.msgpack.Decoder(LogEntry).decode
decode_entry_format: Final = msgspec.msgpack.Decoder(EntryFormat).decode
encode_result: Final = msgspec.msgpack.Encoder().encode
decode_result: Final = msgspec.msgpack.Decoder(CommandResult).decode
