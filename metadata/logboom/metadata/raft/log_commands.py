"""The contents of a Raft log entry: a command, its proposer, and its time.

Besides the commands of `logboom.wire.commands`, entries hold those that only name servers make.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from logboom.wire.access.access_commands import AccessCommand, AddRule, RemoveRule
from logboom.wire.base import Command
from logboom.wire.commands import (
    AlterTopic,
    AnyCommand,
    CommandResult,
    CreateTopic,
    DiscardLostTopic,
    NewTerm,
    RegisterBroker,
    RemoveBroker,
    ReportLosses,
    ReportRoom,
    RestoreCommand,
    RestoreTopic,
)
from logboom.wire.features import IDS_OF_USERS, PLACED_BEFORE, SUBSCRIPTION_RIGHTS
from logboom.wire.group_commands import GroupCommand, JoinGroup
from logboom.wire.listeners import ListenerView
from logboom.wire.operation_commands import OperationCommand
from logboom.wire.transactions import OpenApplication, TransactionCommand
from logboom.wire.view import DELETE_RETENTION_MS

ENTRY_FORMAT: Final = 9
"""Newest format of `LogEntry` that is read. Format 2 added the commands of consumer groups, 3 those
of transactions, 4 `ReportRoom`, 5 the host of `RegisterBroker`, 6 users,
access rules and listeners, 7 moves of replicas, modes of brokers, settings,
restores, the features level and the owner of an application id, 8 `GoOnAlone` and what follows from it, 9 `PlaceQueues`. A name server that does not know a command must stop instead of refusing
what others apply, or placing replicas differently."""


class NoteNameServer(Command, frozen=True, array_like=True):
    """The endpoints of a name server about to join, noted before its Raft id is added (R12)."""

    name_server: str
    endpoint: str
    raft_endpoint: str
    journal: str = ""
    """Id of its journal, which alone counts under this Raft id (R9); "" below features level 1, and
    if it is a member already."""


class ForgetNameServer(Command, frozen=True, array_like=True):
    """The removal of a name server that left the Raft group; its id is not reused (R9)."""

    name_server: str


class GoOnAlone(Command, frozen=True, array_like=True):
    """The recovery of the group from one survivor, whose journal may lack the newest entries (R15)."""


class NoteListeners(Command, frozen=True, array_like=True):
    """The listeners that a name server has bound; both are empty if it has one open one of each."""

    name_server: str
    listeners: list[ListenerView]
    """For clients and brokers."""
    raft_listeners: list[ListenerView]
    """For the other name servers."""
    journal: str = ""
    """Id of its journal, if that was not noted yet; "" below features level 1."""


QueuesCommand = CreateTopic | AlterTopic | RestoreTopic
"""Commands that make queues."""


class PlaceQueues(Command, frozen=True, array_like=True):
    """A command that makes many queues, with the brokers that the Raft leader has chosen for them."""

    command: QueuesCommand
    brokers_version: int
    """Version of the last change of a broker that the choice rests on."""
    places: list[list[int]]
    """The replicas of each queue: numbers of brokers among those that may get replicas, by id."""


AnyLogCommand = (
    AnyCommand | NoteNameServer | ForgetNameServer | NoteListeners | GoOnAlone | PlaceQueues
)


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
    if isinstance(command, PlaceQueues):
        oldest = 9
    elif isinstance(command, GoOnAlone | DiscardLostTopic):
        oldest = 8
    elif level_of(command):
        oldest = 7
    elif isinstance(command, GroupCommand):
        oldest = 2
    elif isinstance(command, TransactionCommand):
        oldest = 3
    elif isinstance(command, ReportRoom):
        oldest = 4
    elif (
        isinstance(command, AccessCommand | NoteListeners)
        or (isinstance(command, RegisterBroker) and command.listeners)
        or (isinstance(command, CreateTopic) and command.owner)
    ):
        oldest = 6
    elif isinstance(command, RegisterBroker) and command.host:
        oldest = 5
    return LogEntry(oldest, proposer, number, time_ms, command)


def level_of(command: AnyLogCommand) -> int:
    """Return the features level that a cluster must have before a command may enter its log (M7).

    Name servers that do not know a command stop at it, so the log must not hold it while there may
    be one. (A founding `NewTerm` and `RaiseFeatures` are what sets the level.)
    """
    if isinstance(command, PlaceQueues):
        return PLACED_BEFORE
    if isinstance(command, JoinGroup) and command.user:
        return IDS_OF_USERS
    if isinstance(command, AddRule | RemoveRule) and command.rule.kind == "subscription":
        return SUBSCRIPTION_RIGHTS
    return int(
        isinstance(command, OperationCommand | RestoreCommand | ReportLosses)
        or (isinstance(command, NewTerm) and command.features > 0)
        or (isinstance(command, AlterTopic) and command.replicas is not None)
        or (isinstance(command, RemoveBroker) and command.accept_loss)
        or (isinstance(command, OpenApplication) and command.owner != "")
        or (
            isinstance(command, CreateTopic | AlterTopic)
            and command.config is not None
            and command.config.delete_retention_ms != DELETE_RETENTION_MS
        )
    )


encode_entry: Final = msgspec.msgpack.Encoder().encode
decode_entry: Final = msgspec.msgpack.Decoder(LogEntry).decode
decode_entry_format: Final = msgspec.msgpack.Decoder(EntryFormat).decode
encode_result: Final = msgspec.msgpack.Encoder().encode
decode_result: Final = msgspec.msgpack.Decoder(CommandResult).decode
