"""Producer ids of users: successive, below 2**63, apart, and of nobody else."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from logboom.metadata.state.recovery_commands import PRODUCER_IDS
from logboom.metadata.tables.name_rules import MAX_PRODUCER_IDS
from logboom.wire.user_marks import id_of_user, is_id_of_user

USERS = st.text(min_size=1, max_size=64)
NUMBERS = st.integers(1, 2**62)
LAST = (1 << 36) - (1 << 20) - 1


@given(USERS, NUMBERS, st.integers(0, MAX_PRODUCER_IDS - 1))
def test_all_that_is_given_at_once_belongs_to_the_user(user: str, number: int, more: int) -> None:
    first = id_of_user(user, number)
    assert is_id_of_user(user, first + more)
    assert 0 <= first + more < 2**63


@given(USERS, st.integers(1, 10_000))
def test_ids_grow_with_their_numbers(user: str, number: int) -> None:
    assert id_of_user(user, number + 16) == id_of_user(user, number) + 16


def test_the_last_ids_before_they_begin_anew_are_the_users_too() -> None:
    first = id_of_user("alice", LAST)
    assert id_of_user("alice", LAST + 1) < first
    assert all(is_id_of_user("alice", first + more) for more in range(MAX_PRODUCER_IDS))


def test_nobody_elses_ids_are_a_users() -> None:
    names = [f"user-{number}" for number in range(2_000)]
    for name in names:
        assert [other for other in names if is_id_of_user(other, id_of_user(name, 1))] == [name]
    assert not any(is_id_of_user("alice", number) for number in (-1, 0, 1, 1 << 36, 2**63 - 1))


def test_r15_what_a_recovery_or_a_restore_passes_over_is_not_given_again() -> None:
    for jump in (PRODUCER_IDS, 1 << 40):
        ids = sorted(id_of_user("alice", 1 + each * jump) for each in range(1_000))
        gaps = [after - before for before, after in pairwise(ids)]
        assert min(gaps) > MAX_PRODUCER_IDS
