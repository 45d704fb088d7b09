"""Hunts keep a line for each seed, and their sums count each seed once."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.sim import run
from tests.sim.attacks import attacked
from tests.sim.run import Ran, added_up


def test_sums_count_a_seed_once_and_tell_what_broke() -> None:
    lines = [
        Ran(1, "", "a", {"acked": 3}, "", "", 0.5).line(),
        Ran(1, "", "a", {"acked": 3}, "", "", 0.7).line(),
        Ran(1, " --rot", "b", {"acked": 4, "fault: crash": 1}, "", "", 0.5).line(),
        Ran(2, "", "", {"acked": 5}, "nothing is doubled", "long", 0.5).line(),
    ]
    told = added_up(lines)
    assert "3 seeds, broken: ['2 (nothing is doubled)']" in told
    assert "acked 12, fault: crash 1" in told


def test_a_seed_that_broke_once_is_told_whichever_of_its_lines_says_so() -> None:
    good = Ran(4, "", "a", {"acked": 3}, "", "", 0.5).line()
    bad = Ran(4, "", "", {"acked": 2}, "nothing is doubled", "", 0.5).line()
    for lines in ([good, bad], [bad, good], [good, bad, bad]):
        told = added_up(lines)
        assert "1 seeds, broken: ['4 (nothing is doubled)']" in told


def test_a_hunt_appends_to_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text("")
    assert run.main(["--first", "7", "--count", "1", "--log", str(log)]) == 0
    (line,) = log.read_text().splitlines()
    kept = json.loads(line)
    assert kept["seed"] == 7
    assert kept["digest"]
    assert kept["totals"]["acked"] > 0
    assert run.main(["--sum", str(log)]) == 0
    assert "1 seeds, broken: []" in capsys.readouterr().out


def test_the_line_that_an_attack_prints_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = attacked(3, "last one")
    arguments = ["--seed", "3", "--quiet", *shlex.split(scenario.options)]
    assert run.main(arguments) == 0
    assert f"hash {scenario.run().digest}\n" in capsys.readouterr().out


def test_an_attack_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--seed", "3", "--attack", "of nobody"])
    assert "'last one'" in capsys.readouterr().err
