"""Plots as SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from logboom.pipeline.plot import Line, svg

SPACE = "{http://www.w3.org/2000/svg}"


def test_lines_stand_where_their_points_are() -> None:
    drawn = svg("a < b", [Line("p50", [(0, 0), (10, 180)]), Line("p99", [(5, 100)])], "s", "ms")
    tree = ElementTree.fromstring(drawn)
    texts = [each.text for each in tree.iter(f"{SPACE}text")]
    assert texts[:3] == ["a < b", "s", "ms"]
    assert texts[-2:] == ["p50", "p99"]
    assert {"0", "200", "10"} <= set(texts)  # the axes' ends
    first, second = (each.get("points") for each in tree.iter(f"{SPACE}polyline"))
    assert first == "70.0,310.0 700.0,67.0"
    assert second == "385.0,175.0"


def test_without_points_there_are_axes() -> None:
    tree = ElementTree.fromstring(svg("empty", [Line("p50", [])], "s", "ms"))
    assert len(list(tree.iter(f"{SPACE}line"))) == 6


@pytest.mark.parametrize(("most", "end"), [(52, "60"), (11, "15"), (0.07, "0.08"), (901, "1,000")])
def test_axes_end_soon_after_the_last_point(most: float, end: str) -> None:
    tree = ElementTree.fromstring(svg("t", [Line("p50", [(0, most)])], "s", "ms"))
    texts = [each.text for each in tree.iter(f"{SPACE}text")]
    assert texts[-3] == end
