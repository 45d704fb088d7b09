"""The command line of a scenario of its own: replay one seed, or hunt through many."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.sim.judges.figures import short
from tests.sim.judges.verdict import Failed
from tests.sim.run import summary
from tests.sim.scenario import Scenario
from tests.sim.seeds import seed_range

ROT = ("rot", "one broker's disk flips bits too")
"""An option that most scenarios have, and its help."""


def hunt(
    make: Callable[..., Scenario],
    about: str | None,
    option: tuple[str, str],
    arguments: list[str] | None = None,
) -> int:
    """Run the seeds that the command line names; 1 if a promise was broken.

    Args:
        make: Called with a seed, and the option as a keyword.
        about: Says what is run.
        option: Name and help of a switch.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seed", type=int, help="replay this seed and print every event")
    parser.add_argument("--seeds", type=seed_range, help="FIRST-LAST, or how many from 0 on")
    parser.add_argument("--first", type=int, default=0, help="first seed of a hunt")
    parser.add_argument("--count", type=int, default=20, help="seeds of a hunt")
    parser.add_argument(f"--{option[0]}", action="store_true", help=option[1])
    chosen = parser.parse_args(arguments)
    one = chosen.seed is not None
    many = chosen.seeds or range(chosen.first, chosen.first + chosen.count)
    seeds = [chosen.seed] if one else many
    totals: Counter[str] = Counter()
    broken: list[int] = []
    fell_short: list[str] = []
    begun = time.process_time()
    for seed in seeds:
        scenario = make(seed, **{option[0]: getattr(chosen, option[0])})
        if one:
            scenario.world.trace.echo = lambda line: print(line)  # noqa: T201 - to be read
        try:
            seconds = scenario.run().seconds
            if missing := short(scenario.world.trace.totals, seconds):
                fell_short.append(f"{seed} ({missing})")
        except Failed as error:
            broken.append(seed)
            sys.stderr.write(f"{error}\n")
        totals.update(scenario.world.trace.totals)
    spent = time.process_time() - begun
    sys.stdout.write(
        f"{len(seeds)} seeds in {spent:.1f} s; broken: {broken}, "
        f"{len(fell_short)} short: {fell_short}\n{summary(totals)}\n"
    )
    return 1 if broken else 0
