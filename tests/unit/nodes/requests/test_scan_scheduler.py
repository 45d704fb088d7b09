"""Pulls with a filter at a broker: from turn to turn, with bounds, past what cannot match."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.nodes.log.storage import WriteSet
from logboom.nodes.replica import pull_filter
from logboom.nodes.requests import scan_scheduler
from logboom.wire.batch import encode_batch, open_batch
from logboom.wire.errors import InvalidFilter, InvalidRequest, NotLeader
from logboom.wire.filters.filter import Filter, selectors
from logboom.wire.filters.tags import MAX_TAGS
from logboom.wire.messages import Pull, Pulled, Stats
from tests.thorough import examples
from tests.unit.nodes.rig import ME, Peer, Rig
from tests.unit.nodes.rig import produce as produced

DEAR = "WHERE price > 3"


def filtered(offset: int = 0, wait_ms: int = 0, wanted: str = DEAR, max_messages: int = 0) -> Pull:
    """A PULL with a filter."""
    return Pull(
        0, 30_000, "flights", 0, offset, 1 << 20, wait_ms, max_messages=max_messages, filter=wanted
    )


def priced(*prices: int) -> bytes:
    """A batch of messages with these prices."""
    headers = [{"price": b"%d" % price} for price in prices]
    return encode_batch([b"v"] * len(prices), headers=headers, now_ms=1)


@pytest.fixture
def rig() -> Rig:
    """A broker that leads one empty queue."""
    rig = Rig()
    rig.lead()
    return rig


def put(rig: Rig, *batches: bytes) -> None:
    """Append batches."""
    producer = rig.client("producer")
    for each in batches:
        producer.ask(produced(), [each])


def told(peer: Peer) -> tuple[str, int, list[bytes] | None]:
    """Status, next offset and matches of the one answer that came."""
    answer = peer.answer()
    assert isinstance(answer, Pulled)
    return answer.status, answer.next_offset, answer.matches


def test_matches_come_with_their_batches(rig: Rig) -> None:
    put(rig, priced(1, 9), priced(1), priced(9, 9))
    reader = rig.client()
    (reply,) = reader.ask(filtered())
    assert len(reply.batches) == 2
    assert told(reader) == ("FOUND", 5, [bytes([0b10]), b""])
    reader.ask(filtered(2))
    assert told(reader) == ("FOUND", 5, [b""])
    reader.ask(filtered(2, wanted="* WHERE price > 99"))
    assert told(reader) == ("NO_MATCHED_MESSAGE", 5, None)
    reader.ask(filtered(5))
    assert told(reader) == ("NO_NEW_MESSAGE", 5, None)
    reader.ask(filtered(6))
    assert told(reader) == ("OFFSET_ILLEGAL", 5, None)


def test_tags_alone_pass_over_batches_and_judge_none(rig: Rig) -> None:
    put(rig, *(encode_batch([b"x"], tags=[tag], now_ms=1) for tag in "abc"))
    reader = rig.client()
    (reply,) = reader.ask(filtered(wanted="b || c"))
    assert len(reply.batches) == 2
    assert told(reader) == ("FOUND", 3, None)
    (reply,) = reader.ask(filtered(wanted="*"))
    assert len(reply.batches) == 3
    reader.taken()
    reader.ask(Pull(0, 1_000, "flights", 0, 0, 1 << 20, 0, tags=["a"]))
    assert told(reader) == ("FOUND", 3, None)


def test_a_wrong_filter_is_refused_even_where_there_is_nothing_to_read(rig: Rig) -> None:
    reader = rig.client()
    reader.ask(filtered(wanted="* WHERE price >", wait_ms=5_000))
    with pytest.raises(InvalidFilter) as caught:
        reader.answer()
    assert caught.value.fields["position"] == 15
    assert caught.value.fields["expression"] == "* WHERE price >"


def test_a_hold_sleeps_through_what_does_not_match(rig: Rig) -> None:
    reader = rig.client()
    asked_at = rig.mono
    assert reader.ask(filtered(wait_ms=5_000)) == []
    put(rig, priced(1), priced(2, 3))
    assert reader.taken() == []
    put(rig, priced(3, 4))
    assert told(reader) == ("FOUND", 5, [bytes([0b10])])
    reader.ask(filtered(5, wait_ms=2_000))
    put(rig, priced(1))
    asked_at = rig.mono
    rig.settle(2.0)
    assert rig.mono == asked_at + 2.0
    # Its position goes on all the same.
    assert told(reader) == ("NO_MATCHED_MESSAGE", 6, None)


def test_a_long_scan_takes_many_turns_and_lets_others_in_between(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_scheduler, "TURN_UNITS", 1)
    monkeypatch.setattr("logboom.nodes.requests.scan_scheduler.SLICE_UNITS", 1)
    put(rig, *(priced(*[1] * 64) for _ in range(20)), priced(9))
    first, second = rig.client("first"), rig.client("second")
    first.ask(filtered(wait_ms=5_000))
    second.ask(filtered(1_216, wait_ms=5_000))
    turns = 0
    while not second.replies:
        assert not first.replies
        assert rig.broker.deadline() == float("-inf")
        rig.turn()
        turns += 1
    assert turns < 10, "the short one did not wait for the long one"
    plain = rig.client("plain")
    plain.ask(Pull(0, 1_000, "flights", 0, 0, 1, 0))
    assert plain.answer().status == "FOUND"
    while not first.replies:
        rig.turn()
        turns += 1
    assert turns > 15
    assert told(first) == ("FOUND", 1_281, [b""])
    assert len(rig.broker.parts.pull_handler.scan_scheduler) == 0


def test_a_pull_that_does_not_wait_gets_what_one_turn_comes_to(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.nodes.requests.scan_scheduler.SLICE_UNITS", 1)
    put(rig, *(priced(*[1] * 64) for _ in range(3)), priced(9))
    reader, at = rig.client(), 0
    for _ in range(3):
        reader.ask(filtered(at))
        status, next_offset, _ = told(reader)
        assert status == "NO_MATCHED_MESSAGE"
        assert at < next_offset <= 192
        at = next_offset


def test_a_scan_tells_how_far_it_came_after_a_second(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.nodes.requests.scan_scheduler.SLICE_UNITS", 1)
    put(rig, *(priced(*[1] * 64) for _ in range(10)))
    reader = rig.client()
    reader.ask(filtered(wait_ms=9_000))
    assert reader.taken() == []
    rig.mono += scan_scheduler.LONGEST
    rig.turn()
    status, next_offset, _ = told(reader)
    assert status == "NO_MATCHED_MESSAGE"
    assert 0 < next_offset < 640


def test_past_its_budget_a_pull_gets_the_rest_unseen(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_filter, "PULL_UNITS", 1)
    put(rig, *(priced(*[1] * 64) for _ in range(3)))
    reader = rig.client()
    assert reader.ask(filtered(wait_ms=9_000)) == []
    rig.turn()
    (reply,) = reader.replies
    assert told(reader) == ("FOUND", 192, None)
    assert len(reply.batches) == 2
    reader.ask(Stats(0, 1_000))
    counters = reader.answer().counters
    assert counters["filter_opened_batches"] == 1
    assert counters["filter_passed_over_bytes"] == len(priced(*[1] * 64))


def owned(epoch: int, group: str = "billing", wait_ms: int = 5_000, wanted: str = "") -> Pull:
    """A member's pull at the end of the queue."""
    return Pull(
        0, 9_000, "flights", 0, 0, 1, wait_ms, group=group, owner_epoch=epoch, filter=wanted
    )


