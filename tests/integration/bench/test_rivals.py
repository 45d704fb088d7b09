"""`python -m bench.rivals` for real, with logboom alone and as little work as it takes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.rivals.process_tree import parents

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "bench.rivals"]
SMALL = ["--quick", "--rivals", "logboom", "--brokers", "1", "--burst-s", "0.02"]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start a run whose report goes to `folder`."""
    pipe = subprocess.PIPE
    command = [*COMMAND, *words, "--out", str(folder), "--cache", str(folder / "cache")]
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.thorough
def test_logboom_runs_and_is_reported(tmp_path: Path) -> None:
    run = start(tmp_path, *SMALL)
    out, said = run.communicate(timeout=300)
    assert run.returncode == 0, said
    assert "### One broker" in out
    report = json.loads((tmp_path / "rivals.json").read_text())
    found = {(each["rival"], each["work"]) for each in report["results"]}
    works = ("produce", "singly", "consume", "both", "latency")
    limits = ("raw_rocksdb", "raw_disk", "memcpy")
    assert found == {("logboom", work) for work in works} | {(each, "produce") for each in limits}
    own = [each for each in report["results"] if each["rival"] == "logboom"]
    assert min(each["messages"] for each in own) > 0
    assert min(each["seconds"] for each in own) > 0
    assert min(each["client_cpu_s"] for each in own) > 0
    (paced,) = (each for each in own if each["work"] == "latency")
    for kind in ("acknowledged_ms", "delivered_ms"):
        p50, p99 = paced[kind]
        assert 0 < p50 <= p99
    assert (tmp_path / "rivals.md").read_text() == out.removesuffix("\n")
    assert (tmp_path / "rates-1.svg").exists()
    assert list(tmp_path.glob("data-*")) == []


@pytest.mark.thorough
def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    run = start(tmp_path, *SMALL, "--rounds", "1000")
    assert run.stderr is not None
    while not run.stderr.readline().startswith("round 2"):
        assert run.poll() is None
    started = {pid for pid, parent in parents().items() if parent == run.pid}
    assert len(started) >= 4
    run.send_signal(signal.SIGINT)
    out, said = run.communicate(timeout=200)
    assert (run.returncode, out) == (130, ""), said
    assert "all processes are ended" in said
    assert started & parents().keys() == set()
    assert list(tmp_path.glob("data-*")) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--rivals", "pulsar"], "no rival 'pulsar': choose from logboom, kafka"),
        (["--brokers", "2"], "--brokers takes 1, 3 or 1,3"),
        (["--codecs", "zstd"], "--codecs takes none, lz4 or none,lz4"),
        (["--report", "nothing.json"], "No such file or directory: 'nothing.json'"),
    ],
)
def test_errors_name_the_remedy(tmp_path: Path, words: list[str], text: str) -> None:
    run = start(tmp_path, *words)
    _, said = run.communicate(timeout=200)
    assert (run.returncode, text in said) == (2, True), said
