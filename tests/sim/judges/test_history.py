"""The checker objects to each broken promise: it is shown one of each."""

from __future__ import annotations

import pytest

from logboom.nodes.log.keys import log_key
from logboom.wire.batch import encode_batch, stamp
from tests.sim.judges.history import History, Queue
from tests.sim.world.trace import BrokenProperty, Trace

QUEUE = Queue("t", 0)


def history(*sent: bytes) -> History:
    made = History(Trace(lambda: 0.0))
    for value in sent:
        made.send(QUEUE, value)
    return made


def log(*batches: list[bytes], gap_at: int = -1) -> dict[bytes, bytes]:
    """A log of these batches; the one after `gap_at` begins one offset late."""
    entries: dict[bytes, bytes] = {}
    offset = 0
    for number, values in enumerate(batches):
        offset += number == gap_at
        entries[log_key(1, 0, offset)] = stamp(encode_batch(values, now_ms=5), offset, 1, 5)
        offset += len(values)
    return entries


def test_a_clean_run_passes() -> None:
    seen = history(b"p/0", b"p/1", b"p/2")
    seen.ack(b"p/0", QUEUE, 0)
    seen.ack(b"p/1", QUEUE, 1)
    seen.read("r", QUEUE, [(0, b"p/0")])
    seen.read("r", QUEUE, [(1, b"p/1")])
    assert seen.unanswered() == [b"p/2"]
    whole = log([b"p/0", b"p/1"], [b"p/2"])
    seen.compare(QUEUE, {"a": whole, "b": dict(whole)})


def test_a_lost_message_is_seen() -> None:
    seen = history(b"p/0", b"p/1")
    seen.ack(b"p/1", QUEUE, 1)
    with pytest.raises(BrokenProperty, match="nothing acknowledged is lost"):
        seen.compare(QUEUE, {"a": log([b"p/0"])})


def test_an_overwritten_message_is_seen() -> None:
    seen = history(b"p/0", b"p/1")
    seen.ack(b"p/0", QUEUE, 0)
    with pytest.raises(BrokenProperty, match="nothing acknowledged is lost"):
        seen.compare(QUEUE, {"a": log([b"p/1"], [b"p/0"])})


def test_a_read_that_is_gone_is_seen() -> None:
    seen = history(b"p/0")
    seen.read("r", QUEUE, [(0, b"p/0")])
    with pytest.raises(BrokenProperty, match="reads are final"):
        seen.compare(QUEUE, {"a": {}})


def test_a_doubled_message_is_seen() -> None:
    with pytest.raises(BrokenProperty, match="nothing is doubled"):
        history(b"p/0").compare(QUEUE, {"a": log([b"p/0"], [b"p/0"])})


def test_a_swap_is_seen() -> None:
    with pytest.raises(BrokenProperty, match="order holds"):
        history(b"p/0", b"p/1").compare(QUEUE, {"a": log([b"p/1"], [b"p/0"])})


def test_a_gap_is_seen() -> None:
    with pytest.raises(BrokenProperty, match="gap-free"):
        history(b"p/0", b"p/1").compare(QUEUE, {"a": log([b"p/0"], [b"p/1"], gap_at=1)})


def test_a_message_from_nowhere_is_seen() -> None:
    with pytest.raises(BrokenProperty, match="what is stored was sent"):
        history().compare(QUEUE, {"a": log([b"p/0"])})


def test_replicas_that_differ_are_seen() -> None:
    one, other = log([b"p/0"], [b"p/1"]), log([b"p/0"])
    with pytest.raises(BrokenProperty, match="byte for byte"):
        history(b"p/0", b"p/1").compare(QUEUE, {"a": one, "b": other})


def test_a_flipped_byte_is_seen() -> None:
    whole = log([b"p/0"])
    key = log_key(1, 0, 0)
    whole[key] = whole[key][:-1] + b"\xff"
    with pytest.raises(BrokenProperty, match="entries are whole"):
        history(b"p/0").compare(QUEUE, {"a": whole})


def test_two_values_at_one_offset_are_seen() -> None:
    seen = history(b"p/0", b"p/1")
    seen.ack(b"p/0", QUEUE, 0)
    with pytest.raises(BrokenProperty, match="one value per offset"):
        seen.read("r", QUEUE, [(0, b"p/1")])


