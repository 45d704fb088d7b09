"""Commands on replicated settings and on the features level.

What a setting may be called, and which values it takes, is checked before the command enters the log
(`proposal_checks`): name servers of all versions must apply it alike.
"""

from __future__ import annotations

import re
from typing import Final

from logboom.metadata.access.access_changes import begin_subscription_rules
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused
from logboom.metadata.tables.name_rules import broker_id_fault
from logboom.wire.features import SUBSCRIPTION_RIGHTS
from logboom.wire.operation_commands import AlterSettings, EndFilling, RaiseFeatures

MAX_SETTINGS: Final = 1_000
"""Maximum number of settings of the cluster and all its nodes."""
MAX_VALUE: Final = 1_024
"""Maximum length of a value, in characters."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


def below_level(cluster: ClusterState) -> CommandOutcome | None:
    """Refuse a command that needs features level 1 where older nodes may be about."""
    if cluster.features:
        return None
    text = (
        "the cluster is at features level 0, as its older nodes are: upgrade all nodes, then "
        "`logboom cluster upgrade finalize`"
    )
    return refused("INVALID_ARGUMENT", text)


def alter_settings(cluster: ClusterState, command: AlterSettings) -> CommandOutcome:
    """Set and unset replicated settings; all of them or none."""
    refusal = below_level(cluster)
    if refusal is not None:
        return refusal
    fault = broker_id_fault(command.scope) if command.scope else None
    if fault is not None:
        return refused("INVALID_ARGUMENT", fault.replace("broker", "node", 1))
    after = dict(cluster.settings)
    for name, value in command.values.items():
        if not _NAME.fullmatch(name):
            text = f"setting {name[:80]!r} is not allowed: use 1 to 128 of A-Z a-z 0-9 . _ -"
            return refused("INVALID_ARGUMENT", text)
        if value is None:
            after.pop((command.scope, name), None)
        elif len(value) > MAX_VALUE:
            text = f"a value of {len(value)} characters for {name!r}: give {MAX_VALUE} at most"
            return refused("INVALID_ARGUMENT", text)
        else:
            after[command.scope, name] = value
    if len(after) > MAX_SETTINGS:
        text = f"the cluster keeps at most {MAX_SETTINGS} settings: unset some"
        return refused("INVALID_ARGUMENT", text)
    if after != cluster.settings:
        for name in command.values:
            value = after.get((command.scope, name))
            if value != cluster.settings.get((command.scope, name)):
                scope = command.scope or "cluster"
                cluster.tell("setting_changed", scope=scope, name=name, value=value)
        cluster.settings = after
        cluster.touch_settings()
    return DONE


def raise_features(cluster: ClusterState, command: RaiseFeatures) -> CommandOutcome:
    """Raise the features level; it never goes down."""
    if command.level > cluster.features:
        if cluster.features < SUBSCRIPTION_RIGHTS <= command.level:
            begin_subscription_rules(cluster)
        cluster.features = command.level
        cluster.touch_settings()
    return DONE


def end_filling(cluster: ClusterState, command: EndFilling) -> CommandOutcome:
    """Note that a broker holds its share now."""
    cluster.filling.discard(command.broker)
    return DONE
