"""One embedded node for the tests of the command."""

from collections.abc import Iterator

import pytest

from logboom.deploy import embedded


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    """Where the node listens."""
    with embedded() as node:
        yield ",".join(node.endpoints)
