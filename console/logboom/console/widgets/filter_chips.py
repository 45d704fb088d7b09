"""Links above a list that show a part of it, each with how many that are; pure."""

from __future__ import annotations

from dataclasses import dataclass

from logboom.console.widgets.data_table import Tone
from logboom.console.widgets.page_query import PageQuery


@dataclass(frozen=True, slots=True)
class FilterChip:
    """A link that shows a part of a list."""

    title: str
    count: int
    url: str
    current: bool
    tone: Tone = ""


def state_chip(query: PageQuery, title: str, state: str, count: int, tone: Tone = "") -> FilterChip:
    """Return the link that shows what is in a state; "" is all there is."""
    url = query.url(state=state, page=None)
    return FilterChip(title, count, url, query.text("state") == state, tone if count else "")
