"""One embedded node for the tests of a module, and a client for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logboom.client import Client, connect
from logboom.deploy import embedded
from logboom.deploy.embedded import Embedded


@pytest.fixture(scope="module")
def node() -> Iterator[Embedded]:
    """A name server and a broker in this process."""
    with embedded() as started:
        yield started


@pytest.fixture
def boom(node: Embedded) -> Iterator[Client]:
    """A client of this node."""
    with connect(node.endpoints) as client:
        yield client
