"""Producer ids of users at a broker: nobody writes, or fences, in the name of another user (A6)."""

from __future__ import annotations

import pytest

from logboom.wire.errors import Forbidden
from logboom.wire.features import IDS_OF_USERS
from logboom.wire.messages import Produced
from logboom.wire.user_marks import id_of_user
from tests.unit.nodes.rig import Peer, Rig, batch, produce
from tests.unit.nodes.test_users_at_brokers import alice_and_bob

HERS = id_of_user("alice", 7)
COUNTED = 7
"""An id that was given before ids belonged to users."""


def bench(features: int = IDS_OF_USERS) -> tuple[Rig, Peer, Peer]:
    """A leader of "flights", and two users who may write there."""
    rig = Rig()
    rig.broker.routes.features = features
    rig.lead()
    return rig, *alice_and_bob(rig, ("write", "topic", "flights"))


def send(rig: Rig, peer: Peer, producer: int, epoch: int = 0, sequence: int = 0) -> str:
    """Code of the answer to a batch of one message; "" if it is stored."""
    peer.ask(produce(), [batch(1, producer, epoch, sequence)])
    rig.settle()
    (reply,) = peer.taken()
    if reply.error is not None:
        return reply.error.code
    assert isinstance(reply.message, Produced)
    return ""


def stored(rig: Rig) -> int:
    return rig.replica().end.offset


@pytest.mark.parametrize(("epoch", "sequence"), [(0, 1), (1, 0), (0, 0), (2**31 - 1, 0)])
def test_a6_anothers_batch_neither_takes_a_place_nor_fences(epoch: int, sequence: int) -> None:
    rig, hers, bobs = bench()
    assert send(rig, hers, HERS) == ""
    assert send(rig, bobs, HERS, epoch, sequence) == "FORBIDDEN"
    assert stored(rig) == 1
    assert send(rig, hers, HERS, 0, 1) == ""
    assert stored(rig) == 2


def test_a6_who_comes_first_does_not_count() -> None:
    rig, hers, bobs = bench()
    assert send(rig, bobs, HERS, 5) == "FORBIDDEN"
    assert (send(rig, hers, HERS), stored(rig)) == ("", 1)


def test_the_error_says_what_to_do() -> None:
    _, _, bobs = bench()
    bobs.ask(produce(), [batch(1, HERS, 0, 0)])
    with pytest.raises(Forbidden, match=r"was not given to user 'bob': restart the program"):
        bobs.answer()


def test_ids_of_before_count_below_the_level_and_are_counted() -> None:
    rig, hers, _ = bench(IDS_OF_USERS - 1)
    assert send(rig, hers, COUNTED) == ""
    assert rig.broker.stats.counters["foreign_producer_ids"] == 1
    rig.broker.routes.features = IDS_OF_USERS
    assert send(rig, hers, COUNTED, 0, 1) == "FORBIDDEN"
    assert send(rig, hers, id_of_user("alice", COUNTED)) == ""
    assert send(rig, hers, -1, -1, -1) == ""


def test_on_a_listener_without_keys_any_id_counts() -> None:
    rig, _, _ = bench()
    anybody = rig.client("anybody")
    assert send(rig, anybody, COUNTED) == ""
    assert send(rig, anybody, HERS) == ""
    assert rig.broker.stats.counters["foreign_producer_ids"] == 0
