"""One seed is one run: again in this process, and in others that hash differently."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.sim.scenario import Scenario
from tests.thorough import few_of

ROOT = Path(__file__).parents[2]
SEED = 3
ACCESS_SEED = 2
"""In it, the sessions of a user that end together ended in an order of their own in each process."""


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


@cache
def here() -> str:
    """The hash of the run in this process, run once."""
    return Scenario(SEED).run().digest


def test_a_seed_gives_the_same_run_again() -> None:
    assert Scenario(SEED).run().digest == here()


@pytest.mark.parametrize("hash_seed", few_of(["1", "4242"], ["4242"]))
def test_a_seed_gives_the_same_run_in_another_process(hash_seed: str) -> None:
    assert in_another_process(hash_seed) == here()


def test_another_seed_gives_another_run() -> None:
    assert Scenario(SEED + 1).run().digest != here()


def access_hash(hash_seed: str) -> str:
    """The hash of a run with users in a process with this PYTHONHASHSEED."""
    program = f"from tests.sim.access_scenario import AccessScenario as A; print(A({ACCESS_SEED}).run().digest)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_seed_with_users_gives_the_same_run_in_every_process() -> None:
    assert access_hash("1") == access_hash("3")
