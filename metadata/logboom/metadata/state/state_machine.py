"""The replicated state machine of the name servers: `apply(entry) -> result`, the same on each.

It is deterministic: plain data, no clock, no randomness; time comes from the entries. Nothing
raises, except for entries of a newer version, which stop the node before its state diverges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from logboom.metadata.access.admission_commands import admit_initial_users, end_user_keys
from logboom.metadata.access.role_commands import (
    add_rule,
    create_role,
    delete_role,
    remove_rule,
    set_default_quota,
)
from logboom.metadata.access.user_commands import (
    add_user_key,
    alter_user,
    create_user,
    delete_user,
    remove_user_key,
)
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
    GoOnAlone,
    LogEntry,
    NoteListeners,
    NoteNameServer,
    PlaceQueues,
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
from logboom.metadata.state.command_notes import command_notes, finished
from logboom.metadata.state.leadership_commands import (
    alter_isr,
    elect_leader,
    report_damage,
    report_room,
    report_tails,
)
from logboom.metadata.state.loss_commands import report_losses
from logboom.metadata.state.mode_commands import set_broker_mode
from logboom.metadata.state.move_commands import cancel_reassign, reassign
from logboom.metadata.state.proposal_dedup import TOO_OLD, Dedup
from logboom.metadata.state.recovery_commands import discard_lost_topic, go_on_alone
from logboom.metadata.state.restore_commands import (
    finish_restore,
    restore_counters,
    restore_decisions,
    restore_group,
    restore_topic,
)
from logboom.metadata.state.setting_commands import alter_settings, end_filling, raise_features
from logboom.metadata.state.state_snapshot import decode_snapshot, encode_snapshot
from logboom.metadata.state.term_commands import (
    forget_name_server,
    new_term,
    note_listeners,
    note_name_server,
)
from logboom.metadata.state.topic_commands import (
    allocate_producer_ids,
    alter_topic,
    create_topic,
    delete_topic,
)
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused
from logboom.metadata.transactions.decision_commands import decide, open_transaction, report_decided
from logboom.wire import commands, group_commands, operation_commands, transactions
from logboom.wire.access import access_commands
from logboom.wire.actor import Note
from logboom.wire.base import UNDECODABLE, Command
from logboom.wire.commands import Barrier, CommandResult
from logboom.wire.event_log import log_event
from logboom.wire.features import FEATURES, RESULTS_BY_OWNER, upgrade_text


def _place_queues(cluster: ClusterState, command: PlaceQueues) -> CommandOutcome:
    match command.command:
        case commands.CreateTopic() as create:
            return create_topic(cluster, create, command)
        case commands.AlterTopic() as alter:
            return alter_topic(cluster, alter, command)
        case commands.RestoreTopic() as restore:
            return restore_topic(cluster, restore, command)


def _barrier(_cluster: ClusterState, _command: Barrier) -> CommandOutcome:
    return DONE


_HANDLERS: Final[dict[type[Command], Callable[[ClusterState, Any], CommandOutcome]]] = {
    commands.NewTerm: new_term,
    commands.Barrier: _barrier,
    commands.RegisterBroker: register_broker,
    commands.FenceBroker: fence_broker,
    commands.StepDown: step_down,
    commands.RemoveBroker: remove_broker,
    commands.DiscardLostTopic: discard_lost_topic,
    commands.CreateTopic: create_topic,
    commands.AlterTopic: alter_topic,
    commands.DeleteTopic: delete_topic,
    commands.AlterIsr: alter_isr,
    commands.ReportTails: report_tails,
    commands.ReportLosses: report_losses,
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
    access_commands.AdmitInitialUsers: admit_initial_users,
    access_commands.CreateUser: create_user,
    access_commands.AlterUser: alter_user,
    access_commands.DeleteUser: delete_user,
    access_commands.AddUserKey: add_user_key,
    access_commands.RemoveUserKey: remove_user_key,
    access_commands.EndUserKeys: end_user_keys,
    access_commands.CreateRole: create_role,
    access_commands.DeleteRole: delete_role,
    access_commands.AddRule: add_rule,
    access_commands.RemoveRule: remove_rule,
    access_commands.SetDefaultQuota: set_default_quota,
    operation_commands.Reassign: reassign,
    operation_commands.CancelReassign: cancel_reassign,
    operation_commands.SetBrokerMode: set_broker_mode,
    operation_commands.EndFilling: end_filling,
    operation_commands.AlterSettings: alter_settings,
    operation_commands.RaiseFeatures: raise_features,
    commands.RestoreCounters: restore_counters,
    commands.RestoreTopic: restore_topic,
    commands.RestoreGroup: restore_group,
    commands.RestoreDecisions: restore_decisions,
    commands.FinishRestore: finish_restore,
    NoteNameServer: note_name_server,
    ForgetNameServer: forget_name_server,
    NoteListeners: note_listeners,
    GoOnAlone: go_on_alone,
    PlaceQueues: _place_queues,
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

    def apply(self, data: bytes, notes: list[Note] | None = None, by: str | None = None) -> bytes:
        """Apply one encoded `LogEntry`, and return the encoded `CommandResult`.

        Args:
            data: the entry.
            notes: gets what has happened, for the log of the Raft leader; None: nobody asks.
            by: who has proposed the command, as far as this is known.

        Raises:
            JournalError: a newer version of the name server wrote this entry.
        """
        try:
            entry = decode_entry(data)
        except UNDECODABLE as error:
            _refuse_newer(data)
            return self._result(refused("MALFORMED", f"malformed command: {error}"))
        _refuse_newer_level(entry.command)
        cluster, dedup = self.cluster, self.dedup
        cluster.clock_ms = max(cluster.clock_ms, entry.time_ms)
        if not entry.proposer:
            return self._result(self._apply(entry, notes, by))
        first = dedup.find(entry.proposer, entry.number)
        if first is not None and first != TOO_OLD:
            return first
        if first == TOO_OLD:
            text = f"proposal {entry.number} is older than the results that are kept"
            return self._result(refused("CONFLICT", text))
        result = self._result(self._apply(entry, notes, by))
        by_owner = cluster.features >= RESULTS_BY_OWNER
        dedup.keep(entry.proposer, entry.number, result, cluster.clock_ms, by_owner=by_owner)
        return result

    def _apply(self, entry: LogEntry, notes: list[Note] | None, by: str | None) -> CommandOutcome:
        cluster, command, before = self.cluster, entry.command, self.cluster.version
        cluster.begin()
        if notes is None:
            return self._handle(command)
        cluster.notes = []
        outcome = self._handle(command)
        told = cluster.take_notes()
        if isinstance(command, PlaceQueues):
            command = command.command
        if not outcome.code and cluster.version > before:
            told = [*command_notes(cluster, command), *told]
        notes += finished(told, command, by)
        return outcome

    def _handle(self, command: Command) -> CommandOutcome:
        try:
            return _HANDLERS[type(command)](self.cluster, command)
        # A handler that raises is a bug of ours, and one command must not end the node.
        except Exception as error:  # noqa: BLE001 - its traceback is logged
            # The same bug occurs on every name server, so their states stay equal.
            name = type(command).__name__
            log_event("command_failed", raised=error, command=name, error=repr(error))
            return refused("INTERNAL", f"the name server failed on this command: {error!r}")

    def _result(self, outcome: CommandOutcome) -> bytes:
        return encode_result(result_of(self.cluster, outcome))

    def snapshot(self) -> bytes:
        """Encode the whole state canonically: equal states give equal bytes."""
        return encode_snapshot(self.cluster, self.dedup)

    def restore(self, data: bytes) -> None:
        """Replace the whole state by that of a snapshot.

        Raises:
            JournalError: it is malformed or of a newer format.
        """
        book = self.cluster.access.book
        self.cluster, self.dedup = decode_snapshot(data)
        _check_level(self.cluster.features)
        self.cluster.access.adopt(book)


def result_of(cluster: ClusterState, outcome: CommandOutcome) -> CommandResult:
    """Return an outcome as a proposer is told it."""
    code, text, fields, value = outcome
    return CommandResult(cluster.version, code, text, fields or {}, value)


def _refuse_newer_level(command: Command) -> None:
    match command:
        case commands.NewTerm():
            _check_level(command.features)
        case operation_commands.RaiseFeatures():
            _check_level(command.level)
        case _:
            pass


def _check_level(level: int) -> None:
    """End this node if it cannot read what the cluster writes from now on (M7).

    Raises:
        JournalError: it cannot.
    """
    if level > FEATURES:
        raise JournalError(upgrade_text("this name server", FEATURES, level))


def _refuse_newer(data: bytes) -> None:
    try:
        found = decode_entry_format(data).format
    except UNDECODABLE:
        return
    if found > ENTRY_FORMAT:
        raise JournalError(
            f"the raft log holds an entry of format {found}, this version reads {ENTRY_FORMAT}: "
            "upgrade this name server"
        )
