"""Hunts keep a line for each seed, and their sums count each seed once."""

from __future__ import annotations

import gc
import json
import shlex
from pathlib import Path

import pytest

from tests.sim import run
from tests.sim.attacks import attacked
from tests.sim.judges.figures import short
from tests.sim.run import Ran, added_up
from tests.sim.world.garbage import collected_between_runs


def test_sums_count_a_seed_once_and_tell_what_broke() -> None:
    lines = [
        Ran(1, "", "a", {"acked": 3}, "", "", 0.5, 40.0).line(),
        Ran(1, "", "a", {"acked": 3}, "", "", 0.7, 40.0).line(),
        Ran(1, " --rot", "b", {"acked": 4, "fault: crash": 1}, "", "", 0.5, 40.0).line(),
        Ran(2, "", "", {"acked": 5}, "nothing is doubled", "long", 0.5, 40.0).line(),
    ]
    told = added_up(lines)
    assert "3 seeds, broken: ['2 (nothing is doubled)']" in told
    assert "acked 12, fault: crash 1" in told


def test_a_seed_that_broke_once_is_told_whichever_of_its_lines_says_so() -> None:
    good = Ran(4, "", "a", {"acked": 3}, "", "", 0.5, 40.0).line()
    bad = Ran(4, "", "", {"acked": 2}, "nothing is doubled", "", 0.5, 40.0).line()
    for lines in ([good, bad], [bad, good], [good, bad, bad]):
        told = added_up(lines)
        assert "1 seeds, broken: ['4 (nothing is doubled)']" in told


ENOUGH = {
    "acked": 200,
    "faults": 3,
    "fault: crash": 2,
    "fault: pause": 1,
    "healed": 1,
    "compared": 1,
}


@pytest.mark.parametrize(
    ("totals", "seconds", "missing"),
    [
        ({}, 30.0, ""),
        ({"acked": 199}, 30.0, "acked 199"),
        ({"faults": 2}, 30.0, "faults 2"),
        ({"healed": 0}, 30.0, "healed 0"),
        ({"compared": 0}, 30.0, "compared 0"),
        ({}, 29.96, "seconds 30.0"),
    ],
)
def test_a_seed_in_which_too_little_happened_is_told(
    totals: dict[str, int], seconds: float, missing: str
) -> None:
    result = Ran(5, " --rot", "a", {**ENOUGH, **totals}, "", "", 0.5, seconds)
    told = f"5 --rot ({missing})"
    assert result.short == (told if missing else "")
    names = [told] if missing else []
    assert f"1 seeds, broken: [], {len(names)} short: {names}" in added_up([result.line()])
    broken = result._replace(broken="nothing is doubled")
    attack, single = (result._replace(options=o) for o in (' --attack "x"', ' --single "x"'))
    assert [broken.short, attack.short, single.short] == ["", "", ""]


def test_one_kind_of_faults_is_too_few() -> None:
    totals = {what: number for what, number in ENOUGH.items() if what != "fault: pause"}
    assert short(totals, 30.0) == "kinds of faults 1"


def test_lines_of_older_hunts_are_added_up_all_the_same() -> None:
    kept = json.loads(Ran(4, "", "a", {"acked": 3}, "", "", 0.5, 40.0).line())
    del kept["seconds"]
    assert "1 seeds, broken: [], 0 short: []" in added_up([json.dumps(kept)])


def test_a_hunt_appends_to_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text("")
    assert run.main(["--first", "7", "--count", "1", "--log", str(log)]) == 0
    (line,) = log.read_text().splitlines()
    kept = json.loads(line)
    assert kept["seed"] == 7
    assert kept["digest"]
    assert kept["totals"]["acked"] > 0
    assert kept["seconds"] >= 30
    assert run.main(["--sum", str(log)]) == 0
    assert "1 seeds, broken: [], 0 short: []" in capsys.readouterr().out


def test_the_line_that_an_attack_prints_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = attacked(3, "last one")
    arguments = ["--seed", "3", "--quiet", *shlex.split(scenario.options)]
    assert run.main(arguments) == 0
    assert f"hash {scenario.run().digest}\n" in capsys.readouterr().out


def test_an_attack_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--seed", "3", "--attack", "of nobody"])
    assert "'last one'" in capsys.readouterr().err


class Ring:
    """Refers to itself: only a look for garbage frees it."""

    alive = 0

    def __init__(self) -> None:
        self.me = self
        Ring.alive += 1

    def __del__(self) -> None:
        Ring.alive -= 1


def test_garbage_of_a_run_waits_for_the_next_one() -> None:
    with collected_between_runs():
        for _ in range(5_000):
            Ring()
        assert Ring.alive == 5_000
    assert gc.isenabled()
    with collected_between_runs():
        assert Ring.alive == 0
