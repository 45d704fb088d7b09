"""A failure tells the events that concern it, and how to see it again."""

from __future__ import annotations

from tests.sim.judges.verdict import SHOWN, Failed, story
from tests.sim.world.trace import BrokenProperty, Trace

EVENTS = [
    "  1.000000 metadata   safe/1 led by broker-2 in 3, ISR broker-1,broker-2",
    "  2.000000 metadata   pair/0 led by broker-3 in 3, ISR broker-3,broker-4",
    "  3.000000 broker-2   is killed, 0 writes lost",
    "  4.000000 broker-4   is killed, 0 writes lost",
    "  5.000000 name-1     leads the raft group in term 2",
    "  6.000000 network    broker-1 <x> broker-4",
    "  7.000000 world      heal everything",
]


def places(detail: str) -> list[int]:
    return [EVENTS.index(event) for event in story(detail, EVENTS)]


def test_the_story_is_about_the_queue_and_its_replicas() -> None:
    assert places("safe/1 17: b'wire-1/4' seen, None stored") == [0, 2, 5, 6]


def test_the_story_is_about_the_nodes_that_are_named() -> None:
    assert places("term 3: name-1, name-2") == [4, 6]


def test_the_story_is_about_the_end_if_nothing_is_named() -> None:
    assert places("it went wrong") == list(range(len(EVENTS)))
    assert len(story("it went wrong", EVENTS * 20)) == SHOWN


def test_a_failure_says_how_to_see_it_again() -> None:
    trace = Trace(lambda: 1.0)
    trace.note("broker-1", "starts")
    broken = BrokenProperty("nothing is lost", "broker-1 lost it")
    failed = Failed(17, "python -m tests.sim.run --seed 17 --rot", broken, trace)
    assert failed.promise == "nothing is lost"
    assert "seed 17 breaks: nothing is lost\nbroker-1 lost it\n" in str(failed)
    assert "broker-1   starts" in str(failed)
    assert str(failed).endswith("again: python -m tests.sim.run --seed 17 --rot")
