"""Checks of groups, subscriptions and transactions, pure.

"failed" is what does not recover automatically: a queue without an owner, a queue that is stuck for
a minute, a transaction past its time. What was stopped on purpose (paused, no consumers) is a
warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from logboom.client.admin_flows.group_lag import GroupDescription, GroupQueue
from logboom.client.admin_flows.open_transactions import OpenTransaction
from logboom.client.admin_flows.subscription_flows import QueueSubscription
from logboom.client.checks.check_result import CheckResult, Outcome, list_some
from logboom.client.results import NodeStats
from logboom.client.written_values import counted

STILL_MS: Final = 60_000
"""A queue with a lag that has not moved for this long does not recover automatically."""
VAIN: Final = 16
"""Failed deliveries after which a message that must not be skipped counts as blocking its queue."""
SLACK_MS: Final = 60_000
"""Tolerance beyond the time after which brokers end a transaction or stop their checks."""
DEFAULT_LIMIT_MS: Final = 15 * 60_000
"""The limit of brokers that do not report theirs."""
WILLING: Final = ("paused", "full cache", "draining")
"""States of a queue that its program has stopped on purpose or reads slowly."""


def group_finding(group: GroupDescription) -> CheckResult | None:
    """Return the worst problem of a group, or None."""
    name, lag = group.name, sum(queue.lag or 0 for queue in group.queues)
    describe = f"`logboom group describe {name}`"
    if not group.members:
        if not lag:
            return None
        found = f"no member, {counted(lag, 'message')} behind"
        return CheckResult(f"group {name}", "warning", found, "start its consumers, or delete it")
    unowned = [queue for queue in group.queues if not queue.owner and queue.stuck]
    still = [q for q in group.queues if q.owner and q.lag and (q.still_ms or 0) >= STILL_MS]
    result: Outcome = "warning"
    if group.config.paused:
        if not lag:
            return None
        found = f"paused, {counted(lag, 'message')} behind"
        return CheckResult(
            f"group {name}", result, found, f"`logboom group alter {name} --no-paused`"
        )
    if group.fault and not unowned:
        return CheckResult(f"group {name}", "failed", f"not allocated: {group.fault}", describe)
    wrong = unowned + still
    if not wrong:
        return None
    if any(queue.lag != 0 for queue in unowned) or not all(map(_is_willing, still)):
        result = "failed"
    wrong.sort(key=lambda queue: (queue.lag == 0, _is_willing(queue)))
    first = f"{wrong[0].topic}/{wrong[0].queue}: {wrong[0].stuck}"
    more = f"; and {counted(len(wrong) - 1, 'queue')} more" if len(wrong) > 1 else ""
    fix = f"{describe} shows each queue" + (
        f"; give them an owner: `logboom group alter {name} --strategy`" if unowned else ""
    )
    return CheckResult(f"group {name}", result, first + more, fix)


def _is_willing(queue: GroupQueue) -> bool:
    return queue.stuck.startswith(WILLING)


def subscription_findings(
    topic: str, name: str, queues: list[QueueSubscription]
) -> list[CheckResult]:
    """Return the problems of a subscription."""
    states = [(each.queue, each.state) for each in queues]
    unacked = sum(state.unacked for _, state in states)
    check = f"subscription {topic}/{name}"
    describe = f"`logboom subscription describe {topic} {name}`"
    if not any(state.consumers for _, state in states):
        if not unacked:
            return []
        found = f"no consumer, {counted(unacked, 'message')} not acknowledged"
        return [CheckResult(check, "warning", found, "start its consumers, or delete it")]
    bare = [str(queue) for queue, state in states if state.uncovered and state.unacked]
    if bare:
        found = f"slots of nobody in {counted(len(bare), 'queue')}: {list_some(bare)}"
        return [CheckResult(check, "failed", found, f"give every slot a consumer: {describe}")]
    vain = [
        f"{queue} at {offset} ({times} times)"
        for queue, state in states
        if state.kind in ("exclusive", "failover")
        for offset, times in state.again[:1]
        if times >= VAIN
    ]
    if vain:
        found = (
            f"a message comes again and again in {counted(len(vain), 'queue')}: {list_some(vain)}"
        )
        fix = f"check its consumers; `logboom subscription skip {topic} {name} 1` skips it"
        return [CheckResult(check, "failed", found, fix)]
    return []


def late_findings(
    transactions: Sequence[OpenTransaction], limits_ms: Mapping[bool, int], now_ms: int
) -> list[CheckResult]:
    """Return transactions and half messages that are past their time.

    `limits_ms` has the limit of half messages under True.
    """
    late = [each for each in transactions if now_ms - each.since_ms > limits_ms[each.is_half]]
    halves = [each for each in late if each.is_half]
    others = [each for each in late if not each.is_half]
    found: list[CheckResult] = []
    if halves:
        text = f"{counted(len(halves), 'half message')} that nobody decides: {_whose(halves)}"
        fix = "`logboom transaction list`, then `logboom transaction commit` or `abort`"
        found.append(CheckResult("half messages", "failed", text, fix))
    if others:
        text = f"{counted(len(others), 'transaction')} past their time: {_whose(others)}"
        fix = "they end once their queues have leaders; else `logboom transaction abort`"
        found.append(CheckResult("transactions", "failed", text, fix))
    return found


def time_limits_ms(nodes: Sequence[NodeStats]) -> dict[bool, int]:
    """Return after how many ms a transaction (False) or a half message (True) is past its time."""
    counters = [node.counters for node in nodes]

    def greatest(name: str) -> int:
        values = [of[name] for of in counters if isinstance(of.get(name), int | float)]
        return int(max((float(value) for value in values), default=DEFAULT_LIMIT_MS))

    return {
        False: greatest("transaction_timeout_ms") + SLACK_MS,
        True: greatest("half_checks_over_ms") + SLACK_MS,
    }


def _whose(transactions: Sequence[OpenTransaction]) -> str:
    return list_some(list(dict.fromkeys(each.app_id for each in transactions)))