def know_owners(rig: Rig) -> None:
    """Let the broker learn metadata that is newer than the owner epochs of these tests."""
    rig.version = 10
    rig.lead(epoch=2)


def test_an_invented_epoch_locks_no_owner_out(rig: Rig) -> None:
    know_owners(rig)
    owner, stranger = rig.client("owner"), rig.client("stranger")
    assert owner.ask(owned(7)) == []
    assert stranger.ask(owned(2**62)) == []
    put(rig, priced(1))
    assert told(owner)[0] == "FOUND"
    owner.ask(owned(7, wait_ms=0))
    assert told(owner)[0] == "FOUND"


def test_an_older_owner_is_refused_and_what_it_waits_for_ends(rig: Rig) -> None:
    know_owners(rig)
    old, new, other = rig.client("old"), rig.client("new"), rig.client("other")
    assert old.ask(owned(7)) == []
    assert other.ask(owned(3, "shipping")) == []
    assert new.ask(owned(8)) == []
    with pytest.raises(NotLeader) as caught:
        old.answer()
    assert caught.value.code == "STALE_EPOCH"
    assert caught.value.fields == {"group": "billing", "owner_epoch": 8}
    old.ask(owned(7))
    with pytest.raises(NotLeader):
        old.answer()
    put(rig, priced(1))
    assert told(new)[0] == told(other)[0] == "FOUND"


def test_the_scan_of_an_older_owner_ends_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    know_owners(rig)
    monkeypatch.setattr("logboom.nodes.requests.scan_scheduler.SLICE_UNITS", 1)
    put(rig, *(priced(*[1] * 64) for _ in range(9)))
    old, new = rig.client("old"), rig.client("new")
    assert old.ask(owned(7, wanted=DEAR)) == []
    assert new.ask(owned(8, wanted=DEAR)) == []
    with pytest.raises(NotLeader):
        old.answer()


