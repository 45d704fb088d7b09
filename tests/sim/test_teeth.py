"""The simulation notices when a rule is taken out: else its silence would prove nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import pytest

from logboom.nodes import leading, producers, pulling
from logboom.nodes.keys import Position
from logboom.nodes.replica import Replica
from logboom.wire.actor import Synced
from logboom.wire.head import BatchHead
from tests.sim.process import Process
from tests.sim.scenario import Scenario
from tests.sim.verdict import Failed

Patch: TypeAlias = pytest.MonkeyPatch
LOSS: Final = {
    "a fail-over never rewinds a reader",
    "end offsets never go back",
    "nothing acknowledged is lost",
    "one value per offset",
    "what is acknowledged is on disk",
    "retries succeed",
}
"""How a lost message may show first."""
TRIED: Final = 10
"""Seeds within which each break must show."""


def acks_without_a_sync(patch: Patch) -> None:
    """Q1: `Synced` is told of what is not on disk."""

    def done(self: Process, token: int, _mark: int) -> None:
        if self.running:
            vars(self)["_syncing"] = False
            self.deliver(Synced(token))

    patch.setattr(Process, "_sync_done", done)


def a_leader_that_counts_itself_alone(patch: Patch) -> None:
    """Q1: the HW is what the leader has on disk."""

    def high_watermark(_self: leading.Leadership, synced: Position) -> Position:
        return synced

    patch.setattr(leading.Leadership, "high_watermark", high_watermark)


def producers_without_windows(patch: Patch) -> None:
    """Q9: a retry is appended once more."""

    def find(_self: producers.ProducerWindows, _head: BatchHead) -> None:
        return None

    patch.setattr(producers.ProducerWindows, "find", find)


def ends_told_too_early(patch: Patch) -> None:
    """Q8: a new leader tells its HW as the end before it has caught up with its election."""

    def ended(self: pulling.Pulling, topic: str, queue: int, _now: float) -> Replica:
        found: Replica = vars(pulling.Pulling)["_readable"](self, topic, queue)
        return found

    patch.setattr(pulling.Pulling, "_ended", ended)


@pytest.mark.parametrize(
    ("take_out", "promises"),
    [
        (acks_without_a_sync, LOSS),
        (a_leader_that_counts_itself_alone, LOSS),
        (producers_without_windows, {"nothing is doubled"}),
        (ends_told_too_early, {"end offsets never go back"}),
    ],
)
def test_a_rule_taken_out_is_noticed(
    take_out: Callable[[Patch], None], promises: set[str], monkeypatch: Patch
) -> None:
    take_out(monkeypatch)
    for seed in range(TRIED):
        try:
            Scenario(seed).run()
        except Failed as failure:
            first = str(failure).splitlines()[0]
            assert first.removeprefix(f"seed {seed} breaks: ") in promises
            return
    pytest.fail(f"not noticed in {TRIED} seeds")
