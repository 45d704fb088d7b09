"""What a turn of the broker costs: its parts are stepped when something is due."""

from __future__ import annotations

import pytest

from logboom.nodes.maintenance import Maintenance
from logboom.nodes.turn import BrokerTurn
from logboom.wire.messages import Produced
from tests.unit.nodes.rig import Rig, batch, produce


def test_requests_and_syncs_alone_step_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped: list[float] = []
    step = Maintenance.step

    def noted(maintenance: Maintenance, turn: BrokerTurn) -> None:
        stepped.append(turn.mono)
        step(maintenance, turn)

    monkeypatch.setattr(Maintenance, "step", noted)
    rig = Rig()
    rig.lead()
    client = rig.client()
    rig.settle(1.0)
    stepped.clear()
    client.ask(produce(), [batch(1)])
    assert isinstance(client.answer(), Produced)
    assert stepped == []
    due = rig.broker.deadline()
    assert due is not None
    rig.settle(due - rig.mono)
    assert due in stepped


def test_a_turn_of_an_answer_steps_all(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped: list[float] = []
    monkeypatch.setattr(Maintenance, "step", lambda _, turn: stepped.append(turn.mono))
    rig = Rig()
    rig.settle(0.1)
    stepped.clear()
    rig.lead()
    assert stepped
