"""promtool, which comes with Prometheus: checks of rules, and their unit tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest


def needs_promtool() -> str:
    """The path of promtool; without it the test is skipped, but not where everything must run."""
    found = shutil.which("promtool")
    if found is None:
        text = "promtool is missing: sudo apt-get install prometheus"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    return found


def promtool(*arguments: str | Path) -> None:
    """Run promtool; fails with what it says."""
    done = subprocess.run(
        [needs_promtool(), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def series_text(labels: Mapping[str, str]) -> str:
    """A series as promtool reads it; its name is the label `__name__`."""
    shown = ", ".join(
        f"{name}={json.dumps(value)}" for name, value in labels.items() if name != "__name__"
    )
    return f"{labels['__name__']}{{{shown}}}"


def run_rule_tests(folder: Path, rules: str, tests: Sequence[Mapping[str, Any]]) -> None:
    """Run unit tests of rules; JSON is YAML."""
    (folder / "rules.yml").write_text(rules)
    whole = {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": tests}
    (folder / "tests.yml").write_text(json.dumps(whole))
    promtool("test", "rules", folder / "tests.yml")
