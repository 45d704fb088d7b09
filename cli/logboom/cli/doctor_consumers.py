"""Checks of `logboom doctor` for groups, subscriptions and transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from logboom.client import Client
from logboom.client.admin_flows.subscription_flows import QueueSubscription
from logboom.client.checks.check_result import CheckResult
from logboom.client.checks.consumer_checks import (
    group_finding,
    late_findings,
    subscription_findings,
    time_limits_ms,
)
from logboom.client.written_values import counted
from logboom.wire.errors import LogboomError
from logboom.wire.names import is_reserved

LOOK_S: Final = 30.0
"""Seconds after which no more groups and topics are checked."""
MAX_TRANSACTIONS: Final = 10_000


def consumers(boom: Client, clock: Callable[[], float] = time.monotonic) -> Iterator[CheckResult]:
    """Check the cluster's groups, subscriptions and transactions."""
    until = clock() + LOOK_S
    looks = {
        "groups": _groups(boom, until, clock),
        "subscriptions": _subscriptions(boom, until, clock),
        "transactions": _transactions(boom),
    }
    for check, look in looks.items():
        try:
            yield from look
        except LogboomError as error:
            fix = "see the checks above, then run it again"
            yield CheckResult(check, "warning", f"could not be checked: {error.text}", fix)


# Groups.


def _groups(boom: Client, until: float, clock: Callable[[], float]) -> Iterator[CheckResult]:
    names = [group.name for group in boom.admin.groups()]
    found, left = [], 0
    for place, name in enumerate(names):
        if clock() > until:
            left = len(names) - place
            break
        try:
            found.append(boom.admin.describe_group(name))
        except LogboomError as error:
            if error.code != "UNKNOWN_GROUP":
                raise
    wrong = [finding for group in found if (finding := group_finding(group)) is not None]
    yield from wrong
    behind = sum(queue.lag or 0 for group in found for queue in group.queues)
    told = f"{counted(len(found), 'group')}, {counted(behind, 'message')} behind"
    if left:
        fix = "`logboom group describe` shows each"
        yield CheckResult("groups", "warning", f"{told}; {left} not checked", fix)
    elif not wrong:
        yield CheckResult("groups", "ok", told)


# Subscriptions.


def _subscriptions(boom: Client, until: float, clock: Callable[[], float]) -> Iterator[CheckResult]:
    topics = [topic for topic in boom.admin.topics() if not is_reserved(topic.name)]
    count = left = 0
    wrong: list[CheckResult] = []
    for place, topic in enumerate(topics):
        if clock() > until:
            left = len(topics) - place
            break
        if any(queue.leader is None for queue in topic.queues):
            continue  # the check of queues reports it
        by_name: dict[str, list[QueueSubscription]] = {}
        for each in boom.admin.subscriptions.all(topic.name):
            by_name.setdefault(each.state.name, []).append(each)
        count += len(by_name)
        for name, queues in sorted(by_name.items()):
            wrong += subscription_findings(topic.name, name, queues)
    yield from wrong
    told = counted(count, "subscription")
    if left:
        fix = "`logboom subscription list` shows those of a topic"
        yield CheckResult("subscriptions", "warning", f"{told}; {left} topics not checked", fix)
    elif not wrong:
        yield CheckResult("subscriptions", "ok", told)


# Transactions.


def _transactions(boom: Client) -> Iterator[CheckResult]:
    told = boom.admin.transactions(most=MAX_TRANSACTIONS)
    wrong = late_findings(
        told.transactions, time_limits_ms(boom.admin.stats()), int(time.time() * 1000)
    )
    yield from wrong
    if not wrong:
        more = " or more" if told.more else ""
        yield CheckResult("transactions", "ok", f"{len(told.transactions)}{more} under way")
