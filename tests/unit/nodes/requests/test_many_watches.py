"""Many watches of clients at a broker: a turn answers some of them, and builds equal views once."""

from __future__ import annotations

import pytest

from logboom.nodes.requests.client_watch_handler import TURN_ANSWERS
from logboom.wire.actor import Effects, Event, PeerAddress, Received
from logboom.wire.frames import decode
from logboom.wire.messages import Failure, Watch, WatchResult
from tests.unit.nodes.rig import Peer, Rig

CROWD = PeerAddress("main", b"crowd")
MANY = 2 * TURN_ANSWERS + 5


def arrivals(crowd: Peer, version: int) -> list[Received]:
    """Watches of a crowd, as they come to the broker."""
    out, mono = Effects(), crowd.rig.mono
    for _ in range(MANY):
        ask = Watch(0, 60_000, version, None, 50_000)
        crowd.session.request(ask, (), None, mono + 60, out, mono)
    return [Received(crowd.address, send.frames) for send in out.sends]


class CountingRig(Rig):
    """A bench that counts the answers to watches of each turn."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        super().__init__()

    def turn(self, *events: Event) -> Effects:
        """One turn; its effects are carried out."""
        effects = super().turn(*events)
        answers = [decode(send.frames) for send in effects.sends if send.peer == CROWD]
        self.answers.append(sum(isinstance(each, WatchResult | Failure) for each in answers))
        return effects

    def finish(self) -> list[int]:
        """Go on until nothing is due; the numbers of all turns that have answered any."""
        while self.broker.deadline() == float("-inf"):
            self.turn()
        found, self.answers = [count for count in self.answers if count], []
        return found


@pytest.fixture
def rig() -> CountingRig:
    """A broker that knows a topic."""
    rig = CountingRig()
    rig.lead()
    rig.finish()
    return rig


def test_full_views_are_sent_in_turns(rig: CountingRig) -> None:
    crowd = rig.client("crowd")
    rig.turn(*arrivals(crowd, -1))
    assert rig.finish() == [TURN_ANSWERS, TURN_ANSWERS, 5]
    answers = [reply.message for reply in crowd.taken()]
    versions = [each.view.version for each in answers if isinstance(each, WatchResult)]
    assert versions == [rig.version] * MANY


def test_a_change_wakes_them_in_turns(rig: CountingRig) -> None:
    crowd = rig.client("crowd")
    rig.turn(*arrivals(crowd, rig.version))
    assert rig.finish() == []
    rig.lead(epoch=2)
    assert rig.finish() == [TURN_ANSWERS, TURN_ANSWERS, 5]
    assert rig.broker.deadline() != float("-inf")


def test_those_that_expire_together_are_answered_in_turns(rig: CountingRig) -> None:
    crowd = rig.client("crowd")
    rig.turn(*arrivals(crowd, rig.version))
    assert rig.finish() == []
    rig.mono += 50.0
    rig.turn()
    rig.settle()
    assert rig.finish() == [TURN_ANSWERS, TURN_ANSWERS, 5]
