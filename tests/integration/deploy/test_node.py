"""What a node's process sets up for itself."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.deploy import Cluster


@pytest.fixture
def few_files() -> Iterator[int]:
    """A low limit of open files in this process, which its children inherit; the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_node_takes_all_the_connections_it_may(few_files: int) -> None:
    with Cluster(name_servers=1, brokers=1) as cluster:
        for name in cluster.nodes:
            limits = Path(f"/proc/{cluster.pid(name)}/limits").read_text().splitlines()
            (line,) = [line for line in limits if line.startswith("Max open files")]
            assert line.split()[3] == str(few_files)
