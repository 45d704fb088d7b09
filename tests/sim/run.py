"""Replay one seed, or hunt through many: `python -m tests.sim.run --seed 17`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.sim.scenario import Scenario
from tests.sim.verdict import Failed


def summary(totals: Counter[str]) -> str:
    """The totals on one line."""
    return ", ".join(f"{what} {number}" for what, number in sorted(totals.items()))


def _echo(line: str) -> None:
    sys.stdout.write(line + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed and print every event")
    parser.add_argument("--first", type=int, default=0, help="first seed of a hunt")
    parser.add_argument("--count", type=int, default=50, help="seeds of a hunt")
    parser.add_argument("--quiet", action="store_true", help="no events")
    parser.add_argument("--rot", action="store_true", help="one broker's disk flips bits too")
    chosen = parser.parse_args(arguments)
    seeds = (
        range(chosen.first, chosen.first + chosen.count) if chosen.seed is None else [chosen.seed]
    )
    totals: Counter[str] = Counter()
    failed: list[int] = []
    begun = time.monotonic()
    for seed in seeds:
        try:
            scenario = Scenario(seed, rot=chosen.rot)
            if chosen.seed is not None and not chosen.quiet:
                scenario.world.trace.echo = _echo
            outcome = scenario.run()
        except Failed as error:
            failed.append(seed)
            sys.stderr.write(f"{error}\n")
        else:
            totals.update(outcome.totals)
            if chosen.seed is not None:
                sys.stdout.write(f"hash {outcome.digest}\n")
    spent = time.monotonic() - begun
    sys.stdout.write(f"{len(seeds)} seeds in {spent:.1f} s; broken: {failed}\n{summary(totals)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
