"""One cluster, one console and one browser for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logboom.console import cluster_source
from logboom.console.server import ConsoleServer, console_thread
from logboom.console.site import ConsoleSettings
from logboom.deploy.embedded import Embedded
from tests.integration.console.browsing import Surfer, open_browser, open_surfer


def new_console(node: Embedded, folder: Path, **settings: Any) -> ConsoleServer:
    """Return a console of a node, on a free port, that does not run yet."""
    return ConsoleServer(
        ConsoleSettings("127.0.0.1", 0, **settings),
        node.endpoints,
        node.credentials,
        folder / "console",
    )


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """Consoles wait longer than usual for a cluster that is only slow, as on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_source, "CONNECT_S", 60.0)
        yield


@pytest.fixture(scope="module")
def console(node: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """A console that may act."""
    with console_thread(new_console(node, tmp_path_factory.mktemp("console"))) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    with open_browser() as started:
        yield started


@pytest.fixture
def surfer(browser: Any, console: ConsoleServer) -> Iterator[Surfer]:
    """A fresh tab on the console."""
    with open_surfer(browser, console) as tab:
        yield tab
