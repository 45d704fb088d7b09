"""Owner epochs of groups at a queue's leader: only one that is proven ends the reading of others (G7)."""

from __future__ import annotations

from typing import Final

import pytest

from logboom.wire.access.access_rules import UserKey, UserView, principal_of
from logboom.wire.batch import encode_batch
from logboom.wire.errors import NotLeader
from logboom.wire.features import OWNERS_PROVEN
from logboom.wire.messages import Pull, Pulled
from logboom.wire.owner_proofs import OwnerProver
from tests.unit.nodes.groups.group_rig import GROUP, GroupRig
from tests.unit.nodes.rig import KEY, Peer, Rig
from tests.unit.nodes.rig import produce as produced
from tests.unit.nodes.test_users_at_brokers import Right, alice, allow, rules

READER: Final[list[Right]] = [("read", "topic", "flights"), ("read", "group", GROUP)]
OTHER_KEY: Final = UserKey("desktop", "m" * 40, 0)
VERSION: Final = 1_000
"""Of the metadata: an epoch up to it may be real."""
EXTREMES: Final = (0, 8, 9, VERSION, 2**31, 2**53, 2**62, 2**63 - 1, -1, -(2**63))
PROVER: Final = OwnerProver(KEY)


def pull(epoch: int, proof: bytes = b"", wait_ms: int = 0) -> Pull:
    """A member's pull."""
    return Pull(
        *(0, 9_000, "flights", 0, 0, 1 << 20, wait_ms),
        group=GROUP,
        owner_epoch=epoch,
        owner_proof=proof,
    )


def owned(epoch: int, user: str = "alice", wait_ms: int = 0) -> Pull:
    """The pull of a member that its coordinator gave the queue."""
    return pull(epoch, PROVER.prove(user, GROUP, 1, 0, epoch), wait_ms)


def bench(features: int = OWNERS_PROVEN) -> tuple[Rig, Peer, Peer]:
    """A leader in a cluster of this level, and two users who may read the queue and the group."""
    rig = Rig()
    rig.broker.routes.features = features
    rig.version = VERSION
    rig.lead()
    mallory = UserView("mallory", [OTHER_KEY], rules=rules(*READER), version=VERSION)
    allow(rig, *READER, others=[mallory])
    return rig, alice(rig), rig.client("mallory-1", principal_of("mallory", OTHER_KEY))


def is_refused(peer: Peer, message: Pull) -> bool:
    """True if another member has the queue."""
    (reply,) = peer.ask(message)
    peer.taken()
    if isinstance(reply.error, NotLeader):
        assert reply.error.code == "STALE_EPOCH"
        return True
    assert isinstance(reply.message, Pulled), reply.error
    return False


def test_g7_an_invented_owner_epoch_locks_nobody_out() -> None:
    rig, owner, mallory = bench()
    assert owner.ask(owned(7, wait_ms=5_000)) == []
    for epoch in EXTREMES:
        for proof in (b"", bytes(16), PROVER.prove("alice", GROUP, 1, 0, epoch)):
            assert is_refused(mallory, pull(epoch, proof)) == (epoch < 7)
    assert owner.taken() == [], "its pull is still held"
    assert not is_refused(owner, owned(7))
    rig.client("writer").ask(produced(), [encode_batch([b"v"], now_ms=5)])
    assert not is_refused(owner, owned(7))


def test_g7_nothing_invented_is_kept_before_the_owner_comes() -> None:
    _, owner, mallory = bench()
    for epoch in EXTREMES:
        assert not is_refused(mallory, pull(epoch))
    assert not is_refused(owner, owned(7))


def test_the_proof_of_another_epoch_queue_or_group_is_none() -> None:
    _, owner, _ = bench()
    assert not is_refused(owner, owned(7))
    for group, topic_id, queue, epoch in (
        (GROUP, 1, 0, 7),
        (GROUP, 2, 0, 8),
        (GROUP, 1, 1, 8),
        ("g", 1, 0, 8),
    ):
        proof = PROVER.prove("alice", group, topic_id, queue, epoch)
        assert not is_refused(owner, pull(8, proof))
    assert not is_refused(owner, owned(7))


def test_a_proven_successor_ends_the_reading_of_its_predecessor() -> None:
    _, old, mallory = bench()
    assert old.ask(owned(7, wait_ms=5_000)) == []
    # A broker may hear of the owner before it hears of the version that made it one.
    newer = VERSION + 5
    assert not is_refused(mallory, owned(newer, "mallory"))
    with pytest.raises(NotLeader) as caught:
        old.answer()
    assert caught.value.fields == {"group": GROUP, "owner_epoch": newer}
    assert is_refused(old, owned(7))
    assert is_refused(old, pull(7))


def test_below_the_level_members_of_the_release_before_need_no_proof() -> None:
    _, old, new = bench(OWNERS_PROVEN - 1)
    assert old.ask(pull(7, wait_ms=5_000)) == []
    assert not is_refused(new, pull(2**62))
    assert old.taken() == []
    assert not is_refused(new, pull(8))
    assert [reply.error and reply.error.code for reply in old.taken()] == ["STALE_EPOCH"]


def test_members_get_proofs_with_which_the_leader_keeps_their_epochs() -> None:
    rig = GroupRig(2, brokers=1)
    rig.broker.routes.features = OWNERS_PROVEN
    first = rig.join("a")
    first.beat()
    assert first.assigned is not None
    proofs = dict(zip(first.assigned.queues, first.assigned.proofs, strict=True))
    for each in first.assigned.queues:
        assert PROVER.proves(proofs[each], "", GROUP, each.topic_id, each.queue, each.owner_epoch)
    mine = first.queues[0]
    assert not is_refused(first.peer, pull(mine.owner_epoch, proofs[mine]))
    assert is_refused(rig.client("late"), pull(mine.owner_epoch - 1))
