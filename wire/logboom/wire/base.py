"""The bases of commands, messages and requests; `logboom.wire.messages` says how they travel."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import DecodeError, Meta, Struct

UNDECODABLE: Final = (DecodeError, UnicodeDecodeError, RecursionError, OverflowError)
"""What decoders of msgspec raise for bytes that are not what is expected."""


class Command(Struct, frozen=True, tag_field="type", tag=str.lower, array_like=True):
    """Base of all commands; the tag is the class name in lower case."""


MAX_NAME: Final = 512
"""Maximum length of a name in a request, in characters.

Topics, groups and so on have lower limits with a better error text. This limit bounds the tables
that keep parts of requests.
"""
Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]


SMALL_FRAME: Final = 64 * 1024
"""Maximum length of most message frames of a client, in bytes."""
LARGE_FRAME: Final = 2 * 1024 * 1024
"""Maximum length of any message frame of a client, in bytes."""
MAX_NODES_LIST: Final = 1_000_000
"""Maximum elements of lists that only nodes send: a position for each replica of a broker."""


class WireMessage(Struct, tag_field="type", tag=str.lower, array_like=True):
    """Base of all messages."""

    FRAME_BYTES: ClassVar[int] = SMALL_FRAME
    """Maximum length of its frame from a client, in bytes. It bounds everything within. A list or a
    map of a request has a limit of elements besides, which the decoder checks before it builds one."""

    id: int


class Request(WireMessage, array_like=True):
    """Base of all requests that wait for one answer."""

    timeout_ms: int
