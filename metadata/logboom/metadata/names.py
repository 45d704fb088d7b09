"""The rules for names and numbers that users choose, each with the sentence that states it."""

from __future__ import annotations

import re
from typing import Final

TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._%|-]{1,127}")
TOPIC_RULE: Final = "1 to 127 of the characters A-Z a-z 0-9 . _ % | -, and neither '.' nor '..'"
BROKER_ID: Final = re.compile(r"[a-z0-9-]{1,64}")
BROKER_RULE: Final = "1 to 64 of the characters a-z 0-9 -"
RESERVED_PREFIXES: Final = ("%RETRY%", "%DLQ%")
"""Topics of the system: retries and dead letters of a group."""
MAX_QUEUES: Final = 1024
"""Queues of one topic."""
MAX_REPLICAS: Final = 15
MAX_PRODUCER_IDS: Final = 1_000_000
"""Producer ids that one command may reserve."""


def topic_name_fault(name: str) -> str | None:
    """Why this cannot be a topic's name, in one line, or None."""
    if TOPIC_NAME.fullmatch(name) and name not in (".", ".."):
        return None
    return f"topic name {name[:160]!r} is not allowed: use {TOPIC_RULE}"


def broker_id_fault(broker_id: str) -> str | None:
    """Why this cannot be a broker's id, in one line, or None."""
    if BROKER_ID.fullmatch(broker_id):
        return None
    return f"broker id {broker_id[:80]!r} is not allowed: use {BROKER_RULE}"


def is_reserved(name: str) -> bool:
    """Whether only the system itself may create, alter or delete this topic."""
    return name.startswith(RESERVED_PREFIXES)


def endpoint_fault(endpoint: str) -> str | None:
    """Why this is no endpoint, in one line, or None."""
    host, _, port = endpoint.rpartition(":")
    if host and port.isdigit() and 0 < int(port) <= 65_535:
        return None
    return f"{endpoint[:160]!r} is no endpoint: write host:port, e.g. 127.0.0.1:7711"
