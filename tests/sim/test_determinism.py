"""One seed is one run: again in this process, and in others that hash differently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.sim.scenario import Scenario

ROOT = Path(__file__).parents[2]
SEED = 3


def in_another_process(hash_seed: str) -> str:
    """The hash of the run in a process with this PYTHONHASHSEED."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.run", "--seed", str(SEED), "--quiet"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("hash ")]
    return line.removeprefix("hash ")


def test_a_seed_gives_the_same_run_everywhere() -> None:
    here = Scenario(SEED).run().digest
    assert Scenario(SEED).run().digest == here
    assert in_another_process("1") == here
    assert in_another_process("4242") == here


def test_another_seed_gives_another_run() -> None:
    assert Scenario(SEED).run().digest != Scenario(SEED + 1).run().digest
