"""Every Python example that README and docs print runs as it stands, as a script of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.deploy import Cluster
from tests.forked import run_forked

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
"""Examples that need Spark are left out: they run in tests/spark."""
FENCED = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
DEFAULT_ENDPOINT = "127.0.0.1:7711"
"""Where the examples expect a broker; it is told apart from whatever runs on this machine."""
SHORT = re.compile(r"timeout_s=(?:5|10)\b")
"""How long the examples wait for what comes at once, except on a busy machine."""

EXAMPLES = [
    pytest.param(found.group(1), id=f"{page.name}-{at}")
    for page in PAGES
    if page.name != "PIPELINE.md"
    for at, found in enumerate(FENCED.finditer(page.read_text("utf-8")))
    if "from logboom.pipeline" not in found.group(1)
]


@pytest.fixture(scope="module", name="endpoint")
def broker_endpoint() -> Iterator[str]:
    """A broker of a cluster that all examples share."""
    with Cluster(name_servers=1, brokers=1) as cluster:
        yield cluster.endpoint("broker-1")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, endpoint: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    here = SHORT.sub("timeout_s=200", example.replace(DEFAULT_ENDPOINT, endpoint))
    script.write_text(here, "utf-8")
    done = run_forked([str(script)], os.environ, tmp_path)
    assert done.code == 0, f"{example}\n{done.out!r}\n{done.err}"
    assert "Traceback" not in done.err


def test_there_are_examples() -> None:
    pages = {str(parameters.id).rpartition("-")[0] for parameters in EXAMPLES}
    assert {"README.md", "CLIENT.md"} <= pages
