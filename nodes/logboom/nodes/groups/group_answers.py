"""Answers of a coordinator to members, and the errors that it gives instead."""

from __future__ import annotations

from logboom.wire.commands import CommandResult
from logboom.wire.errors import (
    GroupError,
    LogboomError,
    NotLeader,
    Unavailable,
    UnknownResource,
    error_for,
)
from logboom.wire.group_messages import GroupAssigned
from logboom.wire.group_view import GroupView, MemberView
from logboom.wire.names import unknown_group_text
from logboom.wire.routes import Routes


def assigned(
    number: int, version: int, member: MemberView, head: GroupView, routes: Routes
) -> GroupAssigned:
    """Return the answer to a member's heartbeat: all that it is assigned."""
    queues = [queue for queue in member.queues if queue.topic_id in routes.names]
    topics = {queue.topic_id: routes.names[queue.topic_id] for queue in queues}
    return GroupAssigned(
        number,
        version,
        queues,
        topics,
        head.subscription,
        head.subscription_version,
        head.config,
    )


def not_coordinator(routes: Routes, group: str, broker: str, epoch: int) -> LogboomError:
    """NOT_COORDINATOR, with the coordinator as far as it is known here."""
    known = routes.brokers.get(broker)
    return NotLeader(
        f"group {group!r} is coordinated by {broker or 'nobody'} in epoch {epoch}: ask there",
        "NOT_COORDINATOR",
        group=group,
        coordinator=broker or None,
        leader=broker or None,
        endpoint=known.endpoint if known is not None else None,
        epoch=epoch,
    )


def refusal_of(result: CommandResult, routes: Routes) -> LogboomError:
    """Return the error of a command that the log rejected."""
    if result.code == "NOT_COORDINATOR":
        broker, epoch = result.fields.get("leader"), result.fields.get("epoch")
        return not_coordinator(
            routes,
            str(result.fields.get("group")),
            broker if isinstance(broker, str) else "",
            epoch if isinstance(epoch, int) else -1,
        )
    return error_for(result.code, result.text, dict(result.fields))


def no_lease() -> LogboomError:
    """UNAVAILABLE: the lease is over, so another broker may coordinate this group by now (Q11)."""
    return Unavailable(
        "the name servers have not answered for 2 s: this broker coordinates no groups until "
        "they are back; consumers go on with the queues that they have"
    )


def stale_metadata() -> LogboomError:
    """UNAVAILABLE: the sender knows a newer state than this broker."""
    return Unavailable("this broker's metadata is older than the request: try again")


def full() -> LogboomError:
    """BUSY: too many requests wait for the raft group."""
    return Unavailable("too many requests of groups wait for the name servers: try again", "BUSY")


def outcome_unknown() -> LogboomError:
    """UNAVAILABLE: the outcome of a request is unknown."""
    return Unavailable(
        "this broker had to register again: repeat the request at the group's coordinator"
    )


def moved() -> LogboomError:
    """NOT_COORDINATOR, reported by the log. The new coordinator is not known here yet."""
    return Unavailable("the group has another coordinator by now: try again")


def unknown_group(group: str) -> LogboomError:
    """UNKNOWN_GROUP."""
    return UnknownResource(unknown_group_text(group), "UNKNOWN_GROUP", group=group)


def unknown_member(group: str, member: str) -> LogboomError:
    """UNKNOWN_MEMBER: it left, or has expired."""
    text = f"{member!r} is not, or no longer, a member of group {group!r}: join again"
    return GroupError(text, "UNKNOWN_MEMBER", group=group)


def stale_epoch(group: str, member: str, current: int, given: int) -> LogboomError:
    """STALE_EPOCH: the member has joined again in the meantime."""
    text = f"member {member!r} has joined again: its epoch is {current}, not {given}"
    return NotLeader(text, "STALE_EPOCH", group=group, epoch=current)
