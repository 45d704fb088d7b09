"""The exporter itself: it asks the cluster, at most every few seconds, and answers scrapes.

To serve it within another application:

    exporter = ClusterExporter(boom)             # an open `logboom.client.aio.Client`
    text, content_type = await exporter.metrics(request.headers.get("accept", ""))
    ...
    await exporter.aclose()

`scrape(exporter, request)` of `logboom.console.exporter.scrape_app` does the second line for
Starlette. Nothing is asked before the first call of `metrics`, and nothing in the background.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Final, TypeVar

from logboom.client.admin_flows.open_transactions import OpenTransactions
from logboom.client.aio import Client
from logboom.console.exporter.exporter_families import (
    DEFAULT_MAX_SERIES,
    FamilySet,
    cluster_families,
    dropped_text,
    exporter_families,
)
from logboom.console.exporter.exporter_sample import (
    KEPT_S,
    BrokerAnswer,
    ExporterSample,
    Place,
    merge_answers,
    places_to_ask,
)
from logboom.console.exporter.exporter_text import Exposition, expose, join_expositions
from logboom.wire.errors import InvalidRequest, LogboomError
from logboom.wire.operation_messages import ClusterDescribed
from logboom.wire.survey_messages import GroupSurvey

LOG = logging.getLogger("logboom.console.exporter")

SAMPLE_INTERVAL_S: Final = 10.0
"""Seconds for which an answer of the cluster is shown before it is asked again."""
PATIENCE_S: Final = 5.0
"""Seconds that a scrape waits for a slow cluster before it shows what was known before. Prometheus
gives up after 10 s by default."""
MAX_UNDECIDED: Final = 10_000
"""Undecided batches of transactions that are counted."""
MIN_MAX_SERIES: Final = 100

T = TypeVar("T")


class ClusterExporter:
    """The metrics of a cluster, of topics, queues, groups and subscriptions."""

    def __init__(
        self,
        boom: Client,
        *,
        queues: bool = False,
        max_series: int = DEFAULT_MAX_SERIES,
        interval_s: float = SAMPLE_INTERVAL_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Create an exporter.

        Args:
            boom: an open client. Its user needs `describe` on the cluster, on topics, groups and
                transactions; what it may not describe is not shown.
            queues: also show the offsets of every queue.
            max_series: limit of series; whole families beyond it are left out, those of queues first.
            interval_s: seconds between two questions to the cluster.
            patience_s: seconds that `metrics` waits for a slow cluster.

        Raises:
            InvalidRequest: an argument is out of range.
        """
        if max_series < MIN_MAX_SERIES:
            raise InvalidRequest(f"{max_series} series at most: allow {MIN_MAX_SERIES} or more")
        if interval_s <= 0:
            raise InvalidRequest(f"an interval of {interval_s:g} s: give more than 0")
        self._boom = boom
        self._queues = queues
        self._max_series = max_series
        self._interval_s = interval_s
        self._patience_s = patience_s
        self._answers: dict[str, BrokerAnswer] = {}
        self._groups: tuple[float, list[GroupSurvey]] | None = None
        self._cluster: tuple[float, ClusterDescribed] | None = None
        self._transactions: tuple[float, OpenTransactions] | None = None
        self._times: dict[Place, int] = {}
        self._errors = 0
        self._failing: set[str] = set()
        self._told: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._sample: ExporterSample | None = None
        self._families = FamilySet({}, {})
        self._texts: dict[str, Exposition] = {}
        """Accepted content type → text of the current sample."""

    @property
    def sample(self) -> ExporterSample | None:
        """What is known of the cluster; None before the first answer."""
        return self._sample

    async def metrics(self, accept: str = "") -> Exposition:
        """Return all metrics, in the format that the header `accept` names.

        The cluster is asked if the last answer is older than the interval; several callers share
        one question. A cluster that does not answer in time shows as it was known before, and the
        exporter's own metrics tell how old that is.
        """
        now = time.monotonic()
        fresh = self._sample is not None and now - self._sample.at < self._interval_s
        if self._task is None and not fresh:
            self._task = asyncio.create_task(self._ask(), name="logboom-exporter")
            self._task.add_done_callback(self._asked)
        if self._task is not None:
            await asyncio.wait([self._task], timeout=self._patience_s)
        return self._expose(accept)

    async def aclose(self) -> None:
        """End a question that is under way. The client stays open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            LOG.error("the exporter failed; please report it", exc_info=task.exception())

    # ── text ────────────────────────────────────────────────────────────────────────────────────

    def _expose(self, accept: str) -> Exposition:
        sample = self._sample
        if sample is None:
            began = time.monotonic()
            sample = ExporterSample(0, began, began, 0.0, self._errors)
            return expose(exporter_families(sample, {}, began).families, accept)
        own = exporter_families(sample, self._families.dropped, time.monotonic())
        last = expose(own.families, accept)
        if last.content_type not in self._texts:
            self._texts[last.content_type] = expose(self._families.families, accept)
        return join_expositions(self._texts[last.content_type], last)

    def _show(self, sample: ExporterSample, families: FamilySet) -> None:
        self._sample, self._families = sample, families
        self._texts.clear()
        dropped = families.dropped
        if dropped.keys() != self._told.keys():
            if dropped:
                LOG.warning("%s", dropped_text(dropped, self._max_series))
            else:
                LOG.info("all series fit again")
        self._told = dropped

    # ── questions ───────────────────────────────────────────────────────────────────────────────

    async def _ask(self) -> None:
        """Ask for everything at once, then for the ages of what is not finished."""
        admin = self._boom.admin
        began = time.monotonic()
        brokers = await self._answer("the brokers", admin.known_brokers()) or []
        alive = [each.id for each in brokers if each.alive]
        known = {each.id for each in brokers}
        (groups, cluster, transactions), surveys = await asyncio.gather(
            asyncio.gather(
                self._answer("the groups", admin.survey_groups()),
                self._answer("moves", admin.describe_cluster()),
                self._answer("transactions", admin.transactions(most=MAX_UNDECIDED)),
            ),
            asyncio.gather(
                *(self._answer(f"queues of {each}", admin.survey_queues(each)) for each in alive)
            ),
        )
        now = time.monotonic()
        self._groups = _newer(self._groups, groups, now)
        self._cluster = _newer(self._cluster, cluster, now)
        self._transactions = _newer(self._transactions, transactions, now)
        for broker, survey in zip(alive, surveys, strict=True):
            if survey is not None:
                self._answers[broker] = BrokerAnswer(now, survey)
        self._answers = {
            broker: answer
            for broker, answer in self._answers.items()
            if broker in known and now - answer.at < KEPT_S
        }
        queues = merge_answers(self._answers)
        listed = None if self._groups is None else self._groups[1]
        wanted, self._times = places_to_ask(listed, queues, self._times)
        await asyncio.gather(*(self._find_times(*each) for each in sorted(wanted.items())))
        ended = time.monotonic()
        parts = [each for each in (self._groups, self._cluster, self._transactions) if each]
        at = [answer.at for answer in self._answers.values()] + [each[0] for each in parts]
        sample = ExporterSample(
            int(time.time() * 1000),
            ended,
            min(at, default=began),
            ended - began,
            self._errors,
            queues,
            listed,
            None if self._cluster is None else self._cluster[1],
            None if self._transactions is None else self._transactions[1],
            self._times,
        )
        # Ten thousand topics take a while to put together, and the console has other callers.
        families = await asyncio.to_thread(
            cluster_families, sample, queues=self._queues, max_series=self._max_series
        )
        self._show(sample, families)

    async def _find_times(self, broker: str, places: list[Place]) -> None:
        what = f"times at {broker}"
        times = await self._answer(what, self._boom.admin.append_times(broker, places))
        for place, time_ms in zip(places, times or (), strict=False):
            if time_ms is not None:
                self._times[place] = time_ms

    async def _answer(self, what: str, question: Awaitable[T]) -> T | None:
        """Return the answer to a question; None, and count it, if there is none."""
        try:
            found = await question
        except LogboomError as error:
            self._errors += 1
            if what not in self._failing:
                self._failing.add(what)
                LOG.warning("no answer about %s, the last one is shown: %s", what, error)
            return None
        if what in self._failing:
            self._failing.discard(what)
            LOG.info("answers about %s come again", what)
        return found


def _newer(last: tuple[float, T] | None, answer: T | None, now: float) -> tuple[float, T] | None:
    """Return an answer with its time, or the last one while it stands in."""
    if answer is not None:
        return now, answer
    return last if last is not None and now - last[0] < KEPT_S else None
