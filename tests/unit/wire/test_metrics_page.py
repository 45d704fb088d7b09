"""docs/METRICS.md is what its generator makes of the table of metrics."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from logboom.wire.metric_table import METRICS

ROOT = Path(__file__).parents[3]
GENERATOR = Path("wire/generate_metrics_page.py")
PAGE = Path("docs/METRICS.md")


def generate(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the generator in a tree."""
    command = [sys.executable, str(root / GENERATOR), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_page_is_up_to_date() -> None:
    done = generate(ROOT, "--check")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_the_page_has_each_metric_once() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert {name: text.count(f"| `logboom_{name}` |") for name in METRICS} == dict.fromkeys(
        METRICS, 1
    )


def test_a_stale_page_is_told_and_written(tmp_path: Path) -> None:
    for path in (GENERATOR, PAGE):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    text = (tmp_path / PAGE).read_text(encoding="utf-8")
    (tmp_path / PAGE).write_text(text.replace("`logboom_holds`", "`logboom_held`"))
    done = generate(tmp_path, "--check")
    assert done.returncode == 1
    assert "make generate" in done.stderr
    assert generate(tmp_path).returncode == 0
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == text
