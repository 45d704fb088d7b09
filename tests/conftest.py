"""What holds for all tests.

Those that are marked `thorough` are left to `make verify`: the others guard the same in a
representative form. `--thorough` runs them too, and so does naming one by its id.

Property tests do not fail for being slow: the machine may have other things to do. And Ctrl-C means
something in processes under test, also where all of this runs in the background of a shell, which
has it ignored there.
"""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.thorough import leave_nothing_out

signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that leaves nothing out."""
    parser.addoption("--thorough", action="store_true", help="leave nothing to `make verify`")


def pytest_configure(config: pytest.Config) -> None:
    """Say it before the first module is imported, which asks for its examples then."""
    if config.getoption("--thorough"):
        leave_nothing_out()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `make verify` runs."""
    if config.getoption("--thorough") or any("::" in name for name in config.args):
        return
    left_out = [item for item in items if item.get_closest_marker("thorough")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
