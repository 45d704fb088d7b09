"""Alerts about groups, dead letters and keys at a real cluster: each fires, and ends afterwards.

The exporter is asked many times a second, and promtool evaluates the rules, in as much faster a time,
on what it told. Alerts about nodes are tested in `tests/sim/test_alerts.py`.
"""

from __future__ import annotations

import asyncio
import bisect
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from logboom.client.aio import Client, connect
from logboom.client.aio.group_consumer import GroupConsumer
from logboom.console.exporter.cluster_sampler import ClusterExporter
from logboom.console.exporter.exporter_families import cluster_families, exporter_families
from logboom.console.exporter.exporter_text import exposed_families
from logboom.deploy import embedded
from logboom.wire.exposition import Snapshot, families_of
from logboom.wire.sockets import make_key_pair
from tests.alert_series import Recording, Sample, sample_of
from tests.promtool import needs_promtool

PACE: Final = 150.0
"""A quarter of an hour of a rule is 6 s here."""
FAULT_S: Final = 16.0
"""Longer than any of these alerts looks back and waits: 10 + 15 minutes."""
KEY: Final = "logboom_key_expiry_timestamp_seconds"


class LiveRecording:
    """Samples of a real cluster, and when each was taken."""

    def __init__(self, boom: Client) -> None:
        self._boom = boom
        self._exporter = ClusterExporter(boom, interval_s=0.001, patience_s=60.0)
        self._began = time.monotonic()
        self._began_wall_s = time.time()
        self._times: list[float] = []
        self._samples: list[Sample] = []

    @property
    def seconds(self) -> float:
        """Time of the last sample."""
        return self._times[-1]

    async def follow(self, seconds: float, holds: Callable[[Sample], bool] | None = None) -> float:
        """Record for so long, from when it holds on; return the time of the end."""
        until = None if holds is not None else time.monotonic() + seconds
        while until is None or time.monotonic() < until:
            sample = await self._take()
            self._times.append(time.monotonic() - self._began)
            self._samples.append(sample)
            if until is None and holds is not None and holds(sample):
                until = time.monotonic() + seconds
            await asyncio.sleep(0.05)
        # The last sample may have taken much longer.
        return min(self.seconds, until - self._began)

    async def _take(self) -> Sample:
        await self._exporter.metrics()
        shown = self._exporter.sample
        assert shown is not None
        told = {
            **cluster_families(shown).families,
            **exporter_families(shown, {}, time.monotonic()).families,
        }
        found = sample_of(exposed_families(told), {"job": "logboom-exporter", "instance": "e"})
        nodes = await self._boom.admin.stats()
        while any(node.error for node in nodes):
            # One that is slow to answer is not gone.
            nodes = await self._boom.admin.stats()
        for node in nodes:
            snapshot = Snapshot("name-server", {}, node.counters, {})
            if node.node.startswith("name-"):
                labels = {"job": "logboom-name-servers", "instance": node.node}
                found.update(sample_of(families_of(snapshot), labels))
        # promtool's clock begins at 1970.
        return {
            name: value - self._began_wall_s if name.startswith(KEY) else value
            for name, value in found.items()
        }

    async def aclose(self) -> None:
        """End the exporter."""
        await self._exporter.aclose()

    def recording(self) -> Recording:
        """The samples at equal intervals: the last one before each."""
        found = Recording(PACE)
        found.add(self._samples[0])
        while found.seconds < self.seconds:
            at = bisect.bisect_right(self._times, found.seconds + found.step_s)
            found.add(self._samples[max(0, at - 1)])
        return found


def value(sample: Sample, name: str, part: str) -> float:
    """The series of a metric whose labels have this part; nan: it is not told yet."""
    found = [
        each for series, each in sample.items() if series.startswith(name + "{") and part in series
    ]
    assert len(found) <= 1
    return found[0] if found else math.nan


async def take(consumer: GroupConsumer, count: int) -> None:
    """Finish so many messages."""
    while count > 0:
        for message in await consumer.poll(count, 1.0):
            consumer.ack(message)
            count -= 1
    await consumer.commit()


@pytest.mark.thorough
def test_alerts_about_groups_fire_and_end(tmp_path: Path) -> None:
    needs_promtool()

    async def go(endpoints: list[str]) -> None:
        async with connect(endpoints) as boom, boom.producer() as producer:
            await boom.admin.create_topic("orders", queues=1)
            await producer.send("orders", b"first")
            async with boom.consumer(["orders"], group="billing", start="first") as consumer:
                await take(consumer, 1)
            live = LiveRecording(boom)
            lag = 'group="billing", topic="orders"'
            before = await live.follow(
                8.0, lambda sample: value(sample, "logboom_group_lag", lag) == 0
            )
            for _ in range(3):
                await producer.send("orders", b"nobody takes it")
            standing = await live.follow(FAULT_S)
            async with boom.consumer(["orders"], group="billing") as consumer:
                await take(consumer, 3)
                after = await live.follow(
                    8.0, lambda sample: value(sample, "logboom_group_lag", lag) == 0
                )
                await producer.send("orders", b"bad")
                letters: list[bytes | None] = []
                while not letters:
                    for message in await consumer.poll(1, 1.0):
                        consumer.reject(message, "it is bad")
                        letters.append(message.value)
                await consumer.commit()
                rejected = await live.follow(
                    1.0,
                    lambda sample: value(sample, "logboom_dead_letters_total", "billing") == 1,
                )
                later = await live.follow(8.0)
            await live.aclose()
            expected = []
            for alert in ("LogboomGroupLagGrows", "LogboomGroupWithoutMembers"):
                expected += [(alert, before, False), (alert, standing, True), (alert, after, False)]
            for at, fires in ((after, False), (rejected, True), (later, False)):
                expected.append(("LogboomDeadLetters", at, fires))
            live.recording().check(tmp_path, expected)

    with embedded() as node:
        asyncio.run(go(list(node.endpoints)))


def test_the_alert_about_keys_fires_and_ends(tmp_path: Path) -> None:
    needs_promtool()

    async def go(credentials: Path) -> None:
        async with connect(credentials) as boom:
            live = LiveRecording(boom)
            await boom.admin.create_user("alice", make_key_pair().public)
            before = await live.follow(3.0)
            now_ms = int(time.time() * 1000)
            day_ms = 86_400_000
            public = make_key_pair().public
            await boom.admin.add_user_key("alice", public, label="soon", end_ms=now_ms + 3 * day_ms)
            soon = await live.follow(
                8.0, lambda sample: any(each.startswith(KEY) for each in sample)
            )
            await boom.admin.add_user_key(
                "alice", make_key_pair().public, label="later", end_ms=now_ms + 90 * day_ms
            )
            await boom.admin.remove_user_key("alice", "soon")
            after = await live.follow(
                2.0, lambda sample: value(sample, KEY, "name-1") > 30 * day_ms / 1000
            )
            await live.aclose()
            alert = "LogboomKeyEndsSoon"
            expected = [(alert, before, False), (alert, soon, True), (alert, after, False)]
            live.recording().check(tmp_path, expected)

    with embedded(secure=True) as node:
        assert node.credentials is not None
        asyncio.run(go(node.credentials))
