"""A run with delayed messages: `python -m tests.sim.delay_scenario --seed 17`."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from tests.sim.delays import Delays
from tests.sim.run import summary
from tests.sim.scenario import QUEUES, Scenario
from tests.sim.verdict import Failed


class DelayScenario(Scenario):
    """A scenario in which messages wait, and are recalled."""

    def __init__(self, seed: int, *, rot: bool = False) -> None:
        super().__init__(seed, rot=rot)
        rng = random.Random(f"delays of {seed}")
        endpoints = [machine.listeners["main"] for machine in self.world.nodes()]
        self.delays = Delays(self.world, self.history, endpoints, QUEUES, rng)
        self.guests.append(self.delays)


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed and print every event")
    parser.add_argument("--first", type=int, default=0, help="first seed of a hunt")
    parser.add_argument("--count", type=int, default=20, help="seeds of a hunt")
    parser.add_argument("--rot", action="store_true", help="one broker's disk flips bits too")
    chosen = parser.parse_args(arguments)
    one = chosen.seed is not None
    seeds = [chosen.seed] if one else range(chosen.first, chosen.first + chosen.count)
    totals: Counter[str] = Counter()
    broken: list[int] = []
    begun = time.process_time()
    for seed in seeds:
        scenario = DelayScenario(seed, rot=chosen.rot)
        if one:
            scenario.world.trace.echo = lambda line: print(line)  # noqa: T201 - to be read
        try:
            scenario.run()
        except Failed as error:
            broken.append(seed)
            sys.stderr.write(f"{error}\n")
        totals.update(scenario.world.trace.totals)
    spent = time.process_time() - begun
    sys.stdout.write(f"{len(seeds)} seeds in {spent:.1f} s; broken: {broken}\n{summary(totals)}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
