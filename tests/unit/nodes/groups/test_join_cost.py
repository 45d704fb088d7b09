"""A join with filters for many topics costs no turn too much; it is read in parts."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import pytest

from logboom.nodes.groups.pending_joins import MOST_BYTES
from logboom.wire.errors import InvalidFilter
from logboom.wire.group_commands import JoinGroup
from logboom.wire.group_messages import GroupJoined
from tests.unit.nodes.groups.group_rig import GroupRig, Member
from tests.unit.nodes.rig import answering, asking
from tests.unit.nodes.test_users_at_brokers import Right, alice, allow
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


def joined(rig: GroupRig) -> list[str]:
    """The members whose joins were proposed and not answered yet."""
    return [command.member for _, command in rig.commands if isinstance(command, JoinGroup)]


@pytest.mark.parametrize("length", LENGTHS)
def test_no_join_makes_a_turn_last(length: str) -> None:
    topics = subscription(LENGTHS[length])

    def begin() -> Callable[[], bool]:
        rig = GroupRig(brokers=1)
        rig.deciding = False
        member = Member(rig, "a")
        events = asking(member.peer, member.joining(subscription=topics))
        gc.collect()
        gc.freeze()

        def step() -> bool:
            rig.turn(*events)
            events.clear()
            assert not member.peer.taken()
            return not joined(rig)

        return step

    assert longest_ms(begin, MOST_MS) <= MOST_MS


def test_many_joins_that_cannot_be_read_make_no_turn_last() -> None:
    long = subscription(LENGTHS["long"])["t0"]

    def begin() -> Callable[[], bool]:
        rig = GroupRig(brokers=1)
        member = Member(rig, "a")
        joining = [member.joining(subscription={"t": f"{long} OR {n} ="}) for n in range(20)]
        return answering(member.peer, *joining)

    assert longest_ms(begin, MOST_MS) <= MOST_MS


def test_a_join_with_many_filters_is_carried_out_in_the_end() -> None:
    rig = GroupRig(brokers=1)
    topics = subscription(LENGTHS["medium"])
    assert len(topics) > 100
    Member(rig, "a").join(subscription=topics)
    assert list(rig.group.subscription) == sorted(topics)
    assert rig.group.subscription["t7"].startswith("* WHERE b = 7 OR a1 = 1")


def test_a_filter_that_cannot_be_read_is_named_though_others_were_read_before() -> None:
    rig = GroupRig(brokers=1)
    topics = {**subscription(LENGTHS["medium"]), "z": "WHERE a =="}
    with pytest.raises(InvalidFilter) as caught:
        Member(rig, "a").join(subscription=topics)
    assert caught.value.fields["topic"] == "z"
    assert not joined(rig)


@pytest.mark.parametrize("users", [("", ""), ("honest", "hostile")])
def test_who_has_many_filters_read_keeps_no_other_from_joining(users: tuple[str, str]) -> None:
    rig = GroupRig(brokers=1)
    honest, hostile = Member(rig, "a"), Member(rig, "b")
    for each, user in zip((honest, hostile), users, strict=True):
        session = rig.broker.acceptor.peer(each.peer.address)
        assert session is not None
        session.user = user
    topics = subscription(LENGTHS["long"])
    honest.peer.ask(honest.joining(subscription=topics))
    for number in range(80 * len(topics)):
        text = f"WHERE a = '{number:08000}'"
        joining = hostile.joining(subscription={"flights": text})
        hostile.peer.ask(msgspec.structs.replace(joining, group="theirs"))
        rig.turn()
        for reply in honest.peer.taken() if number % 80 == 79 else ():
            if isinstance(reply.message, GroupJoined):
                return
            honest.peer.ask(honest.joining(subscription=topics))
    raise AssertionError("the join was not carried out")


def test_the_same_filter_for_all_topics_is_read_once() -> None:
    rig = GroupRig(brokers=1)
    text = subscription(LENGTHS["short"])["t0"]
    rig.join("a", subscription={f"t{number}": text for number in range(900)})
    assert len(rig.group.subscription) == 900


def test_many_joins_with_many_topics_that_have_waited_make_no_turn_last() -> None:
    long, topics = subscription(LENGTHS["long"])["t0"], dict.fromkeys(subscription(1), "")

    def begin() -> Callable[[], bool]:
        rig = GroupRig(brokers=1)
        rig.deciding = False
        rights: list[Right] = [("read", "topic", "*"), ("read", "group", "*")]
        allow(rig, *rights)
        peer = alice(rig)
        members = [Member(rig, f"m-{number}") for number in range(20)]
        for _ in range(4):
            # Until all rights are decided.
            peer.ask(members[0].joining(subscription=topics))
        before = len(joined(rig))
        assert before == 1
        first = members[0].joining(subscription={"t": f"{long} OR x = 1"})
        joins = [first, *(each.joining(subscription=topics) for each in members[1:])]
        arrived = asking(peer, *joins)
        gc.collect()
        gc.freeze()

        def step() -> bool:
            # What arrives costs what it costs: one at a time.
            rig.turn(*arrived[:1])
            del arrived[:1]
            return bool(rig.broker.parts.long_requests.deadline() < 0 or arrived)

        return step

    assert longest_ms(begin, MOST_MS) <= MOST_MS
