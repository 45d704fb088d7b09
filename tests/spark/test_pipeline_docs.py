"""The Python examples of docs/PIPELINE.md, and that of README for Spark, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from logboom.cli.app import build
from logboom.pipeline import sink_options, source_options

PAGE = Path(__file__).parents[2] / "docs" / "PIPELINE.md"
TEXT = PAGE.read_text("utf-8")
README = PAGE.parents[1] / "README.md"
FENCED = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXAMPLES = FENCED.findall(TEXT) + [
    each for each in FENCED.findall(README.read_text("utf-8")) if "from logboom.pipeline" in each
]
RUN_ALL = """
import runpy, sys
for script in sys.argv[1:]:
    runpy.run_path(script, run_name="__main__")
    print(script, "has run")
"""
DEFAULT_ENDPOINT = "127.0.0.1:7711"
"""Where the examples expect a broker."""


@pytest.mark.thorough
def test_the_examples_run(servers: str, tmp_path: Path) -> None:
    # In one process, for the sake of one JVM: the next begins where the one before has stopped Spark.
    assert EXAMPLES
    scripts = []
    for number, example in enumerate(EXAMPLES):
        scripts.append(tmp_path / f"example_{number}.py")
        scripts[-1].write_text(example.replace(DEFAULT_ENDPOINT, servers), "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *map(str, scripts)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    assert done.stdout.count("has run") == len(EXAMPLES)


def test_every_option_is_told() -> None:
    assert EXAMPLES
    known = {*source_options.KNOWN, *sink_options.KNOWN} - {*sink_options.STREAM_ONLY}
    assert [name for name in known if f"`{name}`" not in TEXT] == []


def test_every_command_is_told() -> None:
    commands = [name for name in build()["pipeline"] if not name.startswith("-")]
    assert commands
    assert [name for name in commands if f"`{name} " not in TEXT] == []
