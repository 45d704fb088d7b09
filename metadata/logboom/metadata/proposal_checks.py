"""Checks that the Raft leader makes on a proposal before it enters the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logboom.metadata.raft.raft_config import MAX_COMMAND_BYTES
from logboom.wire.acceptor import PeerSession
from logboom.wire.commands import AlterTopic, AnyCommand, CreateTopic, FenceBroker, NewTerm
from logboom.wire.errors import InvalidRequest, LogboomError, Refused
from logboom.wire.group_commands import AlterGroup, JoinGroup, SetTarget
from logboom.wire.group_owners import strategy_fault
from logboom.wire.messages import Propose
from logboom.wire.names import RETRY_PREFIX, is_a_groups

if TYPE_CHECKING:
    from logboom.metadata.tables.consumer_groups import ConsumerGroups

MAX_PROPOSER: Final = 128
"""Maximum length of a proposer's name, in characters."""


def proposer_of(peer: PeerSession, message: Propose) -> str:
    """Return the name under which results are kept; "" if they are not kept.

    Clients get a prefix, so that a client cannot read the results of a node's proposals as its own.
    """
    if message.proposer and peer.kind == "client":
        return f"client:{message.proposer}"
    return message.proposer


def refuse_proposal(
    peer: PeerSession, message: Propose, size: int, groups: ConsumerGroups
) -> LogboomError | None:
    """Return why a command, of `size` bytes as an entry, may not enter the log, or None."""
    command = message.command
    if isinstance(command, NewTerm | FenceBroker | SetTarget):
        text = f"{type(command).__name__} is made by the raft leader alone"
        return Refused(text, "UNAUTHENTICATED")
    if len(message.proposer) > MAX_PROPOSER:
        return InvalidRequest(f"proposer longer than {MAX_PROPOSER} characters")
    if size > MAX_COMMAND_BYTES:
        text = f"a command of {size} bytes; at most {MAX_COMMAND_BYTES}: send it in parts"
        return InvalidRequest(text, "TOO_LARGE")
    if peer.kind == "client" and (
        (isinstance(command, CreateTopic) and is_a_groups(command.name))
        or (isinstance(command, AlterTopic) and command.name.startswith(RETRY_PREFIX))
    ):
        text = f"topic name {command.name!r} is not allowed: %RETRY% and %DLQ% are the system's"
        return InvalidRequest(text, "INVALID_NAME")
    fault = _strategy_fault(command, groups)
    return None if fault is None else InvalidRequest(fault)


def _strategy_fault(command: AnyCommand, groups: ConsumerGroups) -> str | None:
    """Return why a strategy that a group is to use cannot work, or None.

    This is checked before a command enters the log and not when it is applied: all versions of the
    name server must apply a command alike, and the first one accepted such strategies.
    """
    if isinstance(command, AlterGroup):
        known, config = groups.by_name.get(command.group), command.config
    elif isinstance(command, JoinGroup):
        # A member's settings count only for a new group.
        known, config = groups.by_name.get(command.group), command.config
        config = None if known is not None else config
    else:
        return None
    if config is None or config.mode == "broadcasting":
        return None
    if known is not None and (known.config.strategy, known.config.options) == (
        config.strategy,
        config.options,
    ):
        return None  # Something else is being changed.
    return strategy_fault(config)
