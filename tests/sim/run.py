"""Replay one seed, or hunt through many: `python -m tests.sim.run --seed 17`.

A hunt may keep a line of JSON for each seed (`--log FILE`); `--sum FILE …` adds up what many hunts
came to. Seeds in which too little happened (`figures.py`) are told as short: they broke nothing, and
prove little.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from tests.sim.attacks import MIXES, attacked
from tests.sim.judges.figures import plain, short
from tests.sim.judges.verdict import Failed
from tests.sim.scenario import Scenario
from tests.sim.seeds import seed_range


class Ran(NamedTuple):
    """One seed of a hunt, as a line of the log keeps it."""

    seed: int
    options: str
    digest: str
    totals: dict[str, int]
    broken: str
    """The promise; empty: none."""
    story: str
    cpu_s: float
    seconds: float
    """Of true time in the world."""

    def line(self) -> str:
        """JSON, without the story."""
        kept = {key: value for key, value in self._asdict().items() if key != "story"}
        return json.dumps(kept, sort_keys=True)

    @property
    def short(self) -> str:
        """The seed, and what it fell short of; "" if of nothing, or if it is not held to figures."""
        if self.broken or not plain(self.options):
            return ""
        missing = short(self.totals, self.seconds)
        return f"{self.seed}{self.options} ({missing})" if missing else ""


def ran(
    seed: int, *, rot: bool = False, single: str = "", attack: str = "", echo: bool = False
) -> Ran:
    """Run one seed to its end; under an attack, `rot` and `single` are the attack's own affair."""
    scenario = attacked(seed, attack) if attack else Scenario(seed, rot=rot, single=single)
    if echo:
        scenario.world.trace.echo = _echo
    begun = time.process_time()
    digest, broken, story = "", "", ""
    try:
        digest = scenario.run().digest
    except Failed as error:
        broken, story = error.promise, str(error)
    totals = dict(scenario.world.trace.totals)
    spent = round(time.process_time() - begun, 3)
    seconds = round(scenario.world.scheduler.now, 3)
    return Ran(seed, scenario.options, digest, totals, broken, story, spent, seconds)


def summary(totals: Counter[str]) -> str:
    """The totals on one line, the faults by kind behind the rest."""
    ordered = sorted(totals.items(), key=lambda item: (": " in item[0], item[0]))
    return ", ".join(f"{what} {number}" for what, number in ordered)


def added_up(lines: Iterable[str]) -> str:
    """What logged hunts came to: each seed counts once per set of options."""
    seeds: dict[tuple[int, str], dict[str, int]] = {}
    broken: dict[str, None] = {}
    fell_short: dict[str, None] = {}
    seconds = 0.0
    for line in lines:
        # Lines of older hunts do not say how long a run was: they can not be held to the figures.
        kept: dict[str, Any] = {"seconds": -1.0, **json.loads(line)}
        result = Ran(**kept, story="")
        # Whichever run of a seed it was: what held in another run of it excuses nothing.
        if result.broken:
            broken[f"{result.seed}{result.options} ({result.broken})"] = None
        if result.seconds >= 0 and result.short:
            fell_short[result.short] = None
        key = (result.seed, result.options)
        if key not in seeds:
            seconds += max(0.0, result.seconds)
        seeds.setdefault(key, result.totals)
    totals: Counter[str] = Counter()
    for each in seeds.values():
        totals.update(each)
    return (
        f"{len(seeds)} seeds, broken: {list(broken)}, {len(fell_short)} short: {list(fell_short)}, "
        f"{seconds / 3600:.2f} h of their own time\n{summary(totals)}\n"
    )


def _echo(line: str) -> None:
    sys.stdout.write(line + "\n")


def _hunt(seeds: Iterable[int], one: Callable[[int], Ran], jobs: int) -> Iterator[Ran]:
    if jobs == 1:
        yield from map(one, seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(one, seeds)


def _lines(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        yield from path.read_text().splitlines()


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed and print every event")
    parser.add_argument("--seeds", type=seed_range, help="FIRST-LAST, or how many from 0 on")
    parser.add_argument("--first", type=int, default=0, help="first seed of a hunt")
    parser.add_argument("--count", type=int, default=50, help="seeds of a hunt")
    parser.add_argument("--jobs", type=int, default=1, help="processes of a hunt")
    parser.add_argument("--log", type=Path, help="append a line of JSON for each seed")
    parser.add_argument("--sum", type=Path, nargs="+", help="add up logs, and run nothing")
    parser.add_argument("--quiet", action="store_true", help="no events")
    parser.add_argument("--rot", action="store_true", help="one broker's disk flips bits too")
    parser.add_argument("--single", default="", help="this fault alone, once, e.g. crash")
    parser.add_argument("--attack", default="", choices=MIXES, help="under this attack")
    chosen = parser.parse_args(arguments)
    if chosen.sum:
        sys.stdout.write(added_up(_lines(chosen.sum)))
        return 0
    one = partial(ran, rot=chosen.rot, single=chosen.single, attack=chosen.attack)
    if chosen.seed is not None:
        echo = not chosen.quiet
        found = one(chosen.seed, echo=echo)
        sys.stdout.write(f"hash {found.digest}\n")
        results: Iterable[Ran] = [found]
    else:
        seeds = chosen.seeds or range(chosen.first, chosen.first + chosen.count)
        results = _hunt(seeds, one, chosen.jobs)
    return _tell(results, chosen.log)


def _tell(results: Iterable[Ran], log: Path | None) -> int:
    totals: Counter[str] = Counter()
    failed: list[int] = []
    fell_short: list[str] = []
    number, spent = 0, 0.0
    for result in results:
        number += 1
        spent += result.cpu_s
        totals.update(result.totals)
        if result.broken:
            failed.append(result.seed)
            sys.stderr.write(f"{result.story}\n")
        if result.short:
            fell_short.append(result.short)
        if log is not None:
            with log.open("a") as file:
                file.write(result.line() + "\n")
    sys.stdout.write(
        f"{number} seeds in {spent:.1f} s of processor time; broken: {sorted(failed)}, "
        f"{len(fell_short)} short: {sorted(fell_short)}\n"
        f"{summary(totals)}\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
