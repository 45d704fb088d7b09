"""A topic's dispatch rate, shared by subscriptions."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.nodes.subscriptions.attached_consumer import MAX_GRANT
from logboom.nodes.subscriptions.topic_rates import RateShare, SharedRate, divide
from tests.unit.wire.work import cost_ms

MOST_MS: Final = 10.0
SAVED = st.lists(st.floats(-100, 100), min_size=1, max_size=6)


def drain(shares: dict[RateShare, int], seconds: float, batch: int) -> dict[RateShare, int]:
    """Let each in turn take whole batches while there is room; what each got beyond that."""
    got = dict.fromkeys(shares, 0)
    now = 100.0
    while now < 100.0 + seconds:
        for share, wanted in shares.items():
            while got[share] < wanted and min(share.room(now)) > 0:
                share.charge(batch, batch * 100)
                got[share] += batch
        now += 0.01
    return got


@pytest.mark.parametrize("limits", [(50, 0), (0, 5_000), (50, 5_000)])
@pytest.mark.parametrize("batch", [1, 10, 200])
def test_two_that_want_all_get_half_each(limits: tuple[int, int], batch: int) -> None:
    # The first one is always asked first: it got 242 of 250.
    rate = SharedRate(*limits)
    one, two = rate.share("one"), rate.share("two")
    got = drain({one: 1 << 30, two: 1 << 30}, 40.0, batch)
    assert abs(got[one] - got[two]) <= batch
    assert sum(got.values()) <= 41 * 50 + 2 * batch
    assert sum(got.values()) >= 39 * 50


def test_who_wants_less_leaves_the_rest_to_the_others() -> None:
    rate = SharedRate(100)
    idle, modest, greedy = (rate.share(name) for name in ("idle", "modest", "greedy"))
    got = drain({idle: 0, modest: 50, greedy: 1 << 30}, 20.0, 1)
    assert (got[idle], got[modest]) == (0, 50)
    assert 1_900 <= got[greedy] <= 2_050


def test_each_can_save_at_least_one_message() -> None:
    rate = SharedRate(1)
    shares = [rate.share(str(n)) for n in range(4)]
    got = drain(dict.fromkeys(shares, 1 << 30), 80.0, 1)
    assert sum(got.values()) == pytest.approx(80, abs=5)
    assert max(got.values()) - min(got.values()) <= 1


def test_it_is_said_when_a_share_has_room_again() -> None:
    rate = SharedRate(10)
    one, two = rate.share("one"), rate.share("two")
    assert one.room(100.0) == (5, MAX_GRANT)
    one.charge(5, 0)
    # Nobody else can save more.
    assert one.next_at(100.0) == pytest.approx(100.1)
    assert two.room(100.0)[0] == 5
    two.charge(10, 0)
    assert one.next_at(100.0) == pytest.approx(100.2)
    assert two.next_at(100.0) == pytest.approx(101.2)
    assert (one.room(100.21)[0], two.room(100.21)[0]) == (1, 0)


def test_a_share_comes_and_goes() -> None:
    rate = SharedRate(10)
    one = rate.share("one")
    assert rate.share("one") is one
    assert one.room(100.0)[0] == 10
    two = rate.share("two")
    assert (one.room(100.0)[0], two.room(100.0)[0]) == (5, 5)
    two.charge(50, 0)
    rate.leave("two")
    assert one.room(100.5)[0] == 10
    one.charge(50, 0)
    rate.change(20, 0)
    assert one.room(100.5)[0] == 20


@given(SAVED, st.floats(0, 1_000), st.floats(1, 50))
def test_nothing_is_lost_and_no_share_gets_more_than_another_that_can_take_it(
    saved: list[float], amount: float, most: float
) -> None:
    found = divide(saved, amount, most)
    room = sum(most - each for each in saved)
    assert sum(found) == pytest.approx(sum(saved) + min(amount, room), abs=1e-6)
    assert max(found) <= most + 1e-9
    gained = [now - min(before, most) for now, before in zip(found, saved, strict=True)]
    assert min(gained) >= 0
    open_ones = [gain for gain, now in zip(gained, found, strict=True) if now < most - 1e-6]
    for gain in open_ones:
        assert gain >= max(gained) - 1e-6


def test_very_many_shares_are_looked_at_in_little_time() -> None:
    """A turn looks at all that wait; whoever may use subscriptions of a topic may have many."""
    rate = SharedRate(1_000, 1_000_000)
    shares = [rate.share(str(number)) for number in range(1_000)]
    for number, share in enumerate(shares):
        share.charge(1 + number, 100 * number)
    assert cost_ms(lambda: [share.next_at(100.0) for share in shares], MOST_MS) <= MOST_MS
    saved = [float(number) for number in range(len(shares))]
    assert cost_ms(lambda: divide(saved, 1e9, 1e4), MOST_MS) <= MOST_MS


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=40))
def test_the_speed_of_a_share_follows_those_that_can_save_more(acts: list[tuple[int, int]]) -> None:
    rate, now = SharedRate(60, 60), 100.0
    shares: dict[str, RateShare] = {}
    for who, amount in acts:
        name = str(who)
        if who == 5:
            now += amount / 40
            rate.fill(now)
        elif amount:
            shares[name] = rate.share(name)
            shares[name].charge(amount, amount // 2)
        else:
            rate.leave(name)
            shares.pop(name, None)
        saved = [share.saved() for share in shares.values()]
        most = max(1.0, 60 / max(1, len(saved)))
        messages, size = (sum(each[at] < most for each in saved) for at in (0, 1))
        assert rate.speeds() == (60 / max(1, messages), 60 / max(1, size))
