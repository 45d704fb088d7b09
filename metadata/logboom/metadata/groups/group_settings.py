"""The operator's commands on groups: create, alter, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logboom.metadata.allocate import STRATEGIES
from logboom.metadata.groups.coordinator_placement import assign_coordinators
from logboom.metadata.groups.group_subscriptions import remove_topic, subscribe, subscription_fault
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused, unknown_group
from logboom.metadata.tables.consumer_groups import ConsumerGroup
from logboom.metadata.tables.name_rules import MAX_GROUPS, group_name_fault
from logboom.wire.group_view import GroupConfig, StrategyOptions
from logboom.wire.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from logboom.metadata.tables.cluster_state import ClusterState
    from logboom.wire.group_commands import AlterGroup, DeleteGroup

LONGEST_MS: Final = 40 * 86_400_000
"""Upper limit of every setting that is a time."""
DEFAULTS: Final = GroupConfig(options=StrategyOptions(virtual_nodes=10))
"""Settings of a group that an operator creates without any. Name servers of all versions apply the
same commands to the same state, so these stay as they were in the first version."""


def make_group(
    cluster: ClusterState, name: str, config: GroupConfig
) -> ConsumerGroup | CommandOutcome:
    """Create a group without subscription and members, or return why it cannot exist."""
    fault = group_name_fault(name)
    if fault is not None:
        return refused("INVALID_NAME", fault)
    groups = cluster.groups
    fault = config_fault(config)
    if fault is None and len(groups.by_name) >= MAX_GROUPS:
        fault = f"there are {MAX_GROUPS} groups, which is the most: delete one first"
    if fault is not None:
        return refused("INVALID_ARGUMENT", fault)
    group = ConsumerGroup(name, groups.next_id, config)
    groups.next_id += 1
    group.coordinator_epoch = group.group_epoch = group.target_epoch = groups.first_epoch
    groups.add(group)
    groups.touch(group)
    group.created_version = group.version
    assign_coordinators(cluster, [group])
    return group


def config_fault(config: GroupConfig) -> str | None:
    """Return why a group cannot have these settings, in one line, or None."""
    for name in ("heartbeat_ms", "session_ms", "drain_ms", "consume_timeout_ms", "retry_first_ms"):
        value = getattr(config, name)
        if not 1 <= value <= LONGEST_MS:
            return f"{name} {value}: give 1 to {LONGEST_MS}"
    fault = None
    if config.heartbeat_ms >= config.session_ms:
        fault = f"heartbeat_ms {config.heartbeat_ms}: give less than session_ms {config.session_ms}"
    elif not config.retry_first_ms <= config.retry_last_ms <= LONGEST_MS:
        first = config.retry_first_ms
        fault = f"retry_last_ms {config.retry_last_ms}: give retry_first_ms {first} or more"
    elif not 1 <= config.max_attempts <= 1_000_000:
        fault = f"max_attempts {config.max_attempts}: give 1 to 1000000"
    elif config.strategy not in STRATEGIES:
        fault = f"strategy {config.strategy[:80]!r}: choose one of {', '.join(STRATEGIES)}"
    elif not 1 <= config.options.virtual_nodes <= 1000:
        fault = f"virtual_nodes {config.options.virtual_nodes}: give 1 to 1000"
    elif config.paused and config.mode == "broadcasting":
        fault = "a broadcasting group cannot be paused: its members read by themselves"
    elif isinstance(config.start, int) and config.start < 0:
        fault = f"start {config.start}: give 'first', 'last' or Unix milliseconds"
    return fault


def alter_group(cluster: ClusterState, command: AlterGroup) -> CommandOutcome:
    """Change settings or subscription of a group, or create it; the value is its id."""
    config, subscription = command.config, command.subscription
    fault = None if config is None else config_fault(config)
    if fault is None and subscription is not None:
        fault = subscription_fault(subscription)
    group = cluster.groups.by_name.get(command.group)
    if fault is None and group is not None and config is not None:
        fault = _refuse_mode(group, config)
    if fault is not None:
        return refused("INVALID_ARGUMENT", fault)
    if group is None:
        if not command.create:
            return unknown_group(command.group)
        made = make_group(cluster, command.group, config or DEFAULTS)
        if isinstance(made, CommandOutcome):
            return made
        group = made
    elif config is not None and config != group.config:
        allocation = (group.config.strategy, group.config.options, group.config.paused)
        group.config = config
        cluster.groups.touch(group)
        if allocation != (config.strategy, config.options, config.paused):
            cluster.groups.reshape(group)
    if subscription is not None and subscription != group.subscription:
        subscribe(cluster, group, subscription)
    return CommandOutcome(value=group.id)


def _refuse_mode(group: ConsumerGroup, config: GroupConfig) -> str | None:
    if config.mode == group.config.mode:
        return None
    return f"group {group.name!r} is {group.config.mode}: a new group can be {config.mode}"


def delete_group(cluster: ClusterState, command: DeleteGroup) -> CommandOutcome:
    """Delete a group without members.

    Its retry topic is deleted with it: only its members could read it, and a new group of that name
    would read it again from the start, as retry topics always are. Dead letters stay unless the
    command includes them.
    """
    group = cluster.groups.by_name.get(command.group)
    if group is None:
        return unknown_group(command.group)
    if group.members:
        text = f"group {group.name!r} has {len(group.members)} members: stop them first"
        return refused("GROUP_NOT_EMPTY", text, group=group.name, members=len(group.members))
    cluster.groups.drop(group)
    for prefix in (RETRY_PREFIX, DLQ_PREFIX) if command.dead_letters else (RETRY_PREFIX,):
        topic = cluster.topics.get(prefix + group.name)
        if topic is not None:
            remove_topic(cluster, topic)
    return DONE
