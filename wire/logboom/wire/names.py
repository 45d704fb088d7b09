"""The rules for names of topics, including those of groups, and the error texts for unknown ones."""

from __future__ import annotations

import re
import shlex
from typing import Final

TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._%|-]{1,127}")
TOPIC_RULE: Final = "1 to 127 of the characters A-Z a-z 0-9 . _ % | -, and neither '.' nor '..'"
RETRY_PREFIX: Final = "%RETRY%"
"""Prefix of a group's name in its retry topic, which is part of every subscription of the group."""
DLQ_PREFIX: Final = "%DLQ%"
"""Prefix of a group's name in its dead-letter topic."""
RESERVED_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX)
MAX_QUEUES: Final = 1024
"""Maximum queues of a topic."""


def topic_name_fault(name: str) -> str | None:
    """Return why a name is not valid for a topic, in one line, or None."""
    if TOPIC_NAME.fullmatch(name) and name not in (".", ".."):
        return None
    return f"topic name {name[:160]!r} is not allowed: use {TOPIC_RULE}"


def is_reserved(name: str) -> bool:
    """Return True if a topic belongs to a group, and is created and deleted with it."""
    return name.startswith(RESERVED_PREFIXES)


def group_of(topic: str) -> str | None:
    """Return the group that a reserved topic belongs to, or None."""
    for prefix in RESERVED_PREFIXES:
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return None


def is_a_groups(name: str) -> bool:
    """Return True if a topic belongs to a consumer group and is created by the system alone.

    Topics of a subscription have another % in their names and are created by its consumers.
    """
    group = group_of(name)
    return group is not None and "%" not in group


def subscription_of(name: str) -> tuple[str, str] | None:
    """Return (topic, subscription) whose retries or dead letters a topic takes, or None."""
    topic, _, subscription = (group_of(name) or "").partition("%")
    return (topic, subscription) if topic and subscription and "%" not in subscription else None


def subscription_name(topic: str, subscription: str) -> str:
    """Return the part after the prefix in the names of a subscription's own topics."""
    return f"{topic}%{subscription}"


def subscription_name_fault(topic: str, subscription: str) -> str | None:
    """Return why a subscription cannot have topics of its own, in one line, or None."""
    name = RETRY_PREFIX + subscription_name(topic, subscription)
    if "%" not in topic + subscription and topic_name_fault(name) is None:
        return None
    return (
        f"subscription {subscription[:120]!r} of {topic[:127]!r} cannot have retries and dead "
        "letters: their names without %, and together at most 119 of the characters of a topic"
    )


def unknown_topic_text(name: str) -> str:
    """Return the error text for a topic that does not exist, with the remedy if there is one."""
    fault = topic_name_fault(name)
    if fault is not None:
        return fault
    group = group_of(name)
    if group is not None and "%" in group:
        topic, _, subscription = group.partition("%")
        return (
            f"topic {name!r} does not exist: it comes with the first consumer of subscription "
            f"{subscription!r} of {topic!r} that sets max_attempts"
        )
    if group is not None:
        return f"topic {name!r} does not exist: it comes with the first member of group {group!r}"
    word = shlex.quote(name)
    return f"topic {name!r} does not exist: create it with `logboom topic create {word}`"


def unknown_subscription_text(name: str) -> str:
    """Return the error text for a subscription, "TOPIC/NAME", that a queue does not have."""
    topic, _, subscription = name.partition("/")
    return f"topic {topic!r} has no subscription {subscription!r} in this queue: subscribe to create it"


def unknown_group_text(name: str) -> str:
    """Return the error text for a group that does not exist."""
    return f"group {name!r} does not exist: it is made when its first member joins"
