"""The skin that surveys all groups and subscriptions of a cluster, a few requests at a time."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from logboom.client.aio import Client
from logboom.console.consumer_survey import (
    ConsumerHistory,
    ConsumerSurvey,
    build_survey,
    oldest_places,
)
from logboom.wire.errors import LogboomError
from logboom.wire.survey_messages import QueueSurvey

SURVEY_S: Final = 10.0
"""Seconds between two surveys."""
BROKER_S: Final = 5.0
"""Seconds that a broker has to answer; all are asked at once."""
SHARE: Final = 0.1
"""The part of the time that surveys may take, in a cluster so large that they take long."""

Place = tuple[int, int, int]
"""(topic id, queue, offset)."""


class ConsumerSampler:
    """Surveys of one cluster as one user sees it, from when it is made until it is closed."""

    def __init__(self, client: Client) -> None:
        self.history = ConsumerHistory()
        self._client = client
        self._times_ms: dict[Place, int] = {}
        """Append times of first unfinished messages that the last survey found."""
        self._wake = asyncio.Event()
        self._made = asyncio.Condition()
        self._number = 0
        """Surveys that were begun."""
        self._done = 0
        """The number of the last one that ended, well or not."""
        self._wanted = 0
        """The number of the survey that shows the last change."""
        self._error: LogboomError | None = None
        self._task = asyncio.create_task(self._run())

    async def survey(self) -> ConsumerSurvey:
        """Return the newest survey, one that began after the last `forget`.

        Raises:
            LogboomError: the cluster does not answer.
        """
        wanted = max(1, self._wanted)
        if self._done < wanted:
            self._wake.set()
            async with self._made:
                await self._made.wait_for(lambda: self._done >= wanted)
        if self._error is not None:
            raise self._error
        newest = self.history.newest
        assert newest is not None
        return newest

    def forget(self) -> None:
        """Have the next `survey` show what holds from now on."""
        self._wanted = self._number + 1

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            self._number += 1
            number = self._number
            begun = time.monotonic()
            try:
                made = await self._ask()
            except LogboomError as error:
                self._error = error
            else:
                self._error = None
                self.history.add(made)
            async with self._made:
                self._done = number
                self._made.notify_all()
            taken = time.monotonic() - begun
            if self._wanted > number:
                continue
            try:
                async with asyncio.timeout(max(SURVEY_S - taken, taken / SHARE)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _ask(self) -> ConsumerSurvey:
        admin = self._client.admin
        groups = await admin.survey_groups()
        topics = {topic.id: topic.name for topic in await admin.topics()}
        queues: dict[tuple[int, int], QueueSurvey] = {}
        leader: dict[tuple[int, int], str] = {}
        silent = []
        alive = [broker.id for broker in await admin.brokers() if broker.alive]
        answers = await asyncio.gather(*map(self._queues_of, alive))
        for broker, told in zip(alive, answers, strict=True):
            if told is None:
                silent.append(broker)
                continue
            for each in told:
                queues[each.topic_id, each.queue] = each
                leader[each.topic_id, each.queue] = broker
        # In threads: a large survey must not hold the pages up.
        await self._find_times(await asyncio.to_thread(oldest_places, groups, queues), leader)
        return await asyncio.to_thread(
            build_survey, time.time(), groups, queues, self._times_ms, topics, silent
        )

    async def _queues_of(self, broker: str) -> list[QueueSurvey] | None:
        """Return what a broker leads; None if it does not tell in time."""
        try:
            async with asyncio.timeout(BROKER_S):
                return await self._client.admin.survey_queues(broker)
        except (LogboomError, TimeoutError):
            return None

    async def _find_times(self, places: set[Place], leader: dict[tuple[int, int], str]) -> None:
        """Find when these messages were stored; one that is known is not asked for again."""
        known = {place: self._times_ms[place] for place in places if place in self._times_ms}
        by_broker: dict[str, list[Place]] = {}
        for place in sorted(places - known.keys()):
            by_broker.setdefault(leader[place[0], place[1]], []).append(place)
        found = await asyncio.gather(*(self._times_at(*each) for each in by_broker.items()))
        for times in found:
            known |= times
        self._times_ms = known

    async def _times_at(self, broker: str, asked: list[Place]) -> dict[Place, int]:
        """Return when messages were stored that a broker leads; nothing if it does not tell in time:
        then its ages are missing in this survey."""
        try:
            async with asyncio.timeout(BROKER_S):
                times = await self._client.admin.append_times(broker, asked)
        except (LogboomError, TimeoutError):
            return {}
        told = zip(asked, times, strict=True)
        return {place: time_ms for place, time_ms in told if time_ms is not None}

    async def close(self) -> None:
        """End the surveys."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
