"""Tables: sorting, searching, pages, and what they become as CSV and JSON."""

from __future__ import annotations

import json
from typing import Any

from logboom.console.widgets.data_table import (
    TableColumn,
    TableModel,
    build_table,
    csv_text,
    json_bytes,
)
from logboom.console.widgets.page_query import PageQuery

COLUMNS = (TableColumn("name", "Name"), TableColumn("size", "Size", "bytes"))
ROWS = [{"name": f"n{number:03}", "size": number if number % 3 else None} for number in range(120)]


def table(parameters: str = "", name: str = "") -> TableModel:
    return build_table(COLUMNS, ROWS, PageQuery("/things", parameters), name=name, sort="name")


def shown(model: TableModel) -> list[str]:
    return [row.source["name"] for row in model.rows]


def test_the_first_page_is_sorted_as_said() -> None:
    model = table()
    assert shown(model) == [f"n{number:03}" for number in range(50)]
    assert (model.total, model.matched, model.page, model.pages) == (120, 120, 1, 3)
    assert (model.previous_url, model.next_url) == ("", "/things?page=2")


def test_a_page_beyond_the_last_is_the_last() -> None:
    assert shown(table("page=99"))[-1] == "n119"
    assert table("page=nonsense").page == 1


def test_what_is_not_known_comes_last_either_way() -> None:
    assert table("sort=size&rows=200").rows[-1].source["size"] is None
    descending = table("sort=-size&rows=200")
    assert descending.rows[0].source["size"] == 119
    assert descending.rows[-1].source["size"] is None


def test_every_word_must_be_found() -> None:
    assert shown(table("find=N01+9")) == ["n019"]
    assert table("find=zzz").rows == ()


def test_links_keep_the_rest_of_the_address() -> None:
    model = table("find=n0&page=2&other=1")
    assert model.heads[1].url == "/things?find=n0&other=1&sort=-size"
    assert model.first_url == "/things?find=n0&other=1"
    assert model.hidden == (("other", "1"),)


def test_a_second_table_has_parameters_of_its_own() -> None:
    model = table("page=2&more.page=3", name="more")
    assert model.page == 3
    assert model.first_url == "/things?page=2"
    assert model.csv_url == "/things?page=2&more.page=3&format=csv&table=more"


def test_all_rows_that_match_are_written() -> None:
    rows: list[dict[str, Any]] = [{"name": '=cmd("x")', "size": 1}, {"name": "plain", "size": None}]
    model = build_table(COLUMNS, rows, PageQuery("/things", ""))
    assert csv_text(model) == 'name,size\r\n"\'=cmd(""x"")",1\r\nplain,\r\n'
    assert json.loads(json_bytes(model)) == rows
