"""Looks at what leaders wish of their ISRs: who joins keeps up, so nobody has to leave at once.

A wish that came at every round (the HW of an ISR that is too small stands still, and whoever has it
may join) filled the raft log with changes and harmed nothing else that anybody looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logboom.nodes.config import BrokerConfig
from logboom.nodes.replica.leadership import JOIN_SHARE, Leadership
from logboom.nodes.replication.isr_keeper import IsrKeeper
from tests.sim.world.trace import BrokenProperty

if TYPE_CHECKING:
    import pytest

    from logboom.nodes.replica.replica import Replica
    from tests.sim.world.world import World

OUT_OF_SYNC_S: Final = BrokerConfig(id="", name_servers=[]).out_of_sync_ms / 1000
CLOCKS: Final = 0.95
"""Leaders go by clocks of their own, which may run a little faster than true time."""


class IsrWatch:
    """What the leaders of one world wished."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._least_s = OUT_OF_SYNC_S * (1 - JOIN_SHARE) * CLOCKS
        self._joined: dict[tuple[Leadership, str], float] = {}

    def look_on(self, patch: pytest.MonkeyPatch) -> None:
        """Follow the wishes from now on."""
        grow, shrink = IsrKeeper.grow, IsrKeeper.shrink

        def grown(keeper: IsrKeeper, replica: Replica, broker: str) -> None:
            if replica.leading is not None:
                self._joined[replica.leading, broker] = self._world.scheduler.now
            grow(keeper, replica, broker)

        def shrunk(keeper: IsrKeeper, replica: Replica, slow: list[str]) -> None:
            if replica.leading is not None and replica.leading.pending is None:
                self._left(replica, replica.leading, slow)
            shrink(keeper, replica, slow)

        patch.setattr(IsrKeeper, "grow", grown)
        patch.setattr(IsrKeeper, "shrink", shrunk)

    def _left(self, replica: Replica, leading: Leadership, slow: list[str]) -> None:
        self._world.trace.count("slow members", len(slow))
        for broker in slow:
            joined = self._joined.get((leading, broker))
            stayed = self._world.scheduler.now - joined if joined is not None else self._least_s
            if stayed < self._least_s:
                raise BrokenProperty(
                    "who joins an ISR keeps up",
                    f"{leading.me} let {broker} join {replica.topic}/{replica.queue}, and finds it "
                    f"too slow {stayed:.1f} s later",
                )
