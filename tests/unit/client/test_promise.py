"""An outcome is set once, and each callback runs once."""

from __future__ import annotations

import threading

import pytest

from logboom.client.promise import Promise
from logboom.wire.errors import TimedOut


def test_the_first_resolution_stands() -> None:
    outcome: Promise[int] = Promise()
    outcome.resolve(1)
    outcome.resolve(2)
    outcome.fail(TimedOut("late"))
    assert outcome.get() == 1


def test_an_error_is_raised() -> None:
    outcome: Promise[int] = Promise()
    outcome.fail(TimedOut("late"))
    with pytest.raises(TimedOut):
        outcome.get()


def test_callbacks_run_in_order_then_at_once() -> None:
    outcome: Promise[int] = Promise()
    ran: list[str] = []
    outcome.add_callback(lambda: ran.append("first"))
    outcome.add_callback(lambda: ran.append("second"))
    assert ran == []
    outcome.resolve(1)
    outcome.add_callback(lambda: ran.append("late"))
    assert ran == ["first", "second", "late"]


def test_a_callback_added_while_another_thread_resolves_runs_exactly_once() -> None:
    for _ in range(300):
        outcome: Promise[int] = Promise()
        ran: list[int] = []
        start = threading.Barrier(2)

        def resolve(outcome: Promise[int] = outcome, start: threading.Barrier = start) -> None:
            start.wait()
            outcome.resolve(1)

        thread = threading.Thread(target=resolve)
        thread.start()
        start.wait()
        for n in range(5):
            outcome.add_callback(lambda n=n, ran=ran: ran.append(n))  # type: ignore[misc]  # defaults bind now
        thread.join()
        assert sorted(ran) == [0, 1, 2, 3, 4]
