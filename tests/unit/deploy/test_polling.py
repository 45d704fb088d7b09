"""The loop that asks until an answer is good."""

from __future__ import annotations

from itertools import count

import pytest

from logboom.deploy.polling import ask_until


def test_it_asks_until_an_answer_is_good_and_no_more() -> None:
    numbers = count(1)
    assert ask_until(lambda: next(numbers), lambda n: n == 3, 60.0, pause_s=0.0) == 3
    assert next(numbers) == 4


def test_past_the_time_the_last_answer_is_told_though_it_is_not_good() -> None:
    numbers = count(1)
    last = ask_until(lambda: next(numbers), lambda _: False, 0.01, pause_s=0.001)
    assert last == next(numbers) - 1 >= 1


def test_without_time_it_is_asked_once() -> None:
    numbers = count(1)
    assert ask_until(lambda: next(numbers), lambda _: False, -1.0) == 1
    assert next(numbers) == 2


def test_what_the_question_raises_ends_the_wait() -> None:
    def ask() -> bool:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        ask_until(ask, bool, 60.0)
