"""The base of all commands of the name server."""

from __future__ import annotations

from msgspec import Struct


class Command(Struct, frozen=True, tag_field="type", tag=str.lower, array_like=True):
    """Base of all commands; the tag is the class name in lower case."""