def test_owners_are_forgotten_with_the_role(rig: Rig) -> None:
    know_owners(rig)
    reader = rig.client()
    reader.ask(owned(8, wait_ms=0))
    reader.answer()
    rig.lead(epoch=3)
    reader.ask(owned(7, wait_ms=0))
    assert told(reader)[0] == "NO_NEW_MESSAGE"


def test_a_scan_whose_queue_is_led_elsewhere_is_sent_there(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.nodes.requests.scan_scheduler.SLICE_UNITS", 1)
    put(rig, *(priced(*[1] * 64) for _ in range(9)))
    reader = rig.client()
    assert reader.ask(filtered(wait_ms=5_000)) == []
    rig.lead(epoch=2, leader="broker-2", isr=("broker-2",), replicas=(ME, "broker-2"))
    with pytest.raises(NotLeader) as caught:
        reader.answer()
    assert caught.value.fields["leader"] == "broker-2"


def test_a_damaged_entry_in_a_scan_is_reported() -> None:
    rig = Rig(cache_bytes=1)
    rig.lead()
    put(rig, priced(1), priced(9))
    writes = WriteSet()
    for key, entry in rig.storage.scan("log", b"", b"\xff" * 32):
        writes.put("log", key, entry[:-1] + bytes([entry[-1] ^ 1]))
    rig.storage.write(writes)
    reader = rig.client()
    reader.ask(filtered())
    (reply,) = reader.taken()
    assert reply.error is not None
    assert reply.error.code == "UNAVAILABLE"
    assert rig.broker.stats.counters["damages"] == 1


def read_all(rig: Rig, wanted: Filter, start: int, step: int) -> list[int]:
    """Offsets that a reader gets from `start` on: what the broker said, else judged by itself."""
    reader, matcher, at = rig.client(), wanted.matcher(), start
    found: list[int] = []
    for _ in range(1_000):
        reader.ask(filtered(at, 9_000, wanted.text, max_messages=step))
        while not reader.replies:
            if not len(rig.broker.parts.pull_handler.scan_scheduler):
                return found  # it is held: there is nothing more
            rig.turn()
        (reply,) = reader.taken()
        answer = reply.message
        assert isinstance(answer, Pulled)
        assert answer.next_offset > at
        said = answer.matches or []
        assert len(said) <= len(reply.batches)
        for place, batch in enumerate(reply.batches):
            columns = open_batch(batch)
            if place < len(said) and said[place]:
                picked = selectors(said[place], len(columns))
                assert 1 in picked
            elif place < len(said):
                picked = bytes([1]) * len(columns)
            else:
                picked = matcher.match(columns).selectors()
            offsets = range(columns.base_offset, columns.next_offset)
            found += [n for n, yes in zip(offsets, picked, strict=True) if yes and n >= at]
        at = answer.next_offset
    raise AssertionError("it never comes to an end")


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.lists(st.integers(0, 9) | st.none(), min_size=1, max_size=150), min_size=1, max_size=6
    ),
    st.integers(0, 50),
    st.sampled_from([1, 200, 1_000, 10_000]),
    st.sampled_from([1, 600, 5_000, 500_000]),
    st.integers(0, 5),
    st.booleans(),
)
def test_everything_that_matches_arrives_once_and_nothing_else(
    batches: list[list[int | None]],
    start: int,
    slice_units: int,
    pull_units: int,
    step: int,
    tagged: bool,
) -> None:
    rig = Rig()
    rig.lead()
    prices = [price for batch in batches for price in batch]
    for batch in batches:
        headers = [None if price is None else {"price": b"%d" % price} for price in batch]
        tags = ["odd" if price is not None and price % 2 else None for price in batch]
        data = encode_batch([b"v"] * len(batch), headers=headers, tags=tags, now_ms=1)
        put(rig, data)
    start = min(start, len(prices) - 1)
    wanted = Filter.of("odd" if tagged else None, "price >= 7")
    expected = [
        n
        for n, price in enumerate(prices)
        if n >= start and price is not None and price >= 7 and (price % 2 or not tagged)
    ]
    with (
        patch.object(scan_scheduler, "SLICE_UNITS", slice_units),
        patch.object(pull_filter, "PULL_UNITS", pull_units),
    ):
        assert read_all(rig, wanted, start, step) == expected
    if pull_units == pull_filter.PULL_UNITS:
        assert not rig.broker.stats.counters["filter_unseen_batches"]


def test_a_pull_that_names_very_many_tags_is_refused(rig: Rig) -> None:
    client = rig.client()
    message = filtered(wanted="")
    message.tags = [f"tag {number}" for number in range(MAX_TAGS + 1)]
    client.ask(message)
    with pytest.raises(InvalidRequest, match=r"too many elements.*256"):
        client.answer()
    message.tags.pop()
    client.ask(message)
    assert told(client)[0] == "NO_NEW_MESSAGE"
