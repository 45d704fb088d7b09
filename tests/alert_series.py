"""Samples of a cluster as input of promtool, and alerts in a faster time.

Alerts wait for minutes, and look back over an hour. A test that lived through that would take days, so
it divides every duration of the rules, and the interval between two samples, by the same number. What
is sampled is what a cluster told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from prometheus_client.core import Metric as Family

from logboom.console.observability.alert_rules import ALERTS, rules_file
from tests.promtool import promtool, series_text

INTERVAL_S: Final = 15.0
"""Seconds between two samples, in the time of the rules."""
UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600}
NAMED: Final = set(re.findall(r"logboom_\w+", " ".join(each.expression for each in ALERTS)))
"""Metrics that alerts look at; others need not be kept."""

Sample = dict[str, float]
"""Series, as promtool writes it → value."""


def faster(pace: float) -> str:
    """The rules file with every duration divided by `pace`."""

    def divide(found: re.Match[str]) -> str:
        milliseconds = int(found[2]) * UNITS_S[found[3]] * 1000 / pace
        return f"{found[1]}{round(milliseconds)}ms"

    rules = re.sub(r"(\[|for: |offset )(\d+)([smh])", divide, rules_file())
    return rules.replace("4 * 3600", f"{4 * 3_600 / pace}")


def sample_of(families: Iterable[Family], labels: Mapping[str, str]) -> Sample:
    """What alerts look at in what a target told."""
    return {
        series_text({"__name__": each.name, **labels, **each.labels}): float(each.value)
        for family in families
        for each in family.samples
        if each.name in NAMED
    }


class Recording:
    """Samples of all targets at equal intervals."""

    def __init__(self, pace: float) -> None:
        self.pace = pace
        self.step_s = INTERVAL_S / pace
        self.samples: list[Sample] = []

    @property
    def seconds(self) -> float:
        """Time of the last sample."""
        return (len(self.samples) - 1) * self.step_s

    def add(self, sample: Sample) -> None:
        """Add the next sample."""
        self.samples.append(sample)

    def _series(self) -> list[dict[str, str]]:
        names = sorted({name for sample in self.samples for name in sample})
        found = []
        for name in names:
            values = [sample.get(name) for sample in self.samples]
            words = [
                repr(value)
                if value is not None
                # As Prometheus marks a target that is gone.
                else ("stale" if at and values[at - 1] is not None else "_")
                for at, value in enumerate(values)
            ]
            found.append({"series": name, "values": " ".join(words)})
        return found

    def check(self, folder: Path, expected: Sequence[tuple[str, float, bool]]) -> None:
        """Hold the alerts to (name, seconds from the first sample, whether it fires)."""
        tests = [
            {
                "expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) > bool 0 '
                "or vector(0)",
                "eval_time": f"{round(at / self.step_s) * round(self.step_s * 1000)}ms",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
            for name, at, fires in expected
        ]
        step = f"{round(self.step_s * 1000)}ms"
        whole: dict[str, Any] = {
            "rule_files": ["rules.yml"],
            "evaluation_interval": step,
            "tests": [
                {"interval": step, "input_series": self._series(), "promql_expr_test": tests}
            ],
        }
        (folder / "rules.yml").write_text(faster(self.pace))
        (folder / "tests.yml").write_text(json.dumps(whole))
        promtool("test", "rules", folder / "tests.yml")
