"""Owner epochs that a leader has seen: the newest wins, and none fill its memory."""

from __future__ import annotations

import pytest

from logboom.nodes.requests import owner_epochs
from logboom.nodes.requests.owner_epochs import LONGEST_NAME, OwnerEpochs
from logboom.wire.errors import InvalidRequest, NotLeader

QUEUE, OTHER = (1, 0), (1, 1)


def real() -> bool:
    return True


def invented() -> bool:
    return False


def test_the_newest_epoch_of_each_group_and_queue_wins() -> None:
    seen = OwnerEpochs()
    assert not seen.admit(QUEUE, "billing", 5, real)
    assert not seen.admit(QUEUE, "billing", 5, real)
    assert seen.admit(QUEUE, "billing", 7, real)
    with pytest.raises(NotLeader) as caught:
        seen.admit(QUEUE, "billing", 6, real)
    assert caught.value.fields["owner_epoch"] == 7
    assert not seen.admit(QUEUE, "shipping", 1, real)
    assert not seen.admit(OTHER, "billing", 1, real)
    assert len(seen) == 3
    seen.forget(QUEUE)
    assert not seen.admit(QUEUE, "billing", 1, real)
    assert len(seen) == 2


def test_what_was_asked_for_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_epochs, "MAX_OWNER_EPOCHS", 4)
    seen = OwnerEpochs()
    for group in ("a", "b", "c"):
        seen.admit(QUEUE, group, 9, real)
    seen.admit(OTHER, "a", 9, real)
    seen.admit(QUEUE, "c", 9, real)
    seen.admit(QUEUE, "d", 9, real)
    assert len(seen) == 4
    assert not seen.admit(OTHER, "a", 1, real)  # forgotten
    with pytest.raises(NotLeader):
        seen.admit(QUEUE, "c", 8, real)


def test_no_group_has_such_a_name() -> None:
    with pytest.raises(InvalidRequest):
        OwnerEpochs().admit(QUEUE, "x" * (LONGEST_NAME + 1), 1, real)


def test_an_invented_epoch_locks_nobody_out_and_is_not_remembered() -> None:
    seen = OwnerEpochs()
    assert not seen.admit(QUEUE, "billing", 5, real)
    for epoch in (6, 2**31, 2**53, 2**62, 2**63 - 1):
        assert not seen.admit(QUEUE, "billing", epoch, invented)
        assert not seen.admit(OTHER, f"group {epoch}", epoch, invented)
    assert len(seen) == 1
    # The owner reads on, and its successor takes over.
    assert not seen.admit(QUEUE, "billing", 5, invented)
    assert seen.admit(QUEUE, "billing", 6, real)
    with pytest.raises(NotLeader):
        seen.admit(QUEUE, "billing", 5, real)
