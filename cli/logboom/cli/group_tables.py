"""Tables of `logboom group`: members, queues, lags and resets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from logboom.client.admin_flows.group_lag import GroupDescription, GroupQueue
from logboom.client.admin_flows.offset_resets import OffsetReset
from logboom.client.fetch.fetch_collector import TopicQueue
from logboom.wire.group_view import GroupSummary


def summary(group: GroupSummary) -> dict[str, Any]:
    """Return one row of `group list`."""
    return {
        "name": group.name,
        "id": group.id,
        "members": group.member_count,
        "topics": group.topics,
        "mode": group.mode,
        "coordinator": group.coordinator or None,
        "state": "paused"
        if group.paused
        else _state(group.group_epoch, group.target_epoch, group.member_count, group.fault),
    }


def _state(group_epoch: int, target_epoch: int, members: int, fault: str) -> str:
    if not members:
        return "empty"
    if fault:
        return fault
    return "ok" if target_epoch >= group_epoch else "rebalancing"


def as_json(group: GroupDescription) -> dict[str, Any]:
    """Return the group for JSON output, with named settings."""
    config = msgspec.structs.asdict(group.config)
    config["options"] = msgspec.structs.asdict(group.config.options)
    return {**msgspec.structs.asdict(group), "config": config}


def headline(group: GroupDescription) -> str:
    """Return the group in one line."""
    lag = sum(queue.lag or 0 for queue in group.queues)
    state = _state(group.group_epoch, group.target_epoch, len(group.members), group.fault)
    state = "paused" if group.config.paused else state
    return (
        f"{group.name}: {state}, {group.config.mode}, strategy {group.config.strategy}, "
        f"{len(group.members)} member{'s' * (len(group.members) != 1)}, {lag:,} message{'s' * (lag != 1)} behind, "
        f"coordinator {group.coordinator or 'none'}"
    )


def member_rows(group: GroupDescription) -> list[dict[str, Any]]:
    """Return a row per member."""
    return [
        {
            "member": member.id,
            "client": member.client_id,
            "queues": _places_text(member.queues),
            "room": member.room or None,
            "static": member.instance or None,
            "silent": age_text(member.silent_ms),
        }
        for member in group.members
    ]


def _places_text(places: Sequence[TopicQueue]) -> str:
    """Return queues in the form "orders/0 1 2, refunds/4"."""
    found: dict[str, list[str]] = {}
    for topic, queue in places:
        found.setdefault(topic, []).append(str(queue))
    return ", ".join(f"{topic}/{' '.join(queues)}" for topic, queues in found.items()) or "none"


def queue_row(queue: GroupQueue) -> dict[str, Any]:
    """Return the row of a queue."""
    return {
        "topic": queue.topic,
        "queue": queue.queue,
        "committed": queue.committed,
        "end": queue.end,
        "lag": None if queue.lag is None else f"{queue.lag:,}",
        "age": age_text(queue.age_ms),
        "owner": queue.owner or None,
        "stuck": queue.stuck or None,
    }


def age_text(milliseconds: int | None) -> str | None:
    """Return an age in the form 850ms, 12s, 7m 30s, 5h 2m or 3d 4h."""
    if milliseconds is None:
        return None
    if milliseconds < 1_000:
        return f"{milliseconds}ms"
    seconds = milliseconds // 1_000
    if seconds < 60:
        return f"{seconds}s"
    for (large, size), (small, part) in (
        (("m", 60), ("s", 1)),
        (("h", 3_600), ("m", 60)),
        (("d", 86_400), ("h", 3_600)),
    ):
        if seconds < size * (24 if large == "h" else 60) or large == "d":
            rest = seconds % size // part
            return f"{seconds // size}{large}{f' {rest}{small}' if rest else ''}"
    raise AssertionError("days are unlimited")


def reset_row(line: OffsetReset) -> dict[str, Any]:
    """Return the row of a queue in a reset plan."""
    change = None if line.committed is None else line.target - line.committed
    return {**msgspec.structs.asdict(line), "change": change}
