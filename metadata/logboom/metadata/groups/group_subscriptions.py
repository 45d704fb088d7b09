"""The queues that a group consumes: its subscription, and topics that appear, grow and disappear.

In queues that exist when a group first subscribes to their topic, it begins by its `start` rule. In
queues that are added later it begins at 0, so that nothing is missed. Its retry topic is always
read from the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logboom.metadata.tables.command_outcome import CommandOutcome, refused
from logboom.metadata.tables.name_rules import MAX_FILTER, MAX_SUBSCRIBED
from logboom.wire.group_view import UNKNOWN_START
from logboom.wire.names import RETRY_PREFIX, is_reserved, topic_name_fault

if TYPE_CHECKING:
    from logboom.metadata.tables.cluster_state import ClusterState, Topic
    from logboom.metadata.tables.consumer_groups import ConsumerGroup

NAMED: Final = 3
"""Number of topics that a message about a mismatch names, of each kind."""


def subscription_fault(subscription: dict[str, str]) -> str | None:
    """Return why a group cannot subscribe so, in one line, or None; coordinators check filters."""
    if not 1 <= len(subscription) <= MAX_SUBSCRIBED:
        return f"a subscription to {len(subscription)} topics: name 1 to {MAX_SUBSCRIBED}"
    for topic, wanted in subscription.items():
        fault = topic_name_fault(topic)
        if fault is None and topic.startswith(RETRY_PREFIX):
            fault = f"topic {topic!r} is a group's own: its members get it without subscribing"
        if fault is None and len(wanted) > MAX_FILTER:
            fault = f"a filter of {len(wanted)} characters for {topic!r}: {MAX_FILTER} at most"
        if fault is not None:
            return fault
    return None


def refuse_mismatch(group: ConsumerGroup, subscription: dict[str, str]) -> CommandOutcome | None:
    """Return SUBSCRIPTION_MISMATCH with the difference, or None if the subscriptions are equal."""
    own = group.subscription
    if subscription == own:
        return None
    missing = sorted(own.keys() - subscription.keys())
    extra = sorted(subscription.keys() - own.keys())
    different = sorted(t for t in own.keys() & subscription.keys() if own[t] != subscription[t])
    parts = [
        *(f"lacks {topic!r}" for topic in missing[:NAMED]),
        *(f"has {topic!r} besides" for topic in extra[:NAMED]),
        *(f"filters {t!r} by {subscription[t]!r}, not {own[t]!r}" for t in different[:NAMED]),
    ]
    hidden = sum(max(0, len(kind) - NAMED) for kind in (missing, extra, different))
    if hidden:
        parts.append(f"and {hidden} more")
    text = (
        f"the subscription is not that of group {group.name!r}: it {', '.join(parts)}; subscribe "
        'like the others, or join with subscription="replace" to change it for all'
    )
    return refused(
        "SUBSCRIPTION_MISMATCH",
        text,
        group=group.name,
        version=group.subscription_version,
        missing=",".join(missing),
        extra=",".join(extra),
        different=",".join(different),
    )


def subscribe(cluster: ClusterState, group: ConsumerGroup, subscription: dict[str, str]) -> None:
    """Replace a group's subscription."""
    groups = cluster.groups
    groups.subscribe(group, dict(subscription))
    names = group.topic_names
    followed = {cluster.topics[name].id for name in names if name in cluster.topics}
    for known in group.topics.values():
        if known.subscribed and known.id not in followed:
            groups.unfollow(group, known)
    for name in names:
        topic = cluster.topics.get(name)
        if topic is not None:
            groups.follow(group, topic.id, len(topic.queues), _start(group, name))
    groups.reshape(group)


def _start(group: ConsumerGroup, topic: str) -> int:
    """Return the offset at which a group begins in queues that existed before it."""
    return 0 if is_reserved(topic) or group.config.start == "first" else UNKNOWN_START


def topic_grew(cluster: ClusterState, topic: Topic) -> None:
    """Add the queues of a new or grown topic to the groups that subscribe to it, from offset 0."""
    for group in cluster.groups.subscribers.get(topic.name, ()):
        cluster.groups.follow(group, topic.id, len(topic.queues), 0)
        cluster.groups.reshape(group)


def remove_topic(cluster: ClusterState, topic: Topic) -> None:
    """Remove a topic from all tables, with the offsets that groups committed in it."""
    cluster.drop_topic(topic)
    for group in list(cluster.groups.keepers.get(topic.id, ())):
        subscribed = group.topics[topic.id].subscribed
        cluster.groups.forget_topic(group, topic.id)
        if subscribed:
            cluster.groups.reshape(group)
