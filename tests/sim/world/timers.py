"""A check of a broker's timers: before its deadline, none of its parts has anything to do.

A broker steps its parts only when something is due, so a part whose deadline is too late would do
its work late, up to the next round of maintenance.
"""

from __future__ import annotations

from logboom.nodes.broker import Broker
from logboom.nodes.parking.release_scheduler import ReleaseScheduler
from logboom.nodes.turn import BrokerTurn
from logboom.wire.actor import Effects, Instant
from tests.sim.world.trace import BrokenProperty


def check_timers(broker: Broker, now: Instant) -> None:
    """Step every part of a broker that wants no turn yet.

    Raises:
        BrokenProperty: that had an effect.
    """
    deadline = broker.deadline()
    if deadline is not None and deadline <= now.mono:
        return
    for service in broker.parts.services:
        if isinstance(service, ReleaseScheduler):
            continue  # it goes by the wall clock, which may have jumped since the last step
        turn = BrokerTurn(now)
        service.step(turn)
        if turn.out != Effects() or len(turn.writes):
            name = type(service).__name__
            raise BrokenProperty("timers are armed", f"{name} had work before its deadline")
