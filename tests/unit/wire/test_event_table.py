"""The table of events is the contract: no part writes another event, or another field, than it has."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.wire.event_log import logger_name
from logboom.wire.event_table import EVENTS, FIELDS, RESERVED
from logboom.wire.settings import LOGGERS
from tests.unit.wire.event_sources import written_by

ROOT = Path(__file__).parents[3]
FUNCTIONS, METHODS = {"note", "log_event"}, {"tell"}
"""What takes the name of an event first, and its fields by name."""
BESIDE = {"times", "raised"}
"""What they take beside fields."""
ADDED = {"cause", "by"}
"""Fields that are added to what a command tells."""
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
UNNAMED = {"message"}
"""What stands for lines that nobody has named."""


def written() -> Iterator[tuple[str, set[str], bool, str]]:
    """Each event that the source names: name, fields, whether there are more, and where."""
    for portion in ("wire", "metadata", "nodes", "deploy"):
        for path in (ROOT / portion).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not isinstance(node, ast.Call) or not node.args:
                    continue
                of = node.func
                is_function = isinstance(of, ast.Name) and of.id in FUNCTIONS
                is_method = isinstance(of, ast.Attribute) and of.attr in METHODS
                if not is_function and not is_method:
                    continue
                fields = {each.arg for each in node.keywords if each.arg is not None} - BESIDE
                more = any(each.arg is None for each in node.keywords)
                first = node.args[0]
                parts = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
                for part in parts:
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value, fields, more, f"{path.name}:{node.lineno}"


def test_what_the_source_writes_is_in_the_table() -> None:
    used: dict[str, set[str]] = defaultdict(set)
    open_ended = set()
    for name, fields, more, where in written():
        assert name in EVENTS, f"{where}: {name} is not in the table of events"
        assert fields <= {*EVENTS[name].fields}, f"{where}: {name} has no such field"
        used[name] |= fields
        if more:
            open_ended.add(name)
    assert used.keys() | UNNAMED == EVENTS.keys(), "an event of the table is never written"
    for name, event in EVENTS.items():
        if name not in open_ended | UNNAMED:
            assert {*event.fields} - ADDED <= used[name], f"{name}: a field is never written"


def test_names_fields_and_meanings() -> None:
    told = {field for event in EVENTS.values() for field in event.fields}
    assert told == FIELDS.keys()
    assert not told & RESERVED
    for name, event in EVENTS.items():
        assert name == event.name
        assert NAME.fullmatch(name)
        assert len(event.fields) == len({*event.fields})
        assert {*event.same} <= {*event.fields}
        assert re.fullmatch(r"[A-Z][^\n]*[^.\n]", event.meaning), name
        assert event.every_s >= 1
    for meaning in FIELDS.values():
        assert re.fullmatch(r"[A-Z][^\n]*[^.\n]", meaning), meaning


def test_the_level_of_each_event_can_be_set_while_nodes_run() -> None:
    for event in EVENTS.values():
        for kind in ("broker", "name-server"):
            if written_by(event, kind) and event.name not in UNNAMED:
                assert logger_name(event, kind).removeprefix("logboom.") in LOGGERS, event.name


@pytest.mark.parametrize("source", ["raft leader", "name server", "broker", "node"])
def test_every_kind_of_node_writes_some(source: str) -> None:
    assert any(event.source == source for event in EVENTS.values())


def test_the_page_is_generated_from_the_table() -> None:
    command = [sys.executable, str(ROOT / "wire" / "generate_log_page.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "make generate"
    page = (ROOT / "docs" / "LOGS.md").read_text("utf-8")
    for name in (*EVENTS, *FIELDS):
        assert f"| `{name}` |" in page
