"""Users with few rights send all they can for a moment; the long form is `tests.chaos.hostile_users`."""

from __future__ import annotations

from typing import Final

from tests.chaos.hostile_users import run

ENOUGH: Final = 100
"""Requests of each attacker without which nothing was tried; a few seconds have ten times as many on a
busy machine."""


def test_users_with_few_rights_change_nothing_and_stop_nobody() -> None:
    report = run(8.0)
    assert report.troubles == []
    assert len(report.sent) == 4
    assert min(report.sent.values()) > ENOUGH
    assert report.beside_ms
