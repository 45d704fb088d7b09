"""The short form of `make chaos`: each test is a whole run with a few faults, judged as the long ones.

Network namespaces need root and iptables: where the machine has no leave for them, the same faults
strike through the proxy, and the line that is printed says so.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from logboom.wire.errors import StartError
from tests.chaos import fates
from tests.chaos.faults import DISASTERS, FAULTS, OPERATIONS
from tests.chaos.links import ProxyLinks
from tests.chaos.namespaces import NamespaceLinks, obstacle
from tests.chaos.plan import Plan
from tests.chaos.report import write
from tests.chaos.rig import Rig
from tests.chaos.run import run

PROCESSES: Final = ("kill-leader", "kill-all", "pause-leader", "half-open", "rolling-upgrade")
MACHINES: Final = ("power-cut-all", "flipped-bytes", "disk-full", "empty-broker", "new-name-server")
FEW: Final = ("kill-leader", "power-cut-all")
"""What `make test` strikes with."""
NETWORKS: Final = ("cut-leader", "cut-one-way", "raft-outage")
BULK: Final = 8_000
"""16 MB: four times what one answer to a follower holds."""
SESSION_MS: Final = 4_000
"""Of the group's members: many are to be out of it in a short time."""
BUSY: Final = 3.0
"""So many times what is promised: this runs beside other tests, on machines of any size, and a bound
that holds there by the clock would fail for them. `make chaos` holds the promise itself."""
UNHURT_S: Final = 4.0
"""But a lost majority of name servers stops no producer and no reader: who stops for it, does so until
it is over, less a lease. So this is below what it lasts, with as much room as there is."""
LEASE_S: Final = 2.0
"""Of a leader that hears no name server."""


@pytest.mark.thorough
def test_a_second_fault_that_finds_nobody_does_not_wait_for_the_end_of_the_first(
    tmp_path: Path,
) -> None:
    # `make chaos` lost two minutes of each run in which everybody was killed first. What fails
    # otherwise is the time-out of this test.
    with Rig(tmp_path / "cluster", 1, ProxyLinks()) as rig:
        rng = random.Random(1)
        struck = FAULTS["kill-all"].strike(rig, rng)
        with pytest.raises(StartError, match="no node answers"):
            FAULTS["kill-leader"].strike(rig, rng)
        struck.mend()
        rig.wait_whole()
        assert rig.leader(rng) in rig.brokers


@pytest.mark.parametrize(
    ("faults", "links"),
    [
        (FEW, ProxyLinks.kind),
        pytest.param(PROCESSES, ProxyLinks.kind, marks=pytest.mark.thorough),
        pytest.param(MACHINES, ProxyLinks.kind, marks=pytest.mark.thorough),
        pytest.param(NETWORKS, NamespaceLinks.kind, marks=pytest.mark.thorough),
        pytest.param(OPERATIONS, ProxyLinks.kind, marks=pytest.mark.thorough),
        pytest.param(DISASTERS, ProxyLinks.kind, marks=pytest.mark.thorough),
    ],
    ids=["few", "processes", "machines", "networks", "operations", "disasters"],
)
def test_every_promise_is_kept(
    faults: tuple[str, ...], links: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = obstacle() if links == NamespaceLinks.kind else ""
    result = run(
        Plan(
            1,
            0.0,
            faults,
            500.0 if faults is FEW else 2_000.0,
            tmp_path / "run",
            ProxyLinks.kind if reason else links,
            session_ms=SESSION_MS,
            bulk=BULK if faults in {FEW, MACHINES} else 0,
            busy=BUSY,
        )
    )
    data, page = write(result, tmp_path)
    with capsys.disabled():
        figures = f"{result.verdict.acked:,} acknowledged, longest outage {result.longest_outage} s"
        figures += f", without a read {result.longest_silence} s"
        group = result.group
        figures += f"; group: {group.delivered:,} delivered, {group.again:,} of them again"
        figures += f"; subscriptions: {result.subscriptions.again:,} again"
        instead = f" (by proxy: {reason})" if reason else ""
        print(f"\n{' '.join(faults)}: {figures}{instead}")  # noqa: T201 - what the run is for
    assert result.verdict.clean, result.verdict.details
    assert result.verdict.acked > 2_000
    assert result.verdict.stored >= result.verdict.acked
    assert result.group.delivered - result.group.again == result.verdict.stored
    assert result.group.fates[fates.KILLED] > 0
    shared = result.subscriptions
    # Each of the two has had everything.
    assert shared.handed - shared.again == 2 * result.verdict.stored
    assert shared.killed > 0
    assert shared.confirmed > 0
    assert [event.name for event in result.events] == list(faults)
    for event in result.events:
        if event.name == "raft-outage":
            assert event.mended - event.struck > UNHURT_S + LEASE_S
            assert event.longest < UNHURT_S
            assert event.longest_silence < UNHURT_S
    assert b'"kept": true' in data.read_bytes()
    assert "every promise was kept" in page.read_text(encoding="utf-8")
