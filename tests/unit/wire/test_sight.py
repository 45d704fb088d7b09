"""What a user sees of groups: nothing of topics that it may not describe."""

from __future__ import annotations

import msgspec

from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_rules import AccessRule, AccessView, UserView
from logboom.wire.group_view import (
    GroupConfig,
    GroupOffsets,
    GroupSummary,
    GroupView,
    MemberView,
    OwnedQueue,
    StrategyOptions,
)
from logboom.wire.sight import Sight, shown_group, shown_offsets, shown_summaries

NAMES = {1: "open", 2: "secret"}
SECRET = b"secret"


def sight(*patterns: str) -> Sight:
    rules = [AccessRule(True, "describe", "topic", pattern) for pattern in patterns]
    rules.append(AccessRule(True, "read", "group", "g"))
    book = AccessBook()
    book.update(AccessView(True, [UserView("alice", [], [], rules, version=7)]), 9)
    return Sight(lambda: book, "alice")


def group(
    *, config: GroupConfig | None = None, topics: tuple[str, ...] = ("open", "secret")
) -> GroupView:
    queues = [OwnedQueue(1, 0, 1, 100), OwnedQueue(2, 0, 1, 200)]
    return GroupView(
        "g", 1, config or GroupConfig(), dict.fromkeys(topics, ""), 1, "broker-1", 1, 1, 1,
        "queues without owner: secret/0", 8, 1, True,
        [MemberView("m", 1, "c", "", "", 1, queues, 8)], [], [(1, 0), (2, 0)],
    )  # fmt: skip


def test_who_may_describe_all_topics_sees_the_group_as_it_is() -> None:
    whole = group()
    assert shown_group(whole, sight("*"), NAMES.get) is whole


def test_hidden_topics_and_their_queues_are_left_out() -> None:
    options = StrategyOptions(config={"m": [("open", 0), ("secret", 0)]})
    shown = shown_group(group(config=GroupConfig(options=options)), sight("open"), NAMES.get)
    assert SECRET not in msgspec.msgpack.encode(shown)
    assert shown.subscription == {"open": ""}
    assert shown.config.options.config == {"m": [("open", 0)]}
    assert [queue.topic_id for queue in shown.members[0].queues] == [1]
    assert shown.unstarted == [(1, 0)]
    assert shown.fault
    assert shown.member_count == 1


def test_a_topic_only_in_the_options_of_the_strategy_is_left_out() -> None:
    options = StrategyOptions(config={"m": [("secret", 0)]})
    view = group(config=GroupConfig(options=options), topics=("open",))
    view = msgspec.structs.replace(view, members=[], unstarted=[])
    shown = shown_group(view, sight("open"), NAMES.get)
    assert SECRET not in msgspec.msgpack.encode(shown)


def test_queues_of_a_topic_that_is_not_subscribed_any_more_are_left_out() -> None:
    shown = shown_group(group(topics=("open",)), sight("open"), NAMES.get)
    assert [queue.topic_id for queue in shown.members[0].queues] == [1]
    assert [queue.topic_id for queue in group().members[0].queues] == [1, 2]


def test_queues_without_a_start_that_nobody_owns_are_left_out() -> None:
    view = msgspec.structs.replace(group(topics=("open",)), members=[])
    assert shown_group(view, sight("open"), NAMES.get).unstarted == [(1, 0)]


def test_a_group_without_a_fault_gets_none() -> None:
    view = msgspec.structs.replace(group(), fault="")
    assert shown_group(view, sight("open"), NAMES.get).fault == ""


def test_offsets_of_hidden_topics_are_left_out() -> None:
    offsets = [GroupOffsets(n, name, True, [1], [1]) for n, name in NAMES.items()]
    assert shown_offsets(offsets, sight("open")) == offsets[:1]
    assert shown_offsets(offsets, sight("open", "sec*")) == offsets


def test_a_list_shows_groups_and_topics_that_may_be_described() -> None:
    fault = "queues without owner: secret/0"
    groups = [
        GroupSummary(name, 1, "clustering", topics, 0, "", 1, 1, fault)
        for name, topics in (("g", ["open", "secret"]), ("other", ["open"]))
    ]
    (shown,) = shown_summaries(groups, sight("open"), lambda _: ())
    assert (shown.name, shown.topics) == ("g", ["open"])
    assert SECRET not in msgspec.msgpack.encode(shown)
    assert shown_summaries(groups[:1], sight("*"), lambda _: ["open"]) == groups[:1]
    (shown,) = shown_summaries(
        [msgspec.structs.replace(groups[0], topics=["open"])], sight("open"), lambda _: ["secret"]
    )
    assert SECRET not in msgspec.msgpack.encode(shown)


def test_names_are_shown_by_the_rules() -> None:
    seen = sight("open")
    assert seen.topic("open")
    assert not seen.topic("secret")
    assert seen.group("g")
    assert seen.topic("%RETRY%g"), "a group's topics follow the group"
    assert not seen.group("other")
    assert not seen.transaction("billing")
    assert seen.is_current()
    assert not seen.changed_after(7)
    assert seen.changed_after(6)


def test_an_application_id_is_shown_to_those_who_may_describe_it() -> None:
    book = AccessBook()
    rules = [AccessRule(True, "write", "transaction", "billing")]
    book.update(AccessView(True, [UserView("alice", [], [], rules)]), 1)
    seen = Sight(lambda: book, "alice")
    assert seen.transaction("billing")
    assert not seen.transaction("other")
    assert not seen.topic("billing")
