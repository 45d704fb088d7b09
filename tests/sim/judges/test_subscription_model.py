"""The model of a dispatcher knows what a dispatcher may do."""

from __future__ import annotations

import pytest

from logboom.nodes.subscriptions.dispatch_events import (
    DispatchEffects,
    DispatchEvent,
    SubscriptionConfig,
)
from logboom.nodes.subscriptions.dispatcher import Dispatcher
from tests.sim.judges.subscription_model import DispatchModel
from tests.sim.world.trace import BrokenProperty
from tests.unit.nodes.subscriptions.dispatch_bench import Bench


def followed(settings: SubscriptionConfig, patch: pytest.MonkeyPatch) -> Bench:
    """A dispatcher on a bench, held against its model."""
    bench = Bench(settings)
    model, handle = DispatchModel(bench.dispatcher), Dispatcher.handle

    def watched(
        dispatcher: Dispatcher, event: DispatchEvent, now: float, *units: int
    ) -> DispatchEffects:
        effects = handle(dispatcher, event, now, *units)
        model.took(event, effects, now)
        return effects

    patch.setattr(Dispatcher, "handle", watched)
    return bench


def test_who_was_active_loses_what_it_holds_though_its_successor_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = followed(SubscriptionConfig(kind="failover", failover_delay_s=1.0), monkeypatch)
    bench.append(b"a", b"b")
    bench.attach("old", 10, priority=2)
    bench.attach("new", 0, priority=1)
    bench.grant("old", 0)
    bench.wait(1.1)
    bench.detach("new")
    bench.wait(1.1)
    assert bench.got["old"] == [0, 1, 0, 1]


def test_a_successor_that_is_served_too_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = followed(SubscriptionConfig(kind="failover", failover_delay_s=1.0), monkeypatch)
    bench.append(b"a", b"b")
    bench.attach("old", 10, priority=2)
    bench.attach("new", 10, priority=1)
    vars(bench.dispatcher).update(_begins_at=float("-inf"), _before=None)
    with pytest.raises(BrokenProperty, match="one consumer is active at a time"):
        bench.append(b"c")
