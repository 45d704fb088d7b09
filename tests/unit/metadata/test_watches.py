"""Held watches: what many strangers together may keep waiting is bounded."""

from __future__ import annotations

from logboom.metadata.watch.held_watches import MAX_NAME_BYTES, MAX_NAMES, HeldWatch, HeldWatches
from logboom.wire.actor import PeerAddress

ME = PeerAddress("main", b"me")


def test_one_watch_that_is_sent_again_and_again_leaves_no_weight_behind() -> None:
    watches = HeldWatches()
    for number in range(10_000):
        assert watches.add(HeldWatch(ME, 1, 1, frozenset({"a"}), 60.0 + number))
    assert len(watches) == 1
    assert len(watches._deadlines) < 200  # noqa: SLF001 - the weight is inside
    assert len(watches.take_due(60.0 + 9_999)) == 1


def test_names_that_are_waited_for_are_bounded_together() -> None:
    watches = HeldWatches()
    names = frozenset(str(number) for number in range(MAX_NAMES // 10))
    holds = [HeldWatch(ME, number, 1, names, 60.0) for number in range(11)]
    assert [watches.add(hold) for hold in holds] == [True] * 10 + [False]
    # The same one sent again takes no more.
    assert watches.add(holds[0])
    watches.forget([ME])
    assert all(watches.add(hold) for hold in holds[:10])


def test_the_memory_of_names_is_bounded_whatever_their_length() -> None:
    watches = HeldWatches()
    topic, group = "x" * (MAX_NAME_BYTES // 16), "y" * (MAX_NAME_BYTES // 16)
    holds = [
        HeldWatch(ME, number, 1, frozenset({topic}), 60.0, frozenset({group}))
        for number in range(9)
    ]
    assert [watches.add(hold) for hold in holds] == [True] * 8 + [False]
    assert watches.add(holds[0])
    assert len(watches.take_woken(2, {topic}, everybody=False)) == 8
    assert all(watches.add(hold) for hold in holds[:8])
    assert not watches.add(HeldWatch(ME, 9, 1, frozenset({"a"}), 60.0))


def test_names_beyond_ascii_count_as_wide_as_they_are_held() -> None:
    watches = HeldWatches()
    name = "\N{ROCKET}" + "x" * (MAX_NAME_BYTES // 8)
    holds = [HeldWatch(ME, number, 1, frozenset({name}), 60.0) for number in range(2)]
    assert [watches.add(hold) for hold in holds] == [True, False]
