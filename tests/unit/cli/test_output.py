"""Tables in terminals of several widths: ids stay whole, and what is left out is named."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from logboom.cli import balance_commands, broker_commands
from logboom.cli.broker_commands import broker_row
from logboom.cli.dlq_commands import table_row
from logboom.cli.output import show, terminal_table
from logboom.client import Message
from logboom.client.admin_flows.dead_letter_flows import DeadLetter
from logboom.wire.operation_messages import BrokerLoad

BROKERS = ["broker-1", "broker-2", "broker-10"]
MIB = 1 << 20


def rows() -> list[dict[str, Any]]:
    """Return brokers with long values in all columns."""
    return [
        broker_row(
            BrokerLoad(
                name, "maintenance", True, False, False, "zone-a", "host-a", 1200, 400, 1,
                900 * MIB, 999_000 * MIB, 600 * MIB, 2048, 0, 2, 2, 0, 0,
            )
        )
        for name in BROKERS
    ]  # fmt: skip


def printed(width: int, columns: list[str], least: tuple[str, ...]) -> str:
    """Return a table as a terminal of this width shows it."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(terminal_table(console, rows(), columns, None, least))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("commands", [broker_commands, balance_commands])
def test_ids_and_modes_are_whole_in_any_width(width: int, commands: Any) -> None:
    text = printed(width, commands.COLUMNS, commands.LEAST)
    assert all(name in text for name in BROKERS)
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    heads = [name for name in commands.COLUMNS if name in text]
    # Each column stands or is named below the table.
    assert heads == commands.COLUMNS
    assert ("too narrow for" in text) == (width == 60 or (width == 80 and "zone" in heads))


def test_the_least_important_columns_go_first() -> None:
    assert "too narrow for: zone\n" in _unpadded(
        printed(80, broker_commands.COLUMNS, broker_commands.LEAST)
    )
    narrow = printed(60, broker_commands.COLUMNS, broker_commands.LEAST)
    (titles,) = [line for line in narrow.splitlines() if "broker " in line and "state" in line]
    assert "mode" in titles
    assert "replicas" in titles
    assert "zone" not in titles


def _unpadded(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_what_cannot_be_left_out_goes_on_in_the_next_line() -> None:
    console = Console(width=12, file=io.StringIO(), color_system=None)
    console.print(terminal_table(console, [{"name": "abcdefghijklmnop"}], ["name"]))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "…" not in text
    assert all(letter in text for letter in "abcdefghijklmnop")


def test_a_pipe_has_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show(rows(), broker_commands.COLUMNS, "table", least=broker_commands.LEAST)
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == [name.upper() for name in broker_commands.COLUMNS]
    assert len(lines) == len(BROKERS)
    assert all("zone-a" in line for line in lines)


STEERING = "\x1b[2J\x1b]0;mine\x07 \u202ebad \r"
"""What clears a terminal, renames it, and turns text around."""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_cell_steers_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    value = STEERING.encode()
    message = Message("t", 0, 1, value, value, None, None, 1)
    letter = table_row(DeadLetter(message, STEERING, 1, STEERING))
    show([letter | {"client": STEERING}], [*letter, "client"], "table")
    shown = capsys.readouterr().out
    assert "1" in shown
    assert not [each for each in ("\x1b[2J", "\x1b]", "\x07", "\u202e", "\r") if each in shown]


def test_a_letter_of_many_bytes_is_one_line() -> None:
    nested = b"[" * 900 + b",".join([b"0"] * 20_000) + b"]" * 900
    letter = table_row(
        DeadLetter(Message("t", 0, 1, nested, nested, None, None, 1), "", 1, "x" * 9_000)
    )
    assert all(len(str(each)) <= 60 for each in letter.values())
