"""How many messages a turn takes after those before it."""

from __future__ import annotations

from logboom.wire.turn_pace import LEAST, LONG_S, SHORT_S, TurnPace


def test_turns_that_last_take_fewer_messages_and_short_ones_more_again() -> None:
    pace = TurnPace(256)
    taken = []
    for _ in range(10):
        pace.took(pace.messages, 2 * LONG_S)
        taken.append(pace.messages)
    assert taken == [128, 64, 32, 16, 8, LEAST, LEAST, LEAST, LEAST, LEAST]
    pace.took(LEAST, (LONG_S + SHORT_S) / 2)
    assert pace.messages == LEAST
    for _ in range(10):
        pace.took(pace.messages, SHORT_S / 2)
    assert pace.messages == 256


def test_turns_that_last_by_themselves_slow_nobody_down_for_long() -> None:
    pace = TurnPace(256)
    pace.took(1, 2 * LONG_S)
    assert pace.messages == LEAST
    for _ in range(10):
        pace.took(1, (LONG_S + SHORT_S) / 2)
    assert pace.messages == 256


def test_the_messages_of_the_turn_that_lasted_count() -> None:
    pace = TurnPace(256)
    pace.took(60, 2 * LONG_S)
    assert pace.messages == 30
    pace.took(0, 2 * LONG_S)
    assert pace.messages == LEAST
