"""Waiting for what a cluster of other processes does."""

from __future__ import annotations

from collections.abc import Callable

from logboom.deploy.polling import ask_until


def wait_until(
    holds: Callable[[], bool], what: str, timeout_s: float = 200.0, pause_s: float = 0.05
) -> None:
    """Return when it holds; past the time the test fails with `what`."""
    assert ask_until(holds, bool, timeout_s, pause_s), what
