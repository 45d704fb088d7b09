"""Output of commands: tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from logboom.wire.log_format import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

UNBOUNDED: Final = 100_000
"""Width, in characters, in which any table has room."""


def show(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    output: str,
    title: str | None = None,
    least: Sequence[str] = (),
) -> None:
    """Print rows: all their fields as JSON, or the given columns.

    Args:
        least: Columns that a terminal goes without if it is too narrow for all of them, the least
            important first. Pipes and JSON have them always.
    """
    if output == "json":
        show_json(list(rows))
    elif sys.stdout.isatty():
        _rich_table(rows, columns, title, least)
    else:
        _plain_table(rows, columns)


def show_json(value: Any) -> None:
    """Print a value as JSON."""
    encoded = msgspec.json.encode(value, enc_hook=str)
    sys.stdout.write(_safe(msgspec.json.format(encoded, indent=2).decode()) + "\n")


def named(value: Any) -> Any:
    """Return structs as objects with field names, also those that travel as arrays."""
    if isinstance(value, msgspec.Struct):
        return {name: named(each) for name, each in msgspec.structs.asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(key): named(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [named(each) for each in value]
    return value


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    # Names and texts that others chose must not steer the terminal.
    return printable(str(value))


def _safe(text: str) -> str:
    """Escape what would steer a terminal in lines of our own, which may hold texts of others."""
    return "\n".join(map(printable, text.split("\n")))


def _rich_table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    title: str | None,
    least: Sequence[str],
) -> None:
    # Imported here: it takes a while, and pipes do not need it.
    from rich.console import Console

    console = Console()
    console.print(terminal_table(console, rows, columns, title, least))


def terminal_table(
    console: Console,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    title: str | None = None,
    least: Sequence[str] = (),
) -> Table:
    """Return a table that fits a terminal: columns of `least` are left out, and named below it, until
    no word is broken."""
    left_out: list[str] = []
    # Measured in a console of its own width, no table is ever too wide.
    unbounded = console.options.update(max_width=UNBOUNDED)
    table = _table_of(rows, columns, title)
    candidates = [name for name in least if name in columns]
    while not (fits := console.measure(table, options=unbounded).minimum <= console.width):
        if not candidates:
            break
        left_out.append(candidates.pop(0))
        table = _table_of(rows, [each for each in columns if each not in left_out], title)
    if fits:
        # Columns of single words keep their width, so that lines of several words give way.
        for column in table.columns:
            column.no_wrap = not any(" " in str(cell) for cell in (column.header, *column.cells))
    if left_out:
        shown = ", ".join(_header(name) for name in columns if name in left_out)
        table.caption = f"too narrow for: {shown}"
        table.caption_justify = "left"
    return table


def _table_of(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str | None
) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold")
    for name in columns:
        numbers = all(isinstance(row.get(name), int | float) for row in rows) and bool(rows)
        # What fits nowhere goes on in the next line: half an id is of no use.
        table.add_column(_header(name), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(
            *(Text(_text(row.get(name)), style=_style(row.get(name))) for name in columns)
        )
    return table


def _style(value: Any) -> str:
    match value:
        case "ok" | "up" | "leader":
            return "green"
        case "failed" | "down" | "no leader":
            return "red"
        case "warning" | "paused" | "starting":
            return "yellow"
        case _:
            return ""


def _header(name: str) -> str:
    return name.replace("_", " ")


def _plain_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    lines = [[_header(name).upper() for name in columns]]
    lines += [[_text(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def note(text: str) -> None:
    """Print a message that is not a result on standard error."""
    print(_safe(text), file=sys.stderr)


def note_errors(errors: Mapping[str, str]) -> None:
    """Print which nodes gave which error in place of an answer: node → error."""
    nodes: dict[str, list[str]] = {}
    for node, error in errors.items():
        nodes.setdefault(error, []).append(node)
    for error, same in nodes.items():
        note(f"{', '.join(same)}: {error}")
