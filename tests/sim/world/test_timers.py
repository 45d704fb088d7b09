"""A part of a broker that forgets to say when it wants to be stepped is found."""

from __future__ import annotations

import pytest

from logboom.wire.actor import Instant
from tests.sim.world.timers import check_timers
from tests.sim.world.trace import BrokenProperty
from tests.unit.nodes.rig import Rig


def test_a_late_deadline_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.lead()
    rig.settle(1.0)
    check_timers(rig.broker, Instant(rig.mono, rig.wall_ms))
    monkeypatch.setattr(rig.broker, "deadline", lambda: float("inf"))
    with pytest.raises(BrokenProperty, match="PeerConnections"):
        check_timers(rig.broker, Instant(rig.mono + 2, rig.wall_ms))
