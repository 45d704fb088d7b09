"""The rules for names and numbers that users choose, each with the sentence that states it.

The rule for topic names is in `logboom.wire.names`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from logboom.wire.listeners import MAX_LISTENERS, SECURITIES, ListenerView

BROKER_ID: Final = re.compile(r"[a-z0-9-]{1,64}")
BROKER_RULE: Final = "1 to 64 of the characters a-z 0-9 -"
GROUP_NAME: Final = re.compile(r"[A-Za-z0-9._|-]{1,120}")
GROUP_RULE: Final = "1 to 120 of the characters A-Z a-z 0-9 . _ | -, and neither '.' nor '..'"
"""Short enough that %RETRY% and %DLQ% before it still make a topic's name."""
MEMBER_ID: Final = re.compile(r"[A-Za-z0-9._@:/|-]{1,128}")
MEMBER_RULE: Final = "1 to 128 of the characters A-Z a-z 0-9 . _ @ : / | -"
MAX_MEMBERS: Final = 10_000
"""Maximum members of a group."""
MAX_GROUPS: Final = 10_000
MAX_SUBSCRIBED: Final = 1024
"""Maximum topics of a subscription."""
MAX_FILTER: Final = 4096
"""Maximum length of the filter of one topic, in characters."""
MAX_RANGES: Final = 4096
"""Maximum size of the finished ranges of one queue, in bytes."""
MAX_REPLICAS: Final = 15
MAX_PRODUCER_IDS: Final = 1_000_000
"""Maximum producer ids that one command may reserve."""


def broker_id_fault(broker_id: str) -> str | None:
    """Return why this is not a valid broker id, in one line, or None."""
    if BROKER_ID.fullmatch(broker_id):
        return None
    return f"broker id {broker_id[:80]!r} is not allowed: use {BROKER_RULE}"


def group_name_fault(name: str) -> str | None:
    """Return why this is not a valid name of a consumer group, in one line, or None."""
    if GROUP_NAME.fullmatch(name) and name not in (".", ".."):
        return None
    return f"group name {name[:160]!r} is not allowed: use {GROUP_RULE}"


def member_id_fault(member: str, what: str = "member id") -> str | None:
    """Return why this is not a valid member id, in one line, or None.

    `what` names the id in that line.
    """
    if MEMBER_ID.fullmatch(member):
        return None
    return f"{what} {member[:160]!r} is not allowed: use {MEMBER_RULE}"


def listeners_fault(listeners: Sequence[ListenerView]) -> str | None:
    """Return why these are not the listeners of a node, in one line, or None; for commands that are
    in the log."""
    if len(listeners) > MAX_LISTENERS:
        return f"{len(listeners)} listeners: a node has at most {MAX_LISTENERS}"
    for each in listeners:
        if each.security not in SECURITIES:
            return f"listener {each.name[:80]!r}: {each.security[:80]!r} is no security"
        fault = applied_endpoint_fault(each.endpoint)
        if fault is not None:
            return fault
    return None


def applied_endpoint_fault(endpoint: str) -> str | None:
    """Return why a command with this endpoint is refused when it is applied, in one line, or None.

    All releases apply a command alike, and the first one accepted endpoints that nobody can dial.
    The rule of `wire.endpoints` is checked before a command enters the log.
    """
    host, _, port = endpoint.rpartition(":")
    if host and port.isdigit() and 0 < int(port) <= 65_535:
        return None
    return f"{endpoint[:160]!r} is not an endpoint: write host:port, e.g. 127.0.0.1:7711"
