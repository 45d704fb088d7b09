"""The events that follow from a command as such, and what is added to all events of a command."""

from __future__ import annotations

from typing import Final

from logboom.metadata.tables.cluster_state import ClusterState
from logboom.wire.access import access_commands
from logboom.wire.access.access_rules import Quota
from logboom.wire.actor import Note, note
from logboom.wire.base import Command
from logboom.wire.commands import (
    AlterIsr,
    AlterTopic,
    CreateTopic,
    ElectLeader,
    FenceBroker,
    FinishRestore,
    NewTerm,
    RegisterBroker,
    RemoveBroker,
    ReportDamage,
    ReportLosses,
    ReportRoom,
    ReportTails,
    StepDown,
)
from logboom.wire.event_table import EVENTS, Plain
from logboom.wire.group_commands import AlterGroup, DeleteGroup, JoinGroup
from logboom.wire.operation_commands import (
    CancelReassign,
    RaiseFeatures,
    Reassign,
    SetBrokerMode,
)

CAUSES: Final[dict[type[Command], str]] = {
    AlterIsr: "leader",
    AlterTopic: "topic_altered",
    CancelReassign: "move_cancelled",
    CreateTopic: "topic_created",
    ElectLeader: "hand_over",
    FenceBroker: "broker_fenced",
    FinishRestore: "restore_finished",
    JoinGroup: "group_created",
    AlterGroup: "group_altered",
    Reassign: "move",
    RegisterBroker: "broker_registered",
    RemoveBroker: "broker_removed",
    ReportDamage: "damage",
    ReportRoom: "disk",
    ReportTails: "log_ends",
    ReportLosses: "log_ends",
    SetBrokerMode: "broker_mode",
    StepDown: "broker_stepped_down",
}
"""What brought events about, by the command; others are called as they are."""


def command_notes(cluster: ClusterState, command: Command) -> list[Note]:
    """Return what follows from a command that was done and has changed something.

    What commands tell of by themselves (`ClusterState.tell`) is not among it.
    """
    match command:
        case NewTerm():
            return [note("cluster_founded", cluster=cluster.cluster_id, features=cluster.features)]
        case RaiseFeatures():
            return [note("features_raised", features=cluster.features)]
        case FinishRestore():
            return [note("restore_finished", topic=command.topic)]
        case AlterGroup():
            return [note("group_altered", group=command.group)]
        case DeleteGroup():
            return [note("group_deleted", group=command.group)]
        case _:
            return _access_notes(command)


def finished(notes: list[Note], command: Command, by: str | None) -> list[Note]:
    """Return notes with what brought them about, and who asked for it."""
    cause = CAUSES.get(type(command)) or str(type(command).__struct_config__.tag)
    beside: dict[str, Plain] = {"cause": cause, "by": by}
    return [
        each._replace(
            fields={
                **each.fields,
                **{name: beside[name] for name in EVENTS[each.event].fields if name in beside},
            }
        )
        for each in notes
    ]


def _access_notes(command: Command) -> list[Note]:
    """Return what a change of users, roles and rules tells; never a key, of which there is a label."""
    match command:
        case access_commands.CreateUser():
            labels: list[Plain] = [key.label for key in command.keys]
            return [note("user_changed", user=command.name, action="created", label=labels)]
        case access_commands.AlterUser():
            return [
                note("user_changed", user=command.name, action=action)
                for action in _alterations(command)
            ]
        case access_commands.DeleteUser():
            return [note("user_changed", user=command.name, action="deleted")]
        case access_commands.AddUserKey():
            label = command.key.label
            return [note("user_changed", user=command.name, action="key added", label=label)]
        case access_commands.RemoveUserKey():
            label = command.label
            return [note("user_changed", user=command.name, action="key removed", label=label)]
        case access_commands.CreateRole():
            return [note("role_changed", role=command.name, action="created")]
        case access_commands.DeleteRole():
            return [note("role_changed", role=command.name, action="deleted")]
        case access_commands.AddRule() | access_commands.RemoveRule():
            kind, _, name = command.holder.partition(":")
            action = "rule removed"
            if isinstance(command, access_commands.AddRule):
                action = "rule added"
            holder: dict[str, Plain] = {"role" if kind == "role" else "user": name}
            return [note("role_changed", **holder, action=action, rule=str(command.rule))]
        case access_commands.SetDefaultQuota():
            return [note("role_changed", action="default quota set")]
        case _:
            return []


def _alterations(command: access_commands.AlterUser) -> list[str]:
    found: list[str] = []
    if command.disabled is not None:
        found.append("disabled" if command.disabled else "enabled")
    if command.roles is not None:
        found.append("roles set" if command.roles else "roles revoked")
    if command.quota is not None:
        found.append("quota set" if command.quota != Quota() else "quota unset")
    return found
