"""Sessions of brokers: who is silent alone is fenced; a silence of all, or of the leader, is not counted."""

from __future__ import annotations

from logboom.metadata.config import SESSION_TIMEOUT_S
from logboom.metadata.duties.liveness import COMMON_S, Liveness
from logboom.metadata.tables.cluster_state import BrokerRegistration


def broker(name: str, epoch: int = 1) -> BrokerRegistration:
    return BrokerRegistration(name, "s", "i", "e:1", "", epoch, alive=True, version=0)


A, B, C = broker("a"), broker("b"), broker("c")


def begun(*brokers: BrokerRegistration) -> Liveness:
    liveness = Liveness()
    liveness.grant_all(brokers, 0.0)
    return liveness


def expired(liveness: Liveness, now: float) -> list[str]:
    return [name for name, _ in liveness.take_expired(now)]


def test_who_is_silent_alone_is_fenced_after_a_session() -> None:
    liveness = begun(A, B, C)
    for now in (1.0, 2.0, 2.9):
        assert liveness.heard(B, now)
        assert liveness.heard(C, now)
    assert liveness.deadline() == SESSION_TIMEOUT_S
    assert expired(liveness, 2.99) == []
    assert expired(liveness, SESSION_TIMEOUT_S) == ["a"]
    assert not liveness.heard(A, 3.1)


def test_two_of_three_are_fenced_while_the_third_is_heard() -> None:
    liveness = begun(A, B, C)
    liveness.heard(C, 2.0)
    assert expired(liveness, 3.0) == ["a", "b"]


def test_a_silence_of_all_lasts_longer_and_the_first_to_return_renews_the_others() -> None:
    liveness = begun(A, B, C)
    assert expired(liveness, 4.0) == []
    assert liveness.deadline() == SESSION_TIMEOUT_S + COMMON_S
    assert liveness.heard(B, 4.0)
    assert expired(liveness, 4.0) == []
    liveness.heard(B, 6.5)
    liveness.heard(C, 6.5)
    assert expired(liveness, 6.9) == []
    assert expired(liveness, 7.0) == ["a"], "it is dead: it had a session more"


def test_a_silence_of_all_is_bounded() -> None:
    liveness = begun(A, B, C)
    assert expired(liveness, SESSION_TIMEOUT_S + COMMON_S - 0.1) == []
    assert expired(liveness, SESSION_TIMEOUT_S + COMMON_S) == ["a", "b", "c"]


def test_a_lone_broker_has_no_longer_session() -> None:
    assert expired(begun(A), SESSION_TIMEOUT_S) == ["a"]


def test_a_registration_is_a_sign_of_life_of_all() -> None:
    liveness = begun(A, B)
    liveness.follow([broker("a", 2), B], 5.0)
    assert expired(liveness, 5.0) == []
    liveness.heard(broker("a", 2), 7.0)
    assert expired(liveness, 8.0) == ["b"]


def test_stalls_of_the_leader_are_not_counted_up_to_a_session() -> None:
    liveness = begun(A, B)
    for second in range(1, 12):
        liveness.heard(B, float(second))
        liveness.forgive(0.1, float(second))
        if second == 2:
            liveness.forgive(1.5, 2.0)
    assert expired(liveness, 4.4) == []
    assert expired(liveness, 4.5) == ["a"]
    liveness = begun(A, B)
    for second in range(1, 6):
        liveness.heard(B, float(second))
        liveness.forgive(1.0, float(second))
    assert expired(liveness, 5.9) == []
    assert expired(liveness, 6.0) == ["a"], "a leader that is always slow notices who is dead"
