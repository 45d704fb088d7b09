"""docs/PROTOCOL.md prints every message, command, record and configuration as `wire` has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Struct

from logboom.wire.base import SMALL_FRAME
from logboom.wire.commands import AnyCommand
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import AnyMessage
from logboom.wire.subscription_messages import SubscriptionConfig
from logboom.wire.view import TopicConfig
from tests.unit.wire import largest_requests
from tests.unit.wire.largest_requests import tag_of

PAGE = (Path(__file__).parents[3] / "docs" / "PROTOCOL.md").read_text("utf-8")
CODE = re.compile(r"^(?:    [^\n]*\n)+|`([^`\n]+)`", re.MULTILINE)
TAGGED: dict[str, type[Struct]] = {
    str(each.__struct_config__.tag): each for each in (*get_args(AnyMessage), *get_args(AnyCommand))
}
CONFIGS = [
    (TopicConfig(), "### 6.1"),
    (GroupConfig(), "### 6.2"),
    (SubscriptionConfig(), "`config` is a record; every field has a default"),
]
"""Each configuration, and what its table follows."""
VALUES = {"nil", "true", "false"}


def arrays() -> Iterator[list[str]]:
    """Every `[…]` in the code of the page, also within another, taken apart at its own commas."""
    for code in CODE.finditer(PAGE):
        for begin in re.finditer(r"\[", code[0]):
            depth, parts, part = 1, [], ""
            for letter in code[0][begin.end() :]:
                depth += (letter in "[{") - (letter in "]}")
                if depth == 0:
                    break
                if letter == "," and depth == 1:
                    parts.append(part)
                    part = ""
                else:
                    part += letter
            yield [each.strip() for each in [*parts, part]]


def printed() -> dict[str, list[str]]:
    """Tag → the fields of its longest array on the page, without the tag."""
    found: dict[str, list[str]] = {}
    for tag, *fields in arrays():
        if re.fullmatch(r'"\w+"', tag) and len(fields) > len(found.get(tag.strip('"'), [])):
            found[tag.strip('"')] = fields
    return found


def differences(fields: Sequence[str], record: type[Struct]) -> list[tuple[str, str]]:
    """What the page and the code call a field differently; in place of a name, the page may have a
    value, a list or a map."""
    return [
        (field, name)
        for field, name in zip_longest(fields, record.__struct_fields__, fillvalue="")
        if field != name and (not field or not name or field in names_of([field]))
    ]


def names_of(fields: Sequence[str]) -> list[str]:
    """Those that are names."""
    return [each for each in fields if re.fullmatch(r"[a-z]\w*", each) and each not in VALUES]


def records() -> list[type[Struct]]:
    """The records within messages and commands, but for configurations, which have their tables."""
    waiting: list[Any] = [msgspec.inspect.type_info(each) for each in TAGGED.values()]
    seen: set[type[Struct]] = set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, msgspec.inspect.StructType) and each.cls not in seen:
            seen.add(each.cls)
            waiting += [field.type for field in each.fields]
        for inner in ("item_type", "key_type", "value_type"):
            waiting += [getattr(each, inner)] if hasattr(each, inner) else []
        waiting += [*getattr(each, "types", ()), *getattr(each, "item_types", ())]
    configs = {type(config) for config, _ in CONFIGS}
    return sorted(seen - configs - {*TAGGED.values()}, key=lambda each: each.__name__)


@pytest.mark.parametrize("tag", sorted(TAGGED))
def test_the_page_prints_all_fields(tag: str) -> None:
    fields = printed()
    assert tag in fields or not TAGGED[tag].__struct_fields__
    if tag == "raftframe":  # its payload is a frame of its own
        assert len(fields[tag]) == 12
        return
    assert differences(fields.get(tag, []), TAGGED[tag]) == []


@pytest.mark.parametrize("record", records(), ids=lambda each: each.__name__)
def test_the_page_prints_all_fields_of_a_record(record: type[Struct]) -> None:
    named = (fields for fields in arrays() if names_of(fields))
    assert not all(differences(fields, record) for fields in named), record.__struct_fields__


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


@pytest.mark.parametrize(("config", "after"), CONFIGS, ids=lambda each: type(each).__name__)
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


def test_the_page_prints_the_limits_of_requests() -> None:
    limits: dict[str, tuple[int, dict[str, int]]] = {}
    for field in largest_requests.fields():
        _, lists = limits.setdefault(tag_of(field.request), (field.request.FRAME_BYTES, {}))
        kind = field.kind
        if not isinstance(kind, msgspec.inspect.ListType | msgspec.inspect.DictType):
            continue
        if kind.max_length is not None:
            lists[field.name] = kind.max_length
    told = rows("### 1.3 Limits of requests")
    others, *_ = told.pop("all others")
    assert int(others) == SMALL_FRAME
    for cells in told.values():
        assert len(cells) == 3
    assert {
        name.strip("`"): (
            int(size),
            dict(zip(of.split(", "), map(int, most.split(", ")), strict=True)),
        )
        for name, (size, of, most) in told.items()
        if name != "request"
    } == {
        name: (size, lists)
        for name, (size, lists) in limits.items()
        if lists or size != SMALL_FRAME
    }
