"""docs/PROTOCOL.md prints every message, command and configuration as `wire` has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Struct

from logboom.wire.commands import AnyCommand
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import AnyMessage
from logboom.wire.subscription_messages import SubscriptionConfig
from logboom.wire.view import TopicConfig

PAGE = (Path(__file__).parents[3] / "docs" / "PROTOCOL.md").read_text("utf-8")
CODE = re.compile(r"^(?:    [^\n]*\n)+|`([^`\n]+)`", re.MULTILINE)
TAGGED: dict[str, type[Struct]] = {
    str(each.__struct_config__.tag): each for each in (*get_args(AnyMessage), *get_args(AnyCommand))
}


def arrays(text: str) -> Iterator[list[str]]:
    """Every `["tag", …]` of a text, taken apart at its own commas."""
    for begin in re.finditer(r'\["\w+"', text):
        depth, parts, part = 0, [], ""
        for letter in text[begin.start() :]:
            depth += (letter in "[{") - (letter in "]}")
            if depth == 0:
                break
            if letter == "," and depth == 1:
                parts.append(part)
                part = ""
            else:
                part += letter
        yield [each.strip().lstrip("[").strip() for each in [*parts, part]]


def printed() -> dict[str, list[str]]:
    """Tag → the fields of its longest array on the page, without the tag."""
    found: dict[str, list[str]] = {}
    for code in CODE.finditer(PAGE):
        for tag, *fields in arrays(code[0]):
            name = tag.strip('"')
            if len(fields) > len(found.get(name, [])):
                found[name] = fields
    return found


@pytest.mark.parametrize("tag", sorted(TAGGED))
def test_the_page_prints_all_fields(tag: str) -> None:
    fields = printed()
    if tag == "raftframe":  # its payload is a frame of its own
        assert len(fields[tag]) == 6
        return
    assert tag in fields or not TAGGED[tag].__struct_fields__
    assert len(fields.get(tag, [])) == len(TAGGED[tag].__struct_fields__), fields.get(tag)


def rows(after: str) -> dict[str, list[str]]:
    """The first table behind a text: first cell → the others."""
    found: dict[str, list[str]] = {}
    for line in PAGE.split(after, 1)[1].splitlines():
        if line.startswith("| ") and not line.startswith("| field"):
            first, *others = [cell.strip() for cell in line.strip("| ").split(" | ")]
            for name in first.split(", "):
                found[name] = others
        elif found and not line.startswith("|"):
            break
    return found


@pytest.mark.parametrize(
    ("config", "after"),
    [
        (TopicConfig(), "### 6.1"),
        (GroupConfig(), "### 6.2"),
        (SubscriptionConfig(), "`config` is a record; every field has a default"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_page_prints_a_configuration(config: Any, after: str) -> None:
    told = rows(after)
    assert list(told) == list(config.__struct_fields__)
    for name, (kind, default, *_) in told.items():
        value = getattr(config, name)
        shown = default.strip('`"').replace("\N{MINUS SIGN}", "-")
        if isinstance(value, Struct):
            assert shown == "[]"
            assert msgspec.msgpack.decode(b"\x90", type=type(value)) == value
        else:
            assert shown == (
                str(value).lower()
                if isinstance(value, bool)
                else f"{value:g}"
                if isinstance(value, float)
                else str(value)
            )
            assert kind.split()[0] == type(value).__name__
