"""Figures of a node, asked for as clients do."""

from __future__ import annotations

from collections.abc import Mapping

from logboom.client import Client
from logboom.deploy.polling import ask_until

Figures = Mapping[str, int | float | str]


def figures(boom: Client, node: str) -> Figures:
    """The counters of a node; one that is too busy to answer within two seconds is asked again."""

    def told() -> Figures:
        return next((each.counters for each in boom.admin.stats() if each.node == node), {})

    found = ask_until(told, bool, 200.0)
    assert found, f"{node} does not tell its figures"
    return found
