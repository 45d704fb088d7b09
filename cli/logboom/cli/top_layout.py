"""The tables of `logboom top` in a given width: which columns stand, and how each value is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from logboom.cli.top_sample import (
    UNKNOWN,
    ClusterSample,
    broker_rows,
    group_rows,
    headline,
    number_text,
    topic_rows,
)
from logboom.client.written_values import bytes_text

NARROWEST: Final = 60
"""Columns of the narrowest terminal that shows all that matters."""


NAME_WIDTH: Final = 16
"""Characters that a name has at least."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: it is shown from a width of the terminal on."""

    key: str
    title: str
    text: Callable[[Any], str]
    from_width: int = 0
    left: bool = False


def _bytes(value: Any) -> str:
    return UNKNOWN if value is None else bytes_text(value)


def _bytes_per_s(value: Any) -> str:
    return UNKNOWN if value is None else f"{bytes_text(value)}/s"


def _share(value: Any) -> str:
    return UNKNOWN if value is None else f"{value:.0%}"


def _words(value: Any) -> str:
    return UNKNOWN if value in (None, "") else str(value)


def _signed(value: Any) -> str:
    return UNKNOWN if value is None else f"{'+' if value > 0 else ''}{number_text(value)}"


def _yes(value: Any) -> str:
    return "yes" if value else ""


BROKERS: Final = (
    Column("broker", "broker", _words, left=True),
    Column("state", "state", _words, left=True),
    Column("leads", "leads", number_text),
    Column("in_per_s", "in/s", number_text),
    Column("out_per_s", "out/s", number_text),
    Column("disk", "disk", _share),
    Column("replicas", "replicas", number_text, 80),
    Column("behind", "behind", number_text, 80),
    Column("in_bytes_per_s", "in", _bytes_per_s, 100),
    Column("stored_bytes", "stored", _bytes, 100),
    Column("sync_p99_ms", "sync p99 ms", number_text, 120),
    Column("connections", "connections", number_text, 140),
    Column("zone", "zone", _words, 140, left=True),
)
TOPICS: Final = (
    Column("topic", "topic", _words, left=True),
    Column("in_per_s", "in/s", number_text),
    Column("queues", "queues", number_text),
    Column("in_sync", "in sync", number_text),
    Column("led", "led", number_text, 80),
    Column("messages", "messages", number_text, 80),
    Column("replicas", "replicas", number_text, 100),
    Column("moving", "moving", number_text, 100),
)
GROUPS: Final = (
    Column("group", "group", _words, left=True),
    Column("members", "members", number_text),
    Column("lag", "lag", number_text),
    Column("lag_per_s", "lag/s", _signed),
    Column("paused", "paused", _yes, 80),
    Column("stuck", "stuck", _words, 100, left=True),
)


def layout(
    now: ClusterSample, before: ClusterSample | None, width: int, height: int
) -> RenderableType:
    """Return the screen of a terminal of this size, in characters.

    Brokers are shown whole as far as there is room; topics and groups share the rest, and a line
    tells how many are left out.
    """
    brokers, topics, groups = (
        broker_rows(now, before),
        topic_rows(now, before),
        group_rows(now, before),
    )
    shown: list[RenderableType] = [
        Text(headline(now, before), style="bold", overflow="ellipsis", no_wrap=True)
    ]
    # A table has a line of titles and an empty one before it.
    room = max(3, height - 1 - 3 * 2)
    for_brokers = min(len(brokers), max(1, room - min(len(topics), 3) - min(len(groups), 3)))
    rest = max(2, room - for_brokers)
    for_groups = min(len(groups), max(1, rest // 2, rest - len(topics)))
    for_topics = max(1, rest - for_groups)
    shown += _table("broker", BROKERS, brokers, for_brokers, width)
    shown += _table("topic", TOPICS, topics, for_topics, width)
    shown += _table("group", GROUPS, groups, for_groups, width)
    return Group(*shown)


def _table(
    noun: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], room: int, width: int
) -> list[RenderableType]:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    standing = [column for column in columns if width >= column.from_width]
    for column in standing:
        first = column is standing[0]
        table.add_column(
            column.title,
            justify="left" if column.left else "right",
            no_wrap=True,
            overflow="ellipsis",
            min_width=NAME_WIDTH if first else None,
            max_width=max(NAME_WIDTH, width // 3) if first else None,
        )
    more = len(rows) - room
    for row in rows[: room - 1 if more > 0 else room]:
        table.add_row(*(_cell(column, row) for column in standing))
    if more > 0:
        table.add_row(Text(f"and {more + 1} more", style="dim"))
    if not rows:
        table.add_row(Text(f"no {noun}s", style="dim"))
    return [Text(), table]


def _cell(column: Column, row: Mapping[str, Any]) -> Text:
    value = row[column.key]
    style = ""
    if column.key == "state":
        style = {"up": "green", "down": "red"}.get(str(value), "yellow")
    elif (column.key in ("in_sync", "led") and value != row["queues"]) or column.key == "stuck":
        style = "red"
    return Text(column.text(value), style=style)
