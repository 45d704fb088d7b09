"""Searches for a time or a key cost little, whatever the log holds, and leave room for others'."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from logboom.nodes.log.index import LOOKUP_BYTES
from logboom.nodes.log.index_rows import LOOKUP_BLOCKS
from logboom.nodes.log.keys import queue_key
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.opened_bytes import PEER_BYTES
from logboom.wire.base import WireMessage
from logboom.wire.batch import encode_batch
from logboom.wire.errors import Unavailable
from logboom.wire.head import CRC_START, HEAD_LENGTH, MAGIC, PREFIX, TAIL, VERSION
from logboom.wire.messages import FindKey, OffsetForTime, OffsetForTimeResult
from logboom.wire.subscription_messages import Subscribe, SubscriptionConfig
from logboom.wire.validation import crc32c, extend
from tests.unit.nodes.rig import Rig, asking, batch, produce
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
LAST_MS: Final = 1_000_000
"""The time of the last message of a log here."""
COUNT: Final = 65_536


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def one_large_batch(rig: Rig) -> None:
    """Its last message alone is of the time that is looked for; it opens to some MiB."""
    times = [*range(COUNT - 1), LAST_MS]
    values: list[bytes | None] = [b"%d" % at for at in range(COUNT)]
    keys: list[bytes | None] = [b"k%d" % at for at in range(COUNT)]
    data = encode_batch(values, keys, timestamps_ms=times, now_ms=5, codec="zstd")
    rig.client("producer").ask(produce(), [data])


def one_that_opens(rig: Rig) -> None:
    """Its few bytes open to some MiB."""
    times = [0] * (COUNT - 1) + [LAST_MS]
    data = encode_batch([b""] * COUNT, timestamps_ms=times, now_ms=5, codec="zstd")
    rig.client("producer").ask(produce(), [data])


def many_small_batches(rig: Rig) -> None:
    """The index does not know their times, as that of an older release."""
    producer = rig.client("producer")
    for at in range(5_000):
        times = LAST_MS if at == 4_999 else at
        producer.ask(produce(), [encode_batch([b"v"], timestamps_ms=times, now_ms=5)])


LOGS: dict[str, Callable[[Rig], object]] = {
    "one large batch": one_large_batch,
    "many small batches": many_small_batches,
}


def led(fill: Callable[[Rig], object]) -> Rig:
    """A broker that leads a queue with such a log."""
    rig = Rig()
    rig.lead()
    fill(rig)
    rig.settle()
    gc.collect()
    gc.freeze()
    return rig


def forget_times(rig: Rig) -> None:
    """Nothing is left of earlier lookups, as after the update of an older release."""
    writes = WriteSet()
    writes.delete_range("index", queue_key(1, 0, b"m"), queue_key(1, 0, b"n"))
    rig.storage.write(writes)
    rig.replica().index._passed.clear()  # noqa: SLF001 - no message does it


def look(at_ms: int = LAST_MS) -> OffsetForTime:
    """A search for a time."""
    return OffsetForTime(0, 1_000, "flights", 0, at_ms)


@pytest.mark.parametrize("log", LOGS)
def test_no_search_for_a_time_makes_a_turn_last(log: str) -> None:
    rig = led(LOGS[log])
    client = rig.client()

    def begin() -> Callable[[], bool]:
        forget_times(rig)

        def ask() -> bool:
            (reply,) = client.ask(look())
            return reply.error is not None

        return ask

    assert longest_ms(begin, MOST_MS) <= MOST_MS
    while client.ask(look())[0].error is not None:
        client.taken()
    answer = client.answer()
    assert isinstance(answer, OffsetForTimeResult)
    assert (answer.offset, answer.timestamp_ms) == (rig.replica().end.offset - 1, LAST_MS)


def test_a_search_for_a_key_looks_at_a_bounded_part_of_the_index() -> None:
    rig = led(lambda rig: rig.client("producer").ask(produce(), [batch(3)]))
    index, writes = rig.replica().index, WriteSet()
    rows = b"".join(at.to_bytes(8, "little") + bytes(8) for at in range(256))
    for number in range(8 * LOOKUP_BLOCKS):
        writes.put("index", queue_key(1, 0, b"b" + number.to_bytes(8, "big")), bytes(24) + rows)
    rig.storage.write(writes)
    index._block_start = 8 * LOOKUP_BLOCKS  # noqa: SLF001 - the state after as many blocks
    found: list[tuple[list[int], int]] = []

    def begin() -> Callable[[], bool]:
        def ask() -> bool:
            found.append(index.find_key(1, 1 << 60, 1_000, 0))
            return False

        return ask

    assert longest_ms(begin, MOST_MS) <= MOST_MS
    assert found[0][0][-1] == 7 * LOOKUP_BLOCKS, "it goes on from there"


# ── who waits for whom ──────────────────────────────────────────────────────────────────────────

REQUESTS: Final[list[WireMessage]] = [
    look(),
    FindKey(0, 1_000, "flights", 0, 77, 1 << 40, 1_000),
    Subscribe(0, 1_000, "flights", 0, "s", "me", 1, SubscriptionConfig(), 0, None, LAST_MS),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_what_one_connection_searches_leaves_room_for_others(request_: WireMessage) -> None:
    rig = led(one_that_opens)
    greedy, modest = rig.client("greedy"), rig.client("modest")
    rig.turn(*asking(greedy, *[look() for _ in range(100)]), *asking(modest, request_))
    errors = [reply.error for reply in greedy.taken() if reply.error is not None]
    assert 0 < len(errors) < 100
    assert {type(error) for error in errors} == {Unavailable}
    assert {error.code for error in errors} == {"BUSY"}
    rig.settle()
    assert isinstance(modest.answer(), WireMessage)
    # And each of them counts.
    rig.turn(*asking(greedy, *[look() for _ in range(100)], request_))
    assert greedy.taken()[-1].error is not None


def test_what_a_search_reads_counts_too() -> None:
    rig = led(many_small_batches)
    forget_times(rig)
    greedy, modest = rig.client("greedy"), rig.client("modest")
    rig.turn(*asking(greedy, *[look(at) for at in range(4_900, 4_950)]))
    texts = [str(reply.error) for reply in greedy.taken()]
    assert sum("there is more to read" in text for text in texts) == PEER_BYTES // LOOKUP_BYTES
    assert sum("have to be opened" in text for text in texts) == 50 - PEER_BYTES // LOOKUP_BYTES
    modest.ask(look(0))
    assert isinstance(modest.answer(), OffsetForTimeResult)


def test_a_body_that_does_not_hold_together_ends_no_search_and_no_index() -> None:
    data = encode_batch([b"v" * 100] * 2, timestamps_ms=[1, LAST_MS], now_ms=5)
    head, body = list(TAIL.unpack_from(data, CRC_START)), data[HEAD_LENGTH:]
    head[3] = 40
    """Its messages, by the head alone."""
    tail = TAIL.pack(*head)
    prefix = PREFIX.pack(MAGIC, VERSION, extend(crc32c(tail), body))
    hostile = data[: CRC_START - PREFIX.size] + prefix + tail + body
    rig = led(lambda rig: rig.client("producer").ask(produce(), [hostile]))
    assert rig.replica().end.offset == 40
    client = rig.client()
    client.ask(look())
    answer = client.answer()
    assert isinstance(answer, OffsetForTimeResult)
    assert answer.offset == 0
    assert not rig.broker.stats.counters["index_rebuilds"]
