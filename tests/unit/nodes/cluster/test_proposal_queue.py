"""Proposals go to the raft leader and keep their number until they are decided (Q6)."""

from __future__ import annotations

from logboom.wire.commands import StepDown
from logboom.wire.errors import NotLeader
from tests.unit.nodes.rig import Rig


def test_a_proposal_keeps_its_number_until_it_has_its_result() -> None:
    rig = Rig()
    rig.lead()
    rig.call_stop()
    first, command = rig.commands.pop(0)
    assert isinstance(command, StepDown)
    rig.refuse(first, NotLeader("an election is on", leader=None))
    rig.settle(0.11)
    second, again = rig.commands[0]
    assert (second.proposer, second.number, again) == (first.proposer, first.number, command)


def test_a_proposal_that_nobody_answers_is_sent_again() -> None:
    rig = Rig()
    rig.lead()
    rig.call_stop()
    assert len(rig.commands) == 1
    rig.settle(1.7)
    assert len({(p.proposer, p.number) for p, _ in rig.commands}) == 1
    assert len(rig.commands) >= 2
