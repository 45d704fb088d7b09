"""Outcomes of commands, before the metadata version is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from logboom.wire.names import unknown_group_text, unknown_topic_text

if TYPE_CHECKING:
    from logboom.metadata.tables.consumer_groups import ConsumerGroup


class CommandOutcome(NamedTuple):
    """An error code (empty on success) with its one line and fields, or a value."""

    code: str = ""
    text: str = ""
    fields: dict[str, str | int | None] | None = None
    value: int | list[str] | None = None


DONE: Final = CommandOutcome()


def refused(code: str, text: str, **fields: str | int | None) -> CommandOutcome:
    """Build the outcome of a command that changed nothing; `text` gives the reason and the remedy."""
    return CommandOutcome(code, text, fields)


def unknown_topic(name: str) -> CommandOutcome:
    """Build UNKNOWN_TOPIC."""
    return refused("UNKNOWN_TOPIC", unknown_topic_text(name), topic=name)


def unknown_broker(broker: str) -> CommandOutcome:
    """Build UNKNOWN_BROKER."""
    text = f"broker {broker!r} is not registered: see `logboom cluster status` for those that are"
    return refused("UNKNOWN_BROKER", text, broker=broker)


def unknown_group(name: str) -> CommandOutcome:
    """Build UNKNOWN_GROUP."""
    return refused("UNKNOWN_GROUP", unknown_group_text(name), group=name)


def unknown_user(name: str) -> CommandOutcome:
    """Build UNKNOWN_USER."""
    text = f"user {name[:80]!r} does not exist: see `logboom user list` for those that do"
    return refused("UNKNOWN_USER", text, user=name)


def unknown_role(name: str) -> CommandOutcome:
    """Build UNKNOWN_ROLE."""
    text = f"role {name[:80]!r} does not exist: create it with `logboom role create`"
    return refused("UNKNOWN_ROLE", text, role=name)


def not_coordinator(group: ConsumerGroup, epoch: int) -> CommandOutcome:
    """Build NOT_COORDINATOR, for another broker, or for another epoch of the same one."""
    text = (
        f"group {group.name!r} is coordinated by {group.coordinator or 'nobody'} in epoch "
        f"{group.coordinator_epoch}, not {epoch}: ask there"
    )
    coordinator = group.coordinator or None
    return refused(
        "NOT_COORDINATOR", text, group=group.name, leader=coordinator, epoch=group.coordinator_epoch
    )


def fenced(broker: str) -> CommandOutcome:
    """Build FENCED: the instance epoch is not that of the broker's current registration."""
    return refused("FENCED", f"broker {broker!r} is fenced: it must register again", broker=broker)
