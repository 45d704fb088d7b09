"""The choice of a reader's messages from a batch: by the broker's word, or else by its own check.

Brokers skip whole batches, and evaluate property filters as far as they can afford it. The reader
evaluates the rest, and tags.
"""

from __future__ import annotations

from collections.abc import Sequence

from logboom.wire.columns import Columns
from logboom.wire.errors import InvalidRequest
from logboom.wire.filters.filter import Filter, Matcher, selectors


def wanted_of(tags: str | Sequence[str] | None, where: str | Filter | None) -> Filter:
    """Return the filter of an API call.

    Args:
        tags: "a || b", "*" or a list.
        where: a property expression, or a complete filter.

    Raises:
        InvalidFilter: one of them cannot be parsed; points at the character.
        InvalidRequest: the tags are invalid, or given in addition to a complete filter.
    """
    if not isinstance(where, Filter):
        return Filter.of(tags, where)
    if tags is not None:
        raise InvalidRequest("a Filter contains its tags: give no other tags")
    return where


def tags_of(wanted: Filter) -> list[str] | None:
    """Return the tags of a PULL, by which the broker skips batches."""
    return None if wanted.tags is None else list(wanted.tags)


def text_of(wanted: Filter) -> str:
    """Return the property filter of a PULL; "" if its tags say everything."""
    return "" if wanted.where is None else wanted.text


def matcher_of(wanted: Filter) -> Matcher | None:
    """Return the matcher of a filter; None if all messages are wanted."""
    return None if wanted.takes_all else wanted.matcher()


def match_messages(
    matcher: Matcher | None,
    columns: Columns,
    matches: bytes | None,
    survivors: bytes | None = None,
) -> bytes | None:
    """Match the messages of `columns`, one byte each, 1 if it is wanted; None: all are.

    Args:
        matcher: from `matcher_of`.
        columns: a batch, or its end.
        matches: the broker's matches of the whole batch, as in `Pulled`; None: it did not
            filter.
        survivors: the same for compaction.

    Raises:
        DamagedBatch: the body is damaged.
        InvalidRequest: a bitmap of the broker does not fit the batch.
    """
    wanted = _wanted(matcher, columns, matches)
    if not survivors:
        return wanted
    alive = selectors(survivors, columns.head.count)[columns.first : columns.first + len(columns)]
    if wanted is None:
        return alive
    both = int.from_bytes(wanted, "little") & int.from_bytes(alive, "little")
    return both.to_bytes(len(alive), "little")


def surviving_slices(columns: Columns, survivors: bytes | None) -> list[Columns]:
    """Return the surviving messages of a batch as columns; all of it if the broker said nothing."""
    alive = match_messages(None, columns, None, survivors)
    if alive is None:
        return [columns]
    found = []
    start = alive.find(1)
    while start >= 0:
        stop = alive.find(0, start)
        stop = len(alive) if stop < 0 else stop
        found.append(columns.slice(start, stop))
        start = alive.find(1, stop)
    return found


def _wanted(matcher: Matcher | None, columns: Columns, matches: bytes | None) -> bytes | None:
    if matcher is None:
        return None
    if matches is None:
        if not matcher.may_match(columns.head):
            return bytes(len(columns))
        found = matcher.match(columns)
        return None if found.passed == len(columns) else found.selectors()
    if not matches:
        return None
    return selectors(matches, columns.head.count)[columns.first : columns.first + len(columns)]
