"""What one user may see: names of topics, groups and transactions, and groups without the others'.

Nothing here depends on a node: name servers and brokers show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeAlias

import msgspec

from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_rules import CLUSTER, resource_of_subscription
from logboom.wire.group_view import GroupOffsets, GroupSummary, GroupView, MemberView

HIDDEN_FAULT: Final = "its strategy leaves queues without an owner"
"""In place of a group's fault, which may name topics, if some of its topics are hidden."""


class Sight(NamedTuple):
    """The view of one user."""

    books: Callable[[], AccessBook]
    """Returns the newest copy of users and rules."""
    user: str
    is_current: Callable[[], bool] = lambda: True
    """Returns False once the key of the session is not accepted any more."""

    def topic(self, name: str) -> bool:
        """True if the user may describe a topic."""
        return self.books().decide(self.user, "describe", "topic", name).allowed

    def group(self, name: str) -> bool:
        """True if the user may describe a group."""
        return self.books().decide(self.user, "describe", "group", name).allowed

    def subscription(self, topic: str, name: str) -> bool:
        """True if the user may describe a subscription."""
        resource = resource_of_subscription(topic, name)
        return self.books().decide(self.user, "describe", "subscription", resource).allowed

    def transaction(self, app_id: str) -> bool:
        """True if the user may describe an application id or producer group."""
        return self.books().decide(self.user, "describe", "transaction", app_id).allowed

    def decides(self, app_id: str) -> bool:
        """True if the user may decide on what others have left behind under an application id."""
        return self.books().decide(self.user, "manage", "transaction", app_id).allowed

    def cluster(self) -> bool:
        """True if the user may describe the cluster."""
        return self.books().decide(self.user, "describe", "cluster", CLUSTER).allowed

    def changed_after(self, version: int) -> bool:
        """True if what the user may see has changed after a metadata version."""
        return self.books().changed_at(self.user) > version


TopicById: TypeAlias = Callable[[int], str | None]
"""Topic id → name; None: there is no such topic."""


def shown_group(view: GroupView, sight: Sight, name_of: TopicById) -> GroupView:
    """Return a group as its user may see it.

    Topics that the user may not describe are left out, and so are their queues. `name_of` returns
    the name of a topic by its id.
    """
    chosen = view.config.options.config
    named = {*view.subscription, *(topic for queues in chosen.values() for topic, _ in queues)}
    hidden = {name for name in named if not sight.topic(name)}
    # Owners keep queues of topics that the group no longer subscribes to.
    ids = {queue.topic_id for member in view.members for queue in member.queues}
    ids |= {topic_id for topic_id, _ in view.unstarted}
    hidden_ids = {topic_id for topic_id in ids if not _sees_known(sight, name_of(topic_id))}
    if not hidden and not hidden_ids:
        return view
    options = msgspec.structs.replace(
        view.config.options,
        config={
            member: [each for each in queues if each[0] not in hidden]
            for member, queues in chosen.items()
        },
    )
    return msgspec.structs.replace(
        view,
        config=msgspec.structs.replace(view.config, options=options),
        subscription={t: text for t, text in view.subscription.items() if t not in hidden},
        fault=view.fault and HIDDEN_FAULT,
        members=[_shown_member(member, hidden_ids) for member in view.members],
        unstarted=[key for key in view.unstarted if key[0] not in hidden_ids],
    )


def _shown_member(member: MemberView, hidden: set[int]) -> MemberView:
    queues = [queue for queue in member.queues if queue.topic_id not in hidden]
    return msgspec.structs.replace(member, queues=queues)


def _sees_known(sight: Sight, topic: str | None) -> bool:
    return topic is not None and sight.topic(topic)


def shown_offsets(offsets: list[GroupOffsets], sight: Sight) -> list[GroupOffsets]:
    """Return the offsets of a group in the topics that the user may describe."""
    return [each for each in offsets if sight.topic(each.topic)]


def shown_summaries(
    groups: list[GroupSummary], sight: Sight, configured: Callable[[str], Collection[str]]
) -> list[GroupSummary]:
    """Return the groups of a list that the user may describe, without topics it may not.

    `configured` returns the topics that the options of a group's strategy name.
    """
    return [
        _shown_summary(each, sight, configured(each.name))
        for each in groups
        if sight.group(each.name)
    ]


def _shown_summary(group: GroupSummary, sight: Sight, configured: Collection[str]) -> GroupSummary:
    topics = [topic for topic in group.topics if sight.topic(topic)]
    if len(topics) == len(group.topics) and all(map(sight.topic, configured)):
        return group
    return msgspec.structs.replace(group, topics=topics, fault=group.fault and HIDDEN_FAULT)
