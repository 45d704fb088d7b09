"""The rules for names and numbers that users choose, each with the sentence that states it.

That for topics is in `logboom.wire.names`.
"""

from __future__ import annotations

import re
from typing import Final

BROKER_ID: Final = re.compile(r"[a-z0-9-]{1,64}")
BROKER_RULE: Final = "1 to 64 of the characters a-z 0-9 -"
GROUP_NAME: Final = re.compile(r"[A-Za-z0-9._|-]{1,120}")
GROUP_RULE: Final = "1 to 120 of the characters A-Z a-z 0-9 . _ | -, and neither '.' nor '..'"
"""So that %RETRY% and %DLQ% before it make a topic's name."""
MEMBER_ID: Final = re.compile(r"[A-Za-z0-9._@:/|-]{1,128}")
MEMBER_RULE: Final = "1 to 128 of the characters A-Z a-z 0-9 . _ @ : / | -"
MAX_MEMBERS: Final = 10_000
"""Members of one group."""
MAX_GROUPS: Final = 10_000
MAX_SUBSCRIBED: Final = 1024
"""Topics of one subscription."""
MAX_FILTER: Final = 4096
"""Characters of the filter of one topic."""
MAX_RANGES: Final = 4096
"""Bytes of the finished ranges of one queue."""
MAX_QUEUES: Final = 1024
"""Queues of one topic."""
MAX_REPLICAS: Final = 15
MAX_PRODUCER_IDS: Final = 1_000_000
"""Producer ids that one command may reserve."""


def broker_id_fault(broker_id: str) -> str | None:
    """Why this cannot be a broker's id, in one line, or None."""
    if BROKER_ID.fullmatch(broker_id):
        return None
    return f"broker id {broker_id[:80]!r} is not allowed: use {BROKER_RULE}"


def group_name_fault(name: str) -> str | None:
    """Why this cannot be a consumer group's name, in one line, or None."""
    if GROUP_NAME.fullmatch(name) and name not in (".", ".."):
        return None
    return f"group name {name[:160]!r} is not allowed: use {GROUP_RULE}"


def member_id_fault(member: str, what: str = "member id") -> str | None:
    """Why this cannot be a member's id (or `what` else names it), in one line, or None."""
    if MEMBER_ID.fullmatch(member):
        return None
    return f"{what} {member[:160]!r} is not allowed: use {MEMBER_RULE}"


def endpoint_fault(endpoint: str) -> str | None:
    """Why this is no endpoint, in one line, or None."""
    host, _, port = endpoint.rpartition(":")
    if host and port.isdigit() and 0 < int(port) <= 65_535:
        return None
    return f"{endpoint[:160]!r} is no endpoint: write host:port, e.g. 127.0.0.1:7711"
