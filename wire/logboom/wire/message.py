"""Bases of all messages; `logboom.wire.messages` says how they travel."""

from __future__ import annotations

from msgspec import Struct


class Message(Struct, tag_field="type", tag=str.lower, array_like=True):
    """Base of all messages."""

    id: int


class Request(Message, array_like=True):
    """Base of all requests that wait for one answer."""

    timeout_ms: int
