"""A proof is of one user, group, queue and owner epoch, and only who has the cluster key makes it."""

from __future__ import annotations

import pytest

from logboom.wire.owner_proofs import PROOF_BYTES, OwnerProver

PROVER = OwnerProver(b"cluster key")
OWNED = ("ann", "billing", 3, 0, 17)


def test_a_proof_counts_for_what_it_was_made() -> None:
    proof = PROVER.prove(*OWNED)
    assert len(proof) == PROOF_BYTES
    assert OwnerProver(b"cluster key").proves(proof, *OWNED)


@pytest.mark.parametrize(
    "other",
    [
        ("bob", "billing", 3, 0, 17),
        ("", "billing", 3, 0, 17),
        ("ann", "shipping", 3, 0, 17),
        ("annb", "illing", 3, 0, 17),
        ("ann", "billing", 4, 0, 17),
        ("ann", "billing", 3, 1, 17),
        ("ann", "billing", 3, 0, 18),
        ("ann", "billing", 3, 0, 2**62),
        ("ann", "billing", 3, 0, -(2**63)),
    ],
)
def test_a_proof_counts_for_nothing_else(other: tuple[str, str, int, int, int]) -> None:
    assert not PROVER.proves(PROVER.prove(*OWNED), *other)


@pytest.mark.parametrize("cut", [b"", b"x", bytes(PROOF_BYTES)])
def test_what_is_no_proof_proves_nothing(cut: bytes) -> None:
    assert not PROVER.proves(cut, *OWNED)


@pytest.mark.parametrize("key", [b"", b"another key"])
def test_others_cannot_make_one(key: bytes) -> None:
    assert not PROVER.proves(OwnerProver(key).prove(*OWNED), *OWNED)


def test_while_the_key_is_changed_both_count() -> None:
    old, new = OwnerProver(b"old"), OwnerProver(b"new")
    old.take_cluster_keys((b"old", b"new"))
    new.take_cluster_keys((b"new", b"old"))
    assert old.prove(*OWNED) != new.prove(*OWNED)
    assert old.proves(new.prove(*OWNED), *OWNED)
    assert new.proves(old.prove(*OWNED), *OWNED)
    new.take_cluster_keys((b"new",))
    assert not new.proves(old.prove(*OWNED), *OWNED)
