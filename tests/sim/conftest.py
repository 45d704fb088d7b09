"""What holds for simulations: their time-out only ends a run that hangs."""

from __future__ import annotations

import pytest

TIMEOUT_S = 300
"""Simulations only compute: beside other work each takes many times as long as on a quiet machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each simulation its time-out, unless it names one."""
    for item in items:
        if "/tests/sim/" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
