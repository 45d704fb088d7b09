"""The list of consumer groups, pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from logboom.client.admin_flows.group_lag import GroupDescription
from logboom.console.consumer_survey import ConsumerHistory, ConsumerSurvey, GroupProgress
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.filter_chips import FilterChip, state_chip
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.wire.group_view import GroupSummary

STATES: Final[Mapping[str, Tone]] = {
    "fault": "failed",
    "paused": "info",
    "rebalancing": "warning",
    "empty": "",
    "stable": "ok",
}
"""State of a group → its colour."""
LATE_MS: Final = 60_000
"""The age of an unfinished message from which it is shown as a warning."""


@dataclass(frozen=True, slots=True)
class GroupsModel:
    """The list of groups."""

    table: TableModel
    states: tuple[FilterChip, ...]
    silent: tuple[str, ...]
    """Brokers that did not answer, so that some lags are missing."""
    surveyed: bool
    """False while the first survey is under way."""


def state_of(group: GroupSummary | GroupDescription) -> str:
    """Return the state of a group, one of `STATES`."""
    if isinstance(group, GroupSummary):
        paused, members = group.paused, group.member_count
    else:
        paused, members = group.config.paused, len(group.members)
    if paused:
        return "paused"
    if not members:
        return "empty"
    if group.fault:
        return "fault"
    return "stable" if group.target_epoch >= group.group_epoch else "rebalancing"


def _state_tone(row: Row) -> Tone:
    return STATES[row["state"]]


def _age_tone(row: Row) -> Tone:
    return "warning" if (row["age_ms"] or 0) >= LATE_MS else ""


def _trend_tone(row: Row) -> Tone:
    return "warning" if (row["lag_per_s"] or 0) >= 1 and (row["lag"] or 0) > 0 else ""


LAG_HINT: Final = "Unfinished messages, those that the filter leaves out included"
COLUMNS: Final = (
    TableColumn("name", "Group", "code", href=lambda row: path_of("groups", row["name"])),
    TableColumn("state", "State", "badge", tone=_state_tone),
    TableColumn("members", "Members", "count"),
    TableColumn("lag", "Lag", "count", hint=LAG_HINT),
    TableColumn(
        "age_ms", "Oldest", "span", tone=_age_tone, hint="How long the oldest unfinished one waits"
    ),
    TableColumn(
        "lag_per_s",
        "Trend",
        "rate",
        tone=_trend_tone,
        hint="How the lag grows or shrinks",
        wide_only=True,
    ),
    TableColumn("topics", "Topics", wide_only=True),
    TableColumn("mode", "Mode", wide_only=True),
    TableColumn("coordinator", "Coordinator", "code", wide_only=True),
)


def group_row(standing: GroupProgress, trend_per_s: float | None) -> dict[str, Any]:
    """Return what the list says of a group."""
    summary = standing.summary
    return {
        "name": summary.name,
        "state": state_of(summary),
        "members": summary.member_count,
        "lag": standing.lag,
        "age_ms": standing.age_ms,
        "lag_per_s": trend_per_s,
        "topics": summary.topics,
        "mode": summary.mode,
        "coordinator": summary.coordinator,
        "fault": summary.fault,
    }


def build_groups(
    survey: ConsumerSurvey | None, history: ConsumerHistory, query: PageQuery
) -> GroupsModel:
    """Return the part of the list that a URL asks for: `state` a state, "late" or "stuck"."""
    standings = [] if survey is None else [*survey.groups.values()]
    asked = query.text("state")
    late = [each for each in standings if (each.age_ms or 0) >= LATE_MS]
    stuck = [each for each in standings if is_abandoned(each)]
    by_state: dict[str, list[GroupProgress]] = {state: [] for state in STATES}
    for each in standings:
        by_state[state_of(each.summary)].append(each)
    chosen = {"": standings, "late": late, "stuck": stuck, **by_state}.get(asked, standings)

    states = [state_chip(query, "All", "", len(standings))]
    if late:
        states.append(state_chip(query, "A minute behind and more", "late", len(late), "warning"))
    if stuck:
        states.append(state_chip(query, "Behind without members", "stuck", len(stuck), "failed"))
    states += [
        state_chip(query, state.capitalize(), state, len(found), STATES[state])
        for state, found in by_state.items()
        if found
    ]
    rows = [group_row(each, history.trend_per_s(each.summary.name)) for each in chosen]
    table = build_table(
        COLUMNS,
        rows,
        query,
        sort="-lag",
        empty="There are no groups yet. A group begins when its first consumer joins."
        if not asked
        else "No group is in this state.",
    )
    return GroupsModel(
        table, tuple(states), () if survey is None else survey.silent, survey is not None
    )


def is_abandoned(standing: GroupProgress) -> bool:
    """True if a group has a lag, and nobody to work it off."""
    summary = standing.summary
    return bool(standing.lag) and not summary.member_count and not summary.paused
