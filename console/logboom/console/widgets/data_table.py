"""Tables: sorted, filtered and cut into pages at the server, with their state in the URL; pure.

Rows are mappings of plain values, so that the same rows are shown, and written as CSV and JSON. Only
the rows of the page shown are formatted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec

from logboom.console.widgets.formats import (
    count_text,
    kept_text,
    plain_text,
    short_text,
    size_text,
    span_text,
    time_text,
)
from logboom.console.widgets.page_query import PageQuery

PAGE_ROWS: Final = 50
PAGE_CHOICES: Final = (50, 100, 200, 500)
Row: TypeAlias = Mapping[str, Any]
ColumnKind: TypeAlias = Literal[
    "text", "code", "count", "rate", "bytes", "span", "kept", "time", "badge"
]
Tone: TypeAlias = Literal["", "ok", "warning", "failed", "info"]
FORMATS: Final[Mapping[ColumnKind, Callable[[Any], str]]] = {
    "text": plain_text,
    "code": plain_text,
    "count": count_text,
    "rate": lambda value: short_text(value) if value is None else f"{short_text(value)}/s",
    "bytes": size_text,
    "span": span_text,
    "kept": kept_text,
    "time": time_text,
    "badge": plain_text,
}
NUMBERS: Final = frozenset({"count", "rate", "bytes", "span", "kept"})
"""Kinds that stand at the right, and that are sorted from the greatest at first."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: the field of a row that it shows, and how."""

    name: str
    title: str
    kind: ColumnKind = "text"
    href: Callable[[Row], str] | None = None
    """Where a cell leads; "" is nowhere."""
    tone: Callable[[Row], Tone] | None = None
    """The colour of a cell, or of its badge."""
    hint: str = ""
    """What the column means, in a few words."""
    wide_only: bool = False
    """True if a narrow screen goes without it."""

    @property
    def is_number(self) -> bool:
        """True if its cells stand at the right."""
        return self.kind in NUMBERS


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell as it is shown."""

    text: str
    href: str
    tone: Tone
    column: TableColumn


@dataclass(frozen=True, slots=True)
class TableHead:
    """The head of a column, with the link that sorts by it."""

    column: TableColumn
    url: str
    sorted: Literal["", "ascending", "descending"]


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row as it is shown."""

    cells: tuple[TableCell, ...]
    source: Row
    """What it was made of."""


@dataclass(frozen=True, slots=True)
class TableModel:
    """A table as one page shows it."""

    name: str
    """The prefix of its parameters in the URL; "" for the main table of a page."""
    title: str
    heads: tuple[TableHead, ...]
    rows: tuple[TableRow, ...]
    total: int
    """Rows before filtering."""
    matched: int
    """Rows after filtering."""
    find: str
    page: int
    """From 1."""
    pages: int
    first_url: str
    previous_url: str
    """"" on the first page."""
    next_url: str
    last_url: str
    csv_url: str
    json_url: str
    hidden: tuple[tuple[str, str], ...]
    """Parameters that a search must keep."""
    path: str
    empty: str
    """What stands there if there are no rows at all."""
    every_row: tuple[Row, ...] = field(repr=False)
    """All rows that match, sorted, for CSV and JSON."""

    def parameter(self, name: str) -> str:
        """Return the name of a parameter of this table in the URL."""
        return f"{self.name}.{name}" if self.name else name

    @property
    def searchable(self) -> bool:
        """True if the search is worth its room."""
        return self.total > 8 or bool(self.find)


