"""Thousands of pulls that wait at a broker: what they cost in memory, and in a turn."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from logboom.nodes.requests.held_shares import OF_CONNECTION
from logboom.nodes.requests.pull_handler import WAKES
from logboom.wire.actor import Effects, Event, Received
from logboom.wire.base import WireMessage
from logboom.wire.batch import encode_batch
from logboom.wire.frames import decode
from logboom.wire.messages import Failure, Pull, Pulled
from tests.unit.nodes.rig import Peer, Rig, batch, produce, pull

MANY = 3 * WAKES + 7


def wishes(who: Peer, messages: Sequence[WireMessage]) -> list[Received]:
    """Requests of a peer, as they come to the broker."""
    out = Effects()
    mono = who.rig.mono
    for message in messages:
        who.session.request(message, (), None, mono + 100, out, mono)
    return [Received(who.address, send.frames, principal=who.principal) for send in out.sends]


class CountingRig(Rig):
    """A bench that counts what each turn answers to the crowd that waits."""

    def __init__(self) -> None:
        self.crowd: Peer | None = None
        self.answers: list[int] = []
        """One number for each turn."""
        super().__init__()

    def turn(self, *events: Event) -> Effects:
        """One turn; its effects are carried out."""
        effects = super().turn(*events)
        if self.crowd is not None:
            mine = self.crowd.address
            self.answers.append(sum(send.peer == mine for send in effects.sends))
        return effects

    def finish(self) -> list[int]:
        """Go on until nothing is due; the numbers of all turns that have answered anything."""
        while self.broker.deadline() == float("-inf"):
            self.turn()
        return [count for count in self.answers if count]


@pytest.fixture
def rig() -> CountingRig:
    """A leader at which many pulls wait at the end of its queue."""
    rig = CountingRig()
    rig.lead()
    rig.crowd = rig.client("crowd")
    rig.turn(*wishes(rig.crowd, [pull(0, 20_000) for _ in range(MANY)]))
    assert rig.finish() == []
    return rig


def test_a_turn_wakes_some_of_them_and_the_next_turns_the_others(rig: CountingRig) -> None:
    rig.client("producer").ask(produce(), [batch()])
    assert rig.finish() == [WAKES, WAKES, WAKES, 7]
    assert rig.crowd is not None
    answers = [reply.message for reply in rig.crowd.taken()]
    assert {each.status for each in answers if isinstance(each, Pulled)} == {"FOUND"}
    assert len(answers) == MANY


def test_who_asks_meanwhile_is_served_at_once(rig: CountingRig) -> None:
    rig.client("producer").ask(produce(), [batch()])
    assert len(rig.broker.parts.pull_handler.holds) > WAKES
    other = rig.client("other")
    other.ask(pull(0))
    assert other.answer().status == "FOUND"


def test_those_that_expire_together_are_answered_in_turns(rig: CountingRig) -> None:
    rig.mono += 20.0
    rig.turn()
    rig.settle()
    assert rig.finish() == [WAKES, WAKES, WAKES, 7]


def test_those_of_a_lost_leadership_are_told_in_turns(rig: CountingRig) -> None:
    rig.lead(epoch=2, leader="broker-2", isr=("broker-2",), replicas=("broker-1", "broker-2"))
    assert rig.finish() == [WAKES, WAKES, WAKES, 7]
    assert rig.crowd is not None
    errors = [reply.error for reply in rig.crowd.taken()]
    assert {error.code for error in errors if error is not None} == {"NOT_LEADER"}
    assert len(errors) == MANY


def test_scans_and_postponed_pulls_share_the_bytes_of_a_connection() -> None:
    """Each of these has many tags: what waits is bounded by them, not by its number."""
    rig = Rig()
    rig.lead()
    rig.client("producer").ask(produce(), [encode_batch([b"v"], tags=["a"], now_ms=1)])
    tags = [f"{number:08}" * 25 for number in range(256)]
    greedy, modest = rig.client("greedy"), rig.client("modest")
    large = [pull(0, 20_000, tags=tags) for _ in range(100)]
    at_end = [pull(1, 20_000, tags=tags) for _ in range(100)]
    effects = rig.turn(*wishes(greedy, [*large, *at_end]), *wishes(modest, [pull(1, 20_000)]))
    shares = rig.broker.parts.pull_handler.holds
    assert shares.held_bytes <= OF_CONNECTION.size + 1_000
    answers = [decode(send.frames) for send in effects.sends]
    busy = [each for each in answers if isinstance(each, Failure)]
    assert {each.code for each in busy} == {"BUSY"}
    assert all("before you send more" in each.text for each in busy)
    assert all(send.peer == greedy.address for send in effects.sends)


def test_nothing_is_left_in_the_account() -> None:
    rig = Rig()
    rig.lead()
    who = rig.client("who")
    scan = Pull(0, 9_000, "flights", 0, 0, 1 << 20, 5_000, filter="WHERE price > 3")
    rig.turn(*wishes(who, [pull(0, 5_000), scan]))
    rig.client("producer").ask(produce(), [batch(3)])
    for _ in range(9):
        rig.settle(1.0)
    assert rig.broker.parts.pull_handler.holds.held_bytes == 0