@pytest.mark.parametrize("offset", [0, 2])
def test_a_reader_that_is_sent_back_or_forth_is_seen(offset: int) -> None:
    seen = history(b"p/0", b"p/1", b"p/2")
    seen.read("r", QUEUE, [(0, b"p/0")])
    with pytest.raises(BrokenProperty, match="once, in order"):
        seen.read("r", QUEUE, [(offset, b"p/1")])


def test_two_outcomes_are_seen() -> None:
    seen = history(b"p/0")
    seen.ack(b"p/0", QUEUE, 0)
    with pytest.raises(BrokenProperty, match="one outcome"):
        seen.ack(b"p/0", QUEUE, 1)


def test_an_end_offset_that_goes_back_is_seen() -> None:
    seen = history()
    seen.end("r", QUEUE, 5, seen.known_end(QUEUE))
    with pytest.raises(BrokenProperty, match="never go back"):
        seen.end("r", QUEUE, 4, seen.known_end(QUEUE))


def test_an_end_offset_below_an_ack_is_seen() -> None:
    seen = history(b"p/0")
    early = seen.known_end(QUEUE)
    seen.ack(b"p/0", QUEUE, 0)
    seen.end("r", QUEUE, 0, early)
    with pytest.raises(BrokenProperty, match="never go back"):
        seen.end("r", QUEUE, 0, seen.known_end(QUEUE))


def test_a_rewound_reader_is_seen() -> None:
    with pytest.raises(BrokenProperty, match="never rewinds"):
        history().illegal("r", QUEUE, 7, 5)


def test_only_acks_leader_may_leave_a_batch_twice_and_stays_in_order() -> None:
    for acks in ("leader", "none"):
        seen = history(b"p/0", b"p/1")
        seen.loose[b"p"] = acks
        doubled = {"a": log([b"p/0"], [b"p/0"], [b"p/1"])}
        if acks == "leader":
            seen.compare(QUEUE, doubled)
        else:
            with pytest.raises(BrokenProperty, match="nothing is doubled"):
                seen.compare(QUEUE, doubled)
    late = history(b"p/0", b"p/1")
    late.loose[b"p"] = "leader"
    with pytest.raises(BrokenProperty, match="order holds"):
        late.compare(QUEUE, {"a": log([b"p/1"], [b"p/0"])})
    again = history(b"p/0", b"p/1", b"p/2")
    again.loose[b"p"] = "leader"
    with pytest.raises(BrokenProperty, match="order holds"):
        again.compare(QUEUE, {"a": log([b"p/0"], [b"p/2"], [b"p/0"], [b"p/1"])})
    late.loose[b"p"] = "none"
    late.compare(QUEUE, {"a": log([b"p/1"], [b"p/0"])})


def test_a_reader_is_sent_ahead_by_retention_alone() -> None:
    seen = history(b"p/0")
    seen.kept_bytes[QUEUE.topic] = 10
    seen.starts = {QUEUE: 7}
    seen.illegal("r", QUEUE, 3, 7)
    assert seen.place("r", QUEUE) == 7
    with pytest.raises(BrokenProperty, match="never rewinds"):
        seen.illegal("r", QUEUE, 7, 5)


def test_a_reader_that_is_sent_beyond_what_retention_removed_is_seen() -> None:
    seen = history(b"p/0")
    seen.kept_bytes[QUEUE.topic] = 10
    for starts in ({}, {QUEUE: 6}):
        seen.starts = starts
        with pytest.raises(BrokenProperty, match="sent ahead by retention alone"):
            seen.illegal("r", QUEUE, 3, 7)
    assert seen.place("r", QUEUE) == 0


def test_retention_that_removes_too_much_is_seen() -> None:
    whole = log([b"p/0"], [b"p/1"])
    rest = {"a": dict(list(whole.items())[1:])}
    size = sum(map(len, rest["a"].values()))
    seen = history(b"p/0", b"p/1")
    seen.kept_bytes[QUEUE.topic] = size
    seen.compare(QUEUE, rest)
    seen.kept_bytes[QUEUE.topic] = size + 1
    with pytest.raises(BrokenProperty, match="retention keeps"):
        seen.compare(QUEUE, rest)
