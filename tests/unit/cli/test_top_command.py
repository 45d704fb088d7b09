"""`logboom top` ends with an error if the cluster goes away, and takes only sensible intervals."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import pytest

from logboom.cli import top_command
from logboom.cli.doctor_command import doctor
from logboom.cli.top_command import top
from logboom.cli.top_sample import ClusterSample
from logboom.wire.errors import InvalidRequest, Unavailable


@pytest.mark.parametrize("interval", [float("nan"), float("inf"), 0.1, -1.0])
def test_an_interval_that_is_none_is_refused(interval: float) -> None:
    with pytest.raises(InvalidRequest, match="--interval"):
        top(interval=interval)
    with pytest.raises(InvalidRequest, match="--interval"):
        doctor(watch=True, interval=interval)


def test_a_cluster_that_goes_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = iter([ClusterSample(0.0, [], [], {}, [])])

    def sample(*_: object) -> ClusterSample:
        for each in samples:
            return each
        raise Unavailable("no node answers")

    monkeypatch.setattr(top_command, "take_sample", sample)
    monkeypatch.setattr(top_command, "open_client", nullcontext)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(Unavailable, match="no node answers: `logboom doctor`"):
        top()
