"""The overview."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Final, TypeVar

from logboom.client.admin_flows.open_transactions import OpenTransactions
from logboom.client.checks.check_result import CheckResult
from logboom.client.results import NodeStats
from logboom.console.pages.overview_page import OverviewData, OverviewModel, build_overview
from logboom.console.routes.topic_routes import newest_survey
from logboom.console.site import NavigationEntry, PageRequest, PageRoute, Subject
from logboom.wire.errors import LogboomError

T = TypeVar("T")
SHARED_S: Final = 5.0
"""Seconds for which viewers share what was asked: the page renews itself as often."""
STALE_S: Final = 20.0
"""Seconds for which it is shown as it was, while everything is asked for anew."""
MAX_TRANSACTIONS: Final = 1_000
TRANSACTIONS_S: Final = 30.0
"""Seconds for which open transactions are not asked for again."""
MAX_SAMPLE_AGE_S: Final = 8.0
"""Age of the newest sample of counters after which the nodes are asked again."""


async def load_overview(request: PageRequest) -> OverviewModel:
    """Ask for what the overview shows; viewers share the answer."""

    async def make() -> OverviewModel:
        data = await ask_overview(request)
        return build_overview(data, request.cluster.history, request.now_ms)

    return await request.cluster.cached("overview", make, SHARED_S, STALE_S)


async def ask_overview(request: PageRequest) -> OverviewData:
    """Ask for everything that the checks go by. What does not answer is left out, and told."""
    admin = request.cluster.boom.admin
    not_asked: list[CheckResult] = []

    async def attempt(what: str, call: Awaitable[T]) -> T | None:
        try:
            return await call
        except LogboomError as error:
            text = f"could not be checked: {error.text}"
            not_asked.append(CheckResult(what, "warning", text, "see the problems above"))
            return None

    newest = request.cluster.history.newest
    nodes: Sequence[NodeStats]
    if newest is not None and request.now_ms / 1000 - newest.wall_s < MAX_SAMPLE_AGE_S:
        nodes = [*newest.nodes.values()]
    else:
        nodes = await admin.stats()
    asked: list[Awaitable[Any]] = [
        admin.view(),
        attempt("operations", admin.describe_cluster()),
        attempt("versions", admin.versions()),
        attempt("transactions", _transactions(request)),
    ]
    view, described, versions, transactions = await request.cluster.together(asked)
    consumers = await attempt("groups", newest_survey(request, len(view.topics)))
    return OverviewData(view, nodes, described, versions, consumers, transactions, not_asked)


async def _transactions(request: PageRequest) -> OpenTransactions:
    """Return the open transactions. One that is past its time is so for minutes."""
    admin = request.cluster.boom.admin
    return await request.cluster.cached(
        "open transactions", lambda: admin.transactions(most=MAX_TRANSACTIONS), TRANSACTIONS_S
    )


SUBJECT = Subject(
    pages=(PageRoute("/", load_overview, "overview.html"),),
    navigation=(NavigationEntry("Overview", "/", 10),),
)
