"""The replicated state machine of the name servers: `apply(entry) -> result`, the same on each.

It is deterministic: plain data, no clock, no randomness; time comes from the entries. Nothing
raises, except for entries of a newer version, which stop the node before its state diverges.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from logboom.metadata.groups.group_settings import alter_group, delete_group
from logboom.metadata.groups.member_commands import expire_members, join_group, leave_group
from logboom.metadata.groups.offset_commands import (
    commit_offsets,
    release_queues,
    reset_offsets,
    set_start,
)
from logboom.metadata.groups.target_commands import set_target
from logboom.metadata.raft.journal_store import JournalError
from logboom.metadata.raft.log_commands import (
    ENTRY_FORMAT,
    ForgetNameServer,
    LogEntry,
    NoteNameServer,
    decode_entry,
    decode_entry_format,
    encode_result,
)
from logboom.metadata.state.broker_commands import (
    fence_broker,
    register_broker,
    remove_broker,
    step_down,
)
from logboom.metadata.state.leadership_commands import (
    alter_isr,
    elect_leader,
    report_damage,
    report_room,
    report_tails,
)
from logboom.metadata.state.proposal_dedup import TOO_OLD, Dedup
from logboom.metadata.state.state_snapshot import decode_snapshot, encode_snapshot
from logboom.metadata.state.term_commands import forget_name_server, new_term, note_name_server
from logboom.metadata.state.topic_commands import (
    allocate_producer_ids,
    alter_topic,
    create_topic,
    delete_topic,
)
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused
from logboom.metadata.transactions.decision_commands import decide, open_transaction, report_decided
from logboom.wire import commands, group_commands, transactions
from logboom.wire.base import Command
from logboom.wire.commands import Barrier, CommandResult

logger = logging.getLogger("logboom.metadata.state.state")


def _barrier(_cluster: ClusterState, _command: Barrier) -> CommandOutcome:
    return DONE


_HANDLERS: Final[dict[type[Command], Callable[[ClusterState, Any], CommandOutcome]]] = {
    commands.NewTerm: new_term,
    commands.Barrier: _barrier,
    commands.RegisterBroker: register_broker,
    commands.FenceBroker: fence_broker,
    commands.StepDown: step_down,
    commands.RemoveBroker: remove_broker,
    commands.CreateTopic: create_topic,
    commands.AlterTopic: alter_topic,
    commands.DeleteTopic: delete_topic,
    commands.AlterIsr: alter_isr,
    commands.ReportTails: report_tails,
    commands.ReportDamage: report_damage,
    commands.ReportRoom: report_room,
    commands.AllocateProducerIds: allocate_producer_ids,
    commands.ElectLeader: elect_leader,
    group_commands.JoinGroup: join_group,
    group_commands.LeaveGroup: leave_group,
    group_commands.ExpireMembers: expire_members,
    group_commands.SetTarget: set_target,
    group_commands.ReleaseQueues: release_queues,
    group_commands.CommitOffsets: commit_offsets,
    group_commands.SetStart: set_start,
    group_commands.ResetOffsets: reset_offsets,
    group_commands.AlterGroup: alter_group,
    group_commands.DeleteGroup: delete_group,
    transactions.OpenApplication: open_transaction,
    transactions.Decide: decide,
    transactions.ReportDecided: report_decided,
    NoteNameServer: note_name_server,
    ForgetNameServer: forget_name_server,
}


class StateMachine:
    """The state machine: the tables of the cluster and the results kept for retries."""

    def __init__(self) -> None:
        self.cluster = ClusterState()
        self.dedup = Dedup()

    @property
    def version(self) -> int:
        """Metadata version; 0 before the cluster is founded."""
        return self.cluster.version

    def apply(self, data: bytes) -> bytes:
        """Apply one encoded `LogEntry`, and return the encoded `CommandResult`.

        Raises:
            JournalError: a newer version of the name server wrote this entry.
        """
        try:
            entry = decode_entry(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _refuse_newer(data)
            return self._result(refused("MALFORMED", f"malformed command: {error}"))
        cluster, dedup = self.cluster, self.dedup
        cluster.clock_ms = max(cluster.clock_ms, entry.time_ms)
        if not entry.proposer:
            return self._result(self._apply(entry))
        first = dedup.find(entry.proposer, entry.number)
        if first is not None and first != TOO_OLD:
            return first
        if first == TOO_OLD:
            text = f"proposal {entry.number} is older than the results that are kept"
            return self._result(refused("CONFLICT", text))
        result = self._result(self._apply(entry))
        dedup.keep(entry.proposer, entry.number, result, cluster.clock_ms)
        return result

    def _apply(self, entry: LogEntry) -> CommandOutcome:
        self.cluster.begin()
        try:
            return _HANDLERS[type(entry.command)](self.cluster, entry.command)
        # A handler that raises is a bug of ours, and one command must not end the node.
        except Exception as error:
            # The same bug occurs on every name server, so their states stay equal.
            logger.exception("command %s failed", type(entry.command).__name__)
            return refused("INTERNAL", f"the name server failed on this command: {error!r}")

    def _result(self, outcome: CommandOutcome) -> bytes:
        code, text, fields, value = outcome
        return encode_result(CommandResult(self.cluster.version, code, text, fields or {}, value))

    def snapshot(self) -> bytes:
        """Encode the whole state canonically: equal states give equal bytes."""
        return encode_snapshot(self.cluster, self.dedup)

    def restore(self, data: bytes) -> None:
        """Replace the whole state by that of a snapshot.

        Raises:
            JournalError: it is malformed or of a newer format.
        """
        self.cluster, self.dedup = decode_snapshot(data)


def _refuse_newer(data: bytes) -> None:
    try:
        found = decode_entry_format(data).format
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if found > ENTRY_FORMAT:
        raise JournalError(
            f"the raft log holds an entry of format {found}, this version reads {ENTRY_FORMAT}: "
            "upgrade this name server"
        )
