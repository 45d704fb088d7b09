"""A join with filters for many topics costs no turn too much; it is carried out once all are read."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from logboom.nodes.groups.pending_joins import MOST_BYTES
from logboom.wire.errors import Unavailable
from logboom.wire.group_messages import GroupJoined
from tests.unit.nodes.groups.group_rig import GroupRig, Member
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
LENGTHS: Final = {"tiny": 1, "short": 40, "medium": 300, "long": 1_500, "longest": 4_000}


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def subscription(length: int) -> dict[str, str]:
    """As many topics as a join may name, each with a filter of its own of about so many characters."""
    found: dict[str, str] = {}
    room = MOST_BYTES - 100
    for number in range(1_024):
        text = f"t{number}"
        if length > 8:
            terms = [f"b={number}"]
            while len(" OR ".join(terms)) < length - 20 and len(terms) < 190:
                terms.append(f"a{len(terms) if length < 3_000 else 'a' * 14}=1")
            text = f"WHERE {' OR '.join(terms)}"
        room -= len(text) + 14
        if room < 0:
            break
        found[f"t{number}"] = text
    return found


@pytest.mark.parametrize("length", LENGTHS)
def test_no_join_makes_a_turn_last(length: str) -> None:
    topics = subscription(LENGTHS[length])

    def begin() -> Callable[[], bool]:
        rig = GroupRig(brokers=1)
        rig.deciding = False
        member = Member(rig, "a")
        joining = member.joining(subscription=topics)
        gc.collect()
        gc.freeze()

        def step() -> bool:
            member.peer.ask(joining)
            replies = member.peer.taken()
            assert all(isinstance(each.error, Unavailable) for each in replies)
            return bool(replies)

        return step

    assert longest_ms(begin, MOST_MS) <= MOST_MS


def test_a_join_with_many_filters_is_carried_out_in_the_end() -> None:
    rig = GroupRig(brokers=1)
    topics = subscription(LENGTHS["medium"])
    member = Member(rig, "a")
    for _ in range(100):
        member.peer.ask(member.joining(subscription=topics))
        reply = member.peer.taken()[0]
        if reply.error is None:
            break
        assert (type(reply.error), reply.error.code) == (Unavailable, "BUSY")
    assert isinstance(reply.message, GroupJoined)
    assert list(rig.group.subscription) == sorted(topics)
    assert rig.group.subscription["t7"].startswith("* WHERE b = 7 OR a1 = 1")


def test_the_same_filter_for_all_topics_is_read_once() -> None:
    rig = GroupRig(brokers=1)
    text = subscription(LENGTHS["short"])["t0"]
    rig.join("a", subscription={f"t{number}": text for number in range(900)})
    assert len(rig.group.subscription) == 900
