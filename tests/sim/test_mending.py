"""A disk that flips bits, under all other faults: nothing of it is ever seen, and all is mended."""

from __future__ import annotations

from typing import Final

import pytest

from tests.sim.judges.figures import short
from tests.sim.scenario import Scenario
from tests.thorough import few_of

SEEDS: Final = range(1, 7)
FEW: Final = (0, 1, 20207)
"""Of these, what `make test` runs."""
FOUND: Final[dict[int, str]] = {
    0: "what became committed while a replica was mended was never applied, and retention stood still",
    12: "a producer of a damaged leader was refused for good, though a good copy came back",
    20: "the same, with two more replicas",
    58: "the same, through the public client",
    94: "the same, with damage in a stamped head",
    20067: "a follower cut for damage came back into the ISR for what it had held: acked and lost",
    20207: "a flipped base offset passed for a producer's last batch when windows were rebuilt",
}
"""Seed → what it once broke. (Their weather changed since; docs/RELIABILITY.md names the directed
tests that hold what they found.)"""


@pytest.mark.parametrize("seed", few_of([*SEEDS, *FOUND], FEW))
def test_flipped_bits_are_found_and_healed(seed: int) -> None:
    # In the end every replica is in sync, and alike byte for byte.
    found = Scenario(seed, rot=True).run()
    assert found.totals["flipped bits"] > 0
    assert short(found.totals, found.seconds) == ""
