"""The raft group under many seeds: nothing acknowledged is lost, one history, it heals."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Final

import pytest

from tests.sim.raft_world import play

ROOT = Path(__file__).parent.parent.parent

MET = (
    "acked",
    "crashes",
    "changes_lost",
    "elections_won",
    "hints_sent",
    "log_cuts",
    "partitions",
    "pauses",
    "power_losses_in_a_turn",
    "sessions_reset",
    "slow_links",
    "snapshots_installed",
    "snapshots_taken",
    "state_hashes_compared",
    "transfers",
    "unknown",
)
"""What the seeds together must have met, or they prove nothing."""


SEEDS: Final = range(20)
FEW: Final = (0, 1, 3, 4, 8)
"""Of these, what `make test` runs."""


@pytest.mark.parametrize(
    ("members", "seeds", "changing"),
    [
        (3, FEW, False),
        (3, FEW, True),
        pytest.param(3, SEEDS, False, marks=pytest.mark.thorough),
        pytest.param(5, range(6), False, marks=pytest.mark.thorough),
        pytest.param(3, SEEDS, True, marks=pytest.mark.thorough),
    ],
)
def test_nothing_acknowledged_is_lost(members: int, seeds: Collection[int], changing: bool) -> None:
    met: Counter[str] = Counter()
    for seed in seeds:
        world = play(seed, members, changing=changing)
        met += world.counts
        met["acked"] += len(world.acked)
    print({what: met[what] for what in sorted(met)})  # noqa: T201 - the figures of the run
    assert [what for what in MET if not met[what]] == []
    assert not changing or met["changes_applied"] > len(seeds)


def story() -> str:
    """All that happened in one seed, as a digest."""
    world = play(77, changing=True)
    told = repr((world.history, sorted(world.acked.items()), sorted(world.counts.items())))
    return hashlib.sha256(told.encode()).hexdigest()


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", "from tests.sim.test_raft_sim import story; print(story())"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {story() + "\n"}
