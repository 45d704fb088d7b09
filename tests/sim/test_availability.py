"""After one fault of one node a queue with three replicas is back within seconds."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest

from tests.sim.scenario import Scenario
from tests.thorough import few_of

BACK_S: Final = 6.0
"""Seconds within which every message sent meanwhile is acknowledged."""
FAULTS: Final = (
    "crash",
    "pause",
    "isolate",
    "cut apart",
    "deafen",
    "cut going home",
    "cut from nodes",
    "unheard by nodes",
    "half open",
    "half open followers",
    "fail sync",
    "fill leader",
    "replace disk",
    "replace name server",
    "stop",
    "lose power in sync",
    "after ack",
)
SEEDS: Final = (1, 2)
"""The second has found what was wrong after three of these faults."""
FEW: Final = (("crash", 1), ("isolate", 2), ("fail sync", 2))
"""Of these, what `make test` runs."""
TOPICS: Final = ("safe", "brief")
"""With three replicas."""


@pytest.mark.parametrize(("fault", "seed"), few_of(product(FAULTS, SEEDS), FEW))
def test_a_queue_is_back_soon_after_one_fault(fault: str, seed: int) -> None:
    found = Scenario(seed, single=fault).run()
    assert found.totals["faults"] >= 1, "a fault that never struck harms nobody"
    waits = {queue: s for queue, s in found.slowest.items() if queue.topic in TOPICS}
    assert {queue: seconds for queue, seconds in waits.items() if seconds > BACK_S} == {}
