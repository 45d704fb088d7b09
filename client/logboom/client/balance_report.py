"""What the planner of moves does and proposes, and how even the brokers are, in words and numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import asdict

from logboom.client.move_plans import OperationPlan, plan_rows
from logboom.client.written_values import bytes_text, counted
from logboom.wire.operation_messages import (
    BalancePlanned,
    BrokerLoad,
    BrokerShare,
    ClusterDescribed,
    PlannerStatus,
)

STATES: Final = {
    "off": "nothing is to be repaired or drained, and balancing is off",
    "idle": "there is nothing to move",
    "moving": "moves are under way",
    "waiting": "something is to be moved, later",
    "stalled": "something is to be moved and cannot: this needs you",
}


def status_lines(described: ClusterDescribed) -> list[str]:
    """Return in words what the planner does, and why not more."""
    planner = described.planner
    lines = [f"{planner.state}: {STATES[planner.state]}"]
    if described.moves or planner.waiting:
        under_way, later = counted(len(described.moves), "queue"), f"{planner.waiting} more later"
        lines.append(f"{under_way} under way, {later}: see `logboom queue list --moving`")
    lines += [f"- {reason}" for reason in planner.reasons]
    stuck = [f"- {each.topic}/{each.queue}: {each.stuck}" for each in described.moves if each.stuck]
    lines += stuck[:10]
    return [*lines, _settings_line(planner)]


def _settings_line(planner: PlannerStatus) -> str:
    after = f"{planner.replace_after_s:g} s" if planner.replace_after_s else "never"
    rate = f"{bytes_text(planner.move_bytes_per_s)}/s" if planner.move_bytes_per_s else "automatic"
    return (
        f"balance_mode {planner.balance_mode or '?'}; dead brokers are replaced: {after}; throttle: "
        f"{rate}"
    )


def spread_of(brokers: Sequence[BrokerLoad]) -> dict[str, Any]:
    """Return the differences between the brokers with the most and the least, of those that take part:
    they are up and active, or in maintenance."""
    part = [each for each in brokers if each.alive and each.mode in ("active", "maintenance")]

    def span(value: Callable[[BrokerLoad], int]) -> int | None:
        values = [value(each) for each in part]
        return max(values) - min(values) if values and min(values) >= 0 else None

    mean = sum(max(0, each.size_bytes) for each in part) / max(1, len(part))
    size = span(lambda each: each.size_bytes)
    return {
        "bytes": size,
        "percent_of_mean": None if size is None or not mean else round(100 * size / mean, 1),
        "replicas": span(lambda each: each.replicas),
        "leads": span(lambda each: each.leading),
    }


def spread_text(brokers: Sequence[BrokerLoad]) -> str:
    """Return the spread in words."""
    spread = spread_of(brokers)
    if spread["replicas"] is None:
        return "spread: no broker takes part"
    size = "bytes not known yet"
    if spread["bytes"] is not None:
        share = spread["percent_of_mean"]
        size = bytes_text(spread["bytes"]) + (f" ({share:.0f} % of the mean)" if share else "")
    replicas, leads = counted(spread["replicas"], "replica"), counted(spread["leads"], "led queue")
    return f"spread: {size}, {replicas}, {leads}"


def run_plan(planned: BalancePlanned) -> OperationPlan:
    """Return a plan of balance for programs and the question."""
    copied = sum(max(0, each.copied_bytes) for each in planned.moves)
    facts = {
        "moves": plan_rows(planned),
        "bytes": copied,
        "reasons": planned.reasons,
        "before": [asdict(each) for each in planned.before],
        "after": [asdict(each) for each in planned.after],
    }
    return OperationPlan(facts, [], copied)


def plan_lines(planned: BalancePlanned) -> list[str]:
    """Return a plan of balance in words."""
    copied = sum(max(0, each.copied_bytes) for each in planned.moves)
    first = f"{counted(len(planned.moves), 'move')}, {bytes_text(copied)} to copy"
    return [first if planned.moves else "nothing to move", *(f"- {why}" for why in planned.reasons)]


def share_rows(planned: BalancePlanned) -> list[dict[str, Any]]:
    """Return what each broker has before and after a plan."""
    after = {each.broker: each for each in planned.after}
    return [_share_row(each, after.get(each.broker, each)) for each in planned.before]


def _share_row(before: BrokerShare, after: BrokerShare) -> dict[str, Any]:
    return {
        "broker": before.broker,
        "size": f"{bytes_text(before.size_bytes)} → {bytes_text(after.size_bytes)}",
        "replicas": f"{before.replicas} → {after.replicas}",
        "to_lead": f"{before.preferred} → {after.preferred}",
    }
