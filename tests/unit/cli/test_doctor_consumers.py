"""What the doctor says of groups, subscriptions and transactions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from logboom.client.admin_flows.group_lag import GroupDescription, GroupMember, GroupQueue
from logboom.client.admin_flows.open_transactions import OpenTransaction
from logboom.client.admin_flows.subscription_flows import QueueSubscription
from logboom.client.checks.consumer_checks import (
    STILL_MS,
    VAIN,
    group_finding,
    late_findings,
    subscription_findings,
)
from logboom.wire.group_view import GroupConfig
from logboom.wire.subscription_messages import ConsumerState, SubscriptionState
from logboom.wire.transactions import HALF, TransactionId, UndecidedBatch

MEMBER = GroupMember("m1", "client", "", "", 1, 10, 1, [("orders", 0)])
QUEUE = GroupQueue("orders", 0, 5, 0, 9, 4, 1_000, "m1", "")


def described(*queues: GroupQueue, **changed: Any) -> GroupDescription:
    """A group of one member."""
    group = GroupDescription(
        "billing", 1, GroupConfig(), {}, 1, "broker-1", 1, 1, 1, "", [MEMBER], list(queues)
    )
    return replace(group, **changed)


@pytest.mark.parametrize(
    ("group", "result", "found"),
    [
        (described(QUEUE), None, ""),
        (described(replace(QUEUE, stuck="handler running for 9 s", still_ms=9_000)), None, ""),
        (
            described(replace(QUEUE, stuck="handler running for 90 s", still_ms=90_000)),
            "failed",
            "orders/0: handler running for 90 s",
        ),
        (
            described(replace(QUEUE, stuck="not polled for 90 s", still_ms=STILL_MS)),
            "failed",
            "orders/0: not polled for 90 s",
        ),
        (
            described(replace(QUEUE, stuck="paused for 90 s", still_ms=90_000)),
            "warning",
            "orders/0: paused for 90 s",
        ),
        (
            described(
                replace(QUEUE, stuck="paused for 90 s", still_ms=90_000),
                replace(QUEUE, queue=1, owner="", stuck="no member has it"),
            ),
            "failed",
            "orders/1: no member has it; and 1 queue more",
        ),
        (
            described(replace(QUEUE, owner="", lag=0, stuck="by_config gives it to nobody")),
            "warning",
            "orders/0: by_config gives it to nobody",
        ),
        (described(QUEUE, fault="member 'm1' has no room"), "failed", "not allocated: member 'm1'"),
        (described(QUEUE, members=[]), "warning", "no member, 4 messages behind"),
        (described(replace(QUEUE, lag=0), members=[]), None, ""),
        (
            described(replace(QUEUE, owner="", stuck="x"), config=GroupConfig(paused=True)),
            "warning",
            "paused, 4 messages behind",
        ),
    ],
)
def test_groups(group: GroupDescription, result: str | None, found: str) -> None:
    finding = group_finding(group)
    assert (None if finding is None else finding.result) == result
    if finding is not None:
        assert finding.found.startswith(found)
        assert finding.fix


STATE = SubscriptionState(
    "s", 5, 0, 4, 9, "shared", 0, 0, [ConsumerState("c", 0, 9, 9, 0, True, 1, [])], [], [], [], []
)


@pytest.mark.parametrize(
    ("state", "result"),
    [
        (STATE, None),
        (replace(STATE, consumers=[]), "warning"),
        (replace(STATE, consumers=[], unacked=0), None),
        (replace(STATE, kind="key_shared", uncovered=[(0, 99)]), "failed"),
        (replace(STATE, kind="key_shared", uncovered=[(0, 99)], unacked=0), None),
        (replace(STATE, kind="exclusive", again=[(5, VAIN)]), "failed"),
        (replace(STATE, kind="exclusive", again=[(5, VAIN - 1)]), None),
        (replace(STATE, kind="shared", again=[(5, VAIN)]), None),
    ],
)
def test_subscriptions(state: SubscriptionState, result: str | None) -> None:
    found = subscription_findings("orders", "s", [QueueSubscription(0, state)])
    assert [finding.result for finding in found] == ([] if result is None else [result])


def unended(sequence: int, parked_ms: int) -> OpenTransaction:
    """One batch that waits."""
    whose = TransactionId("shop", sequence, 1)
    parked = UndecidedBatch("orders", 1, 0, 0, 0, whose, parked_ms, 0, 1, 10)
    return OpenTransaction("shop", sequence, 1, [parked])


def test_transactions_and_half_messages_have_their_own_time() -> None:
    limits = {False: 1_000, True: 5_000}
    fresh = [unended(1, 9_500), unended(HALF, 6_000)]
    assert late_findings(fresh, limits, 10_000) == []
    late = [unended(1, 8_000), unended(HALF, 4_000), *fresh]
    found = late_findings(late, limits, 10_000)
    assert [(each.check, each.result) for each in found] == [
        ("half messages", "failed"),
        ("transactions", "failed"),
    ]
    assert "1 half message that nobody decides: shop" in found[0].found
