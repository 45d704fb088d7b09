"""Dispatchers of all types under random events: nothing lost, nothing twice, no key overtaken."""

from __future__ import annotations

from random import Random

import pytest

from logboom.nodes.subscriptions import dispatcher, key_shared_backlog
from logboom.nodes.subscriptions.dispatch_events import KINDS, Hashing, SubscriptionConfig
from logboom.nodes.subscriptions.dispatch_events import SubscriptionType as Type
from logboom.nodes.subscriptions.dispatcher import RETURN_UNITS
from logboom.wire.errors import LogboomError
from logboom.wire.head import ControlKind
from tests.thorough import seeds
from tests.unit.nodes.subscriptions.dispatch_bench import Bench

STEPS = 250
KEYS: list[bytes | None] = [b"a", b"b", b"c", b"d", b"e", b"f", None]


@pytest.fixture(params=[False, True], ids=["at once", "in slices"])
def in_slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether few messages that come again are many already."""
    if request.param:
        monkeypatch.setattr(dispatcher, "RETURNED_AT_ONCE", 2)
        monkeypatch.setattr(key_shared_backlog, "MOVED_AT_ONCE", 2)
    return bool(request.param)


def play(bench: Bench, rng: Random, steps: int) -> None:
    """Random events of up to five consumers."""
    names = ["one", "two", "three", "four", "five"]
    for _ in range(steps):
        name = rng.choice(names)
        held = sorted(bench.held.get(name, ()))
        action = rng.random()
        if name not in bench.session:
            if action < 0.3:
                attach(bench, rng, name)
        elif action < 0.05:
            attach(bench, rng, name) if rng.random() < 0.4 else bench.detach(name)
        elif action < 0.3:
            bench.grant(name, rng.choice([0, 1, 5, 40]), blocked=rng.random() < 0.2)
        elif action < 0.6 and held:
            bench.ack(name, *rng.sample(held, rng.randint(1, len(held))))
        elif action < 0.7 and held:
            bench.nack(
                name,
                *rng.sample(held, rng.randint(1, min(3, len(held)))),
                delay_s=rng.choice([0.0, 0.0, 0.5, 5.0]),
            )
        elif action < 0.75:
            assert bench.ack(name, bench.log.end + 5) or bench.log.end < 0
        elif action < 0.85:
            bench.wait(rng.choice([0.01, 0.4, 3.0]))
        elif action < 0.87 and rng.random() < 0.5:
            bench.fail_over()
        else:
            if rng.random() < 0.3:
                bench.log.control(ControlKind.CURSOR_DELTA)
            bench.append(*rng.choices(KEYS, k=rng.randint(1, 12)))


def attach(bench: Bench, rng: Random, name: str) -> None:
    """A consumer comes, if it is let in."""
    ranges = None
    if bench.settings.hashing == "sticky" and bench.settings.kind == "key_shared":
        first = rng.randrange(4) * 16_384
        ranges = [(first, first + 16_383)]
    try:
        bench.attach(name, rng.choice([0, 10]), rng.choice([0, 0, 1]), ranges)
    except LogboomError:
        bench.session.pop(name, None)


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_and_nothing_is_at_two(kind: Type, seed: int, *, in_slices: bool) -> None:
    rng = Random(seed)
    settings = SubscriptionConfig(
        kind=kind,
        ack_timeout_s=rng.choice([0.0, 4.0]),
        most_unacked=rng.choice([8, 50_000]),
        most_unacked_all=rng.choice([12, 200_000]),
        look_ahead=rng.choice([10, 50_000]),
    )
    bench = Bench(settings)
    bench.return_units = rng.choice([1, 100]) if in_slices else RETURN_UNITS
    play(bench, rng, STEPS)
    bench.finish_alone()
    assert sorted({o for got in bench.got.values() for o in got}) == list(range(bench.log.end))


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("hashing", ["sticky", "consistent"])
def test_keys_stay_in_order_whoever_has_the_ranges(
    hashing: Hashing, seed: int, *, in_slices: bool
) -> None:
    rng = Random(seed)
    bench = Bench(
        SubscriptionConfig(kind="key_shared", hashing=hashing, look_ahead=rng.choice([10, 500]))
    )
    bench.return_units = rng.choice([1, 100]) if in_slices else RETURN_UNITS
    play(bench, rng, STEPS)
    for name in list(bench.session):
        bench.detach(name)
    bench.attach("last", ranges=[(0, 65_535)] if hashing == "sticky" else None)
    bench.finish()
    assert sorted({o for got in bench.got.values() for o in got}) == list(range(bench.log.end))
