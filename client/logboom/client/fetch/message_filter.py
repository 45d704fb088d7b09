"""Which messages of a batch its reader wants: as the broker said, or else judged here.

Brokers pass over whole batches, and judge messages by property filters as far as they can afford;
of the rest, and by tags, the reader picks.
"""

from __future__ import annotations

from collections.abc import Sequence

from logboom.wire.columns import Columns
from logboom.wire.errors import InvalidRequest
from logboom.wire.filters.filter import Filter, Matcher, selectors


def wanted_of(tags: str | Sequence[str] | None, where: str | Filter | None) -> Filter:
    """The filter of an API call: tags as "a || b", "*" or a list; `where` is a property
    expression, or a whole filter by itself.

    Raises:
        InvalidFilter: one of them cannot be read; points at the character.
        InvalidRequest: tags that are no tags, or both tags and a whole filter.
    """
    if not isinstance(where, Filter):
        return Filter.of(tags, where)
    if tags is not None:
        raise InvalidRequest("a Filter has its tags in itself: give no other tags")
    return where


def tags_of(wanted: Filter) -> list[str] | None:
    """The tags of a PULL: batches that cannot hold one of them stay at the broker."""
    return None if wanted.tags is None else list(wanted.tags)


def text_of(wanted: Filter) -> str:
    """The filter of a PULL; "" where its tags say all."""
    return "" if wanted.where is None else wanted.text


def matcher_of(wanted: Filter) -> Matcher | None:
    """What judges messages; None where all are wanted."""
    return None if wanted.takes_all else wanted.matcher()


def match_messages(
    matcher: Matcher | None,
    columns: Columns,
    matches: bytes | None,
    survivors: bytes | None = None,
) -> bytes | None:
    """A byte per message of `columns`, 1 where it is wanted; None: all are.

    `matches` and `survivors` are what the broker said of the whole batch (as in `Pulled`); None:
    nothing.

    Raises:
        DamagedBatch: the body does not hold together.
        InvalidRequest: a bitmap of the broker's does not fit the batch.
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
    """What survives of a batch, as columns; all of it where the broker said nothing."""
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
