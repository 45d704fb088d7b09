"""The bases of commands, messages and requests; `logboom.wire.messages` says how they travel."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct


class Command(Struct, frozen=True, tag_field="type", tag=str.lower, array_like=True):
    """Base of all commands; the tag is the class name in lower case."""


MAX_NAME: Final = 512
"""Maximum length of a name in a request, in characters.

Topics, groups and so on have lower limits with a better error text. This limit bounds the tables
that keep parts of requests.
"""
Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]


class WireMessage(Struct, tag_field="type", tag=str.lower, array_like=True):
    """Base of all messages."""

    id: int


class Request(WireMessage, array_like=True):
    """Base of all requests that wait for one answer."""

    timeout_ms: int