def build_table(
    columns: Sequence[TableColumn],
    rows: Sequence[Row],
    query: PageQuery,
    *,
    name: str = "",
    title: str = "",
    sort: str = "",
    empty: str = "There are none.",
) -> TableModel:
    """Return the part of some rows that a URL asks for.

    Args:
        name: the prefix of its parameters, if the page has several tables.
        sort: the column that counts until a head is clicked, "-name" for the greatest first; "":
            the rows come in their order.
    """

    def parameter(of: str) -> str:
        return f"{name}.{of}" if name else of

    def url(**changes: str | int | None) -> str:
        return query.url(**{parameter(of).replace(".", "__"): to for of, to in changes.items()})

    find = query.text(parameter("find"))
    found = [row for row in rows if _matches(row, columns, find)] if find else list(rows)
    asked = query.text(parameter("sort"), sort)
    descending, by = asked.startswith("-"), asked.removeprefix("-")
    if any(column.name == by for column in columns):
        found = _sorted(found, by, descending=descending)
    else:
        by = ""
    per_page = query.number(parameter("rows"), PAGE_ROWS)
    per_page = per_page if per_page in PAGE_CHOICES else PAGE_ROWS
    pages = max(1, -(-len(found) // per_page))
    page = min(max(1, query.number(parameter("page"), 1)), pages)
    shown = found[(page - 1) * per_page : page * per_page]
    heads = []
    for column in columns:
        state: Literal["", "ascending", "descending"] = ""
        if column.name == by:
            state = "descending" if descending else "ascending"
        greatest_first = (
            state == "ascending" if state else column.is_number or column.kind == "time"
        )
        to = f"-{column.name}" if greatest_first else column.name
        heads.append(TableHead(column, url(sort=to, page=None), state))
    kept = query.values.changed(
        {parameter("find"): None, parameter("page"): None, "format": None, "table": None}
    )
    return TableModel(
        name=name,
        title=title,
        heads=tuple(heads),
        rows=tuple(TableRow(_cells(columns, row), row) for row in shown),
        total=len(rows),
        matched=len(found),
        find=find,
        page=page,
        pages=pages,
        first_url=url(page=None),
        previous_url=url(page=page - 1 if page > 2 else None) if page > 1 else "",
        next_url=url(page=page + 1) if page < pages else "",
        last_url=url(page=pages),
        csv_url=query.url(format="csv", table=name or None),
        json_url=query.url(format="json", table=name or None),
        hidden=tuple(kept.pairs()),
        path=query.path,
        empty=empty,
        every_row=tuple(found),
    )


def _cells(columns: Sequence[TableColumn], row: Row) -> tuple[TableCell, ...]:
    return tuple(
        TableCell(
            FORMATS[column.kind](row.get(column.name)),
            column.href(row) if column.href is not None else "",
            column.tone(row) if column.tone is not None else "",
            column,
        )
        for column in columns
    )


def _matches(row: Row, columns: Sequence[TableColumn], find: str) -> bool:
    """True if every word is in some column."""
    text = "\n".join(
        plain_text(row.get(column.name)) for column in columns if not column.is_number
    ).casefold()
    return all(word in text for word in find.casefold().split())


def _sorted(rows: list[Row], by: str, *, descending: bool) -> list[Row]:
    """Return rows by a column; what is not known comes last, either way."""
    known = [row for row in rows if row.get(by) is not None]
    unknown = [row for row in rows if row.get(by) is None]
    try:
        known.sort(key=lambda row: _sort_key(row[by]), reverse=descending)
    except TypeError:
        known.sort(key=lambda row: str(row[by]), reverse=descending)
    return known + unknown


def _sort_key(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value


def csv_text(table: TableModel) -> str:
    """Return all rows that match as CSV. A text that a spreadsheet would run as a formula is quoted
    with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    names = [head.column.name for head in table.heads]
    writer.writerow(names)
    for row in table.every_row:
        writer.writerow([_harmless(row.get(name)) for name in names])
    return out.getvalue()


def _harmless(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


def json_bytes(table: TableModel) -> bytes:
    """Return all rows that match as a JSON array of objects."""
    names = [head.column.name for head in table.heads]
    rows = [{name: row.get(name) for name in names} for row in table.every_row]
    return msgspec.json.format(msgspec.json.encode(rows, enc_hook=str), indent=2)
