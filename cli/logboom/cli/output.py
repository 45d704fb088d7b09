"""Output of commands: tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


def show(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    output: str,
    title: str | None = None,
) -> None:
    """Print rows: all their fields as JSON, or the given columns."""
    if output == "json":
        show_json(list(rows))
    elif sys.stdout.isatty():
        _rich_table(rows, columns, title)
    else:
        _plain_table(rows, columns)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 message, 2 messages."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def show_json(value: Any) -> None:
    """Print a value as JSON."""
    encoded = msgspec.json.encode(value, enc_hook=str)
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)


def _rich_table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str | None
) -> None:
    # Imported here: it takes a while, and pipes do not need it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold")
    for name in columns:
        numbers = all(isinstance(row.get(name), int | float) for row in rows) and bool(rows)
        table.add_column(_header(name), justify="right" if numbers else "left")
    for row in rows:
        table.add_row(
            *(Text(_text(row.get(name)), style=_style(row.get(name))) for name in columns)
        )
    Console().print(table)


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
    print(text, file=sys.stderr)


def bytes_text(size: float) -> str:
    """Return a size for people: 17.0 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(milliseconds: int) -> str:
    """Return a duration for people: 7d."""
    if milliseconds < 0:
        return "ever"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"
