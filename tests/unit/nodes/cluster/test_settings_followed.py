"""A broker follows the replicated settings while it runs."""

from __future__ import annotations

import pytest

from tests.unit.nodes.rig import ME, Rig, batch, produce


def scrubbed(rig: Rig, seconds: float) -> int:
    """How many bytes are scrubbed in a while."""
    before = rig.broker.stats.counters["scrubbed_bytes"]
    rig.settle(seconds)
    return rig.broker.stats.counters["scrubbed_bytes"] - before


def test_the_newest_value_counts_and_one_for_this_broker_wins() -> None:
    rig = Rig(scrub_bytes_per_s=7)
    rig.lead()
    settings = rig.broker.context.settings
    assert settings.scrub_bytes_per_s == 7
    rig.set(scrub_bytes_per_s=5, half_checks=3)
    assert (settings.scrub_bytes_per_s, settings.half_checks) == (5, 3)
    rig.set("broker-2", scrub_bytes_per_s=9)
    assert settings.scrub_bytes_per_s == 7
    rig.set(ME, scrub_bytes_per_s=9)
    assert settings.scrub_bytes_per_s == 9
    rig.set()
    assert settings.scrub_bytes_per_s == 7


def test_the_scrub_goes_on_at_another_rate_at_once() -> None:
    rig = Rig(scrub_bytes_per_s=0, scrub_every_s=0.0)
    rig.lead()
    for _ in range(64):
        rig.client().ask(produce(), [batch(1, value=b"v" * 16_000)])
    assert scrubbed(rig, 10.0) == 0
    rig.set(scrub_bytes_per_s=1_000_000)
    assert scrubbed(rig, 10.0) == pytest.approx(10_000_000, rel=0.1)
    # A piece at this rate would be due in three days.
    rig.set(scrub_bytes_per_s=1)
    scrubbed(rig, 10.0)
    assert scrubbed(rig, 10.0) == 0
    rig.set(scrub_bytes_per_s=1_000_000)
    assert scrubbed(rig, 10.0) == pytest.approx(10_000_000, rel=0.1)
    rig.set(scrub_bytes_per_s=0)
    assert scrubbed(rig, 10.0) == 0


def test_retention_is_checked_at_another_interval_at_once() -> None:
    rig = Rig(retention_check_ms=86_400_000)
    rig.lead()
    trimmer = rig.broker.parts.maintenance.__dict__["_trimmer"]
    before = trimmer.__dict__["_checked_at"]
    rig.settle(60.0)
    assert trimmer.__dict__["_checked_at"] == before
    rig.set(retention_check_ms=1_000)
    rig.settle(2.0)
    assert trimmer.__dict__["_checked_at"] > before


def test_a_replica_that_was_moved_away_goes_by_the_grace_that_counts_now() -> None:
    rig = Rig()
    rig.lead()
    rig.client().ask(produce(), [batch(3)])
    others = ("broker-2", "broker-3")
    rig.lead(2, leader="broker-2", isr=others, replicas=others)
    rig.settle(10.0)
    assert rig.storage.content("log")
    rig.set(replica_delete_grace_s=5)
    rig.settle(0.0)
    assert not rig.storage.content("log")
