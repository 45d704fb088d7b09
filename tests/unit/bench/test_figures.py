"""Bars of figures, and the references beside which they are measured."""

from __future__ import annotations

import pytest

from bench.figures import Comparison, Figure, compared, table
from bench.references import Reference


def test_a_figure_is_compared_with_the_references_around_it() -> None:
    given = iter([100.0, 300.0, 500.0, 700.0])
    reference = Reference("raw, msg/s", lambda: [next(given)])
    (found,) = reference.beside(3, lambda number: [[100.0, 200.0, 900.0][number]])
    assert found == Comparison(200.0, "raw, msg/s", 400.0, 0.5)


def test_a_reference_may_have_a_value_for_each_figure() -> None:
    reference = Reference("echo, ms", lambda: [1.0, 10.0])
    p50, p99 = reference.beside(2, lambda _: [3.0, 20.0])
    assert (p50.ratio, p50.reference_value) == (3.0, 1.0)
    assert (p99.ratio, p99.reference_value) == (2.0, 10.0)


@pytest.mark.parametrize(
    ("value", "ratio", "bar", "better", "verdict"),
    [
        (5.0, 0.5, 0.4, "more", "ok"),
        (5.0, 0.5, 0.6, "more", "MISSED"),
        (5.0, 0.5, 0.4, "less", "MISSED"),
        (5.0, 0.5, None, "more", ""),
        (5.0, None, 5.0, "less", "ok"),
        (5.0, None, 4.0, "less", "MISSED"),
    ],
)
def test_the_bar_is_of_the_ratio_if_there_is_one(
    value: float, ratio: float | None, bar: float | None, better: str, verdict: str
) -> None:
    figure = Figure("a", value, "ms", bar, "more" if better == "more" else "less", ratio=ratio)
    assert figure.verdict == verdict


def test_the_table_names_reference_ratio_and_bar() -> None:
    comparison = Comparison(1_500.0, "raw, msg/s", 3_000.0, 0.5)
    text = table([compared("produced", comparison, "msg/s", 0.4), Figure("lost", 0, "", 0, "less")])
    head, produced, lost = (" ".join(line.split()) for line in text.splitlines())
    assert head == "what measured unit ratio bar reference its value note"
    assert produced == "produced 1,500 msg/s 0.50 ≥ 0.40 ok raw, msg/s 3,000"
    assert lost == "lost 0.00 ≤ 0.00 ok"
