"""Which brokers and name servers may be stopped, by the metadata alone."""

from __future__ import annotations

import pytest

from logboom.wire.restart_check import (
    FEW_REPLICAS,
    REMEDIES,
    RestartRisk,
    copies_needed,
    majority_remains,
    restart_risks,
)
from logboom.wire.view import BrokerView, QueueView, TopicConfig, TopicView, View


def queue(replicas: str, isr: str | None = None, adding: str = "", removing: str = "") -> QueueView:
    """A queue; each letter is a broker, and the first in sync leads."""
    members = list(replicas if isr is None else isr)
    return QueueView(list(replicas), members[0], 1, 1, members, [], list(adding), list(removing))


def view(
    queues: dict[str, list[QueueView]],
    alive: str = "abcd",
    modes: dict[str, str] | None = None,
    min_in_sync: int = 0,
) -> View:
    """A cluster of the brokers a to d."""
    config = TopicConfig(min_in_sync=min_in_sync)
    brokers = [
        BrokerView(b, f"{b}:1", b, 1, b in alive, 1, mode=(modes or {}).get(b, "active"))
        for b in "abcd"
    ]
    topics = [
        TopicView(name, n, config, found, 1) for n, (name, found) in enumerate(queues.items())
    ]
    return View(1, True, "c", brokers, topics, [], [], [], "name-1")


def kinds(found: list[RestartRisk]) -> list[tuple[str, int, str, bool]]:
    """The risks, short."""
    return [(risk.topic, risk.queue, risk.kind, risk.lasting) for risk in found]


@pytest.mark.parametrize(
    ("found", "alive", "expected"),
    [
        pytest.param(queue("abc"), "abc", [], id="all in sync"),
        pytest.param(queue("abc", "bc"), "abc", [], id="it is catching up"),
        pytest.param(queue("bcd"), "abcd", [], id="it has no replica"),
        pytest.param(queue("abc", "ab"), "abc", [("below-min-in-sync", False)], id="two of three"),
        pytest.param(queue("abc", "a"), "abc", [("only-copy", False)], id="only copy"),
        pytest.param(queue("a"), "abc", [("only-copy", True)], id="one replica"),
        pytest.param(queue("ab"), "abc", [("below-min-in-sync", True)], id="two replicas"),
        pytest.param(queue("abc"), "a", [("no-leader", False)], id="others dead, not yet removed"),
        pytest.param(queue("abc"), "ab", [("below-min-in-sync", False)], id="one of them dead"),
        pytest.param(queue("abc", "bc"), "bcd", [], id="it is fenced"),
    ],
)
def test_what_a_queue_loses(found: QueueView, alive: str, expected: list[tuple[str, bool]]) -> None:
    risks = restart_risks(view({"t": [found]}, alive), "a")
    assert [(risk.kind, risk.lasting) for risk in risks] == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(queue("abcd", "abc", adding="d"), [], id="one is added"),
        pytest.param(queue("abcd", "bcd", adding="a"), [], id="it is added itself"),
        # One copy was enough before, and is until the move ends.
        pytest.param(queue("abc", "ab", adding="bc"), [], id="from one to three, one is in sync"),
        pytest.param(
            queue("abc", "a", adding="bc"), [("only-copy", False)], id="from one to three"
        ),
        pytest.param(queue("bcda", removing="a"), [], id="it is removed"),
        # Two of three copies stay needed until the others are gone.
        pytest.param(
            queue("abc", "ab", removing="bc"), [("below-min-in-sync", False)], id="three to one"
        ),
    ],
)
def test_moves_under_way(found: QueueView, expected: list[tuple[str, bool]]) -> None:
    risks = restart_risks(view({"t": [found]}), "a")
    assert [(risk.kind, risk.lasting) for risk in risks] == expected


def test_min_in_sync_counts_and_not_only_a_majority() -> None:
    queues = {"t": [queue("abc")]}
    assert restart_risks(view(queues, min_in_sync=1), "a") == []
    assert kinds(restart_risks(view(queues, min_in_sync=3), "a")) == [
        ("t", 0, "below-min-in-sync", True)
    ]
    assert copies_needed(TopicConfig(min_in_sync=5), queue("ab")) == 2


def test_the_mode_of_a_broker_changes_nothing_by_itself() -> None:
    """In maintenance it stays in every ISR, and counts as a copy; another's mode does not hinder."""
    queues = {"t": [queue("abc"), queue("abc", "ac")]}
    for modes in ({"a": "maintenance"}, {"c": "maintenance"}, {"a": "draining", "c": "drained"}):
        found = restart_risks(view(queues, modes=modes), "a")
        assert kinds(found) == [("t", 1, "below-min-in-sync", False)]


def test_risks_are_listed_by_topic_and_queue_with_a_remedy() -> None:
    queues = {"b": [queue("abc"), queue("abc", "ab")], "a": [queue("a"), queue("abc", "a")]}
    found = restart_risks(view(queues), "a")
    assert kinds(found) == [
        ("a", 0, "only-copy", True),
        ("a", 1, "only-copy", False),
        ("b", 1, "below-min-in-sync", False),
    ]
    assert [risk.remedy for risk in found] == [
        FEW_REPLICAS,
        REMEDIES["only-copy"],
        REMEDIES["below-min-in-sync"],
    ]


def test_an_unknown_broker_is_no_risk() -> None:
    assert restart_risks(view({"t": [queue("a")]}), "z") == []


@pytest.mark.parametrize(
    ("members", "serving", "remains"),
    [
        ("abc", "abc", True),
        ("abc", "ab", False),
        ("abc", "bc", True),
        ("abcde", "abcd", True),
        ("abcde", "abc", False),
        ("a", "a", False),
        ("abc", "abz", False),
    ],
)
def test_name_servers_keep_a_majority(members: str, serving: str, remains: bool) -> None:
    assert majority_remains(members, serving, "a") is remains
