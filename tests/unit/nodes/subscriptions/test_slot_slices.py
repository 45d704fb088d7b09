"""Slots of large batches are hashed and dealt out in slices: no turn lasts, whatever is written."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

import pytest

from logboom.nodes.body_worker import opening_beside
from logboom.nodes.subscriptions import key_shared_dispatcher, slot_reader
from logboom.nodes.subscriptions.dispatch_events import Entry
from logboom.nodes.subscriptions.slot_reader import PIECE, SlotReader
from logboom.nodes.subscriptions.slot_table import slots_of
from logboom.wire.actor import Received
from logboom.wire.batch import encode_batch, peek, stamp
from logboom.wire.errors import DamagedBatch
from logboom.wire.filters import ScanBudget
from logboom.wire.subscription_messages import Receive, SubscriptionConfig
from tests.thorough import seeds
from tests.unit.nodes.rig import Rig, asking, produce
from tests.unit.nodes.subscriptions.dispatch_bench import Bench
from tests.unit.nodes.subscriptions.test_dispatch_any import KEYS, play
from tests.unit.nodes.subscriptions.test_subscription_handler import Reader, alone
from tests.unit.wire.slow_blocks import slow_batch
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
LARGEST: Final = 65_536
"""Messages of a batch that a producer may send."""
SIZE: Final = 8 << 20
"""Bytes that it opens to."""
KEY_SHARED: Final = SubscriptionConfig(kind="key_shared")
Keys = Sequence[bytes | None]


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others(), opening_beside():
        yield


def text(size: int) -> bytes:
    """Text that is slow to decompress."""
    return bytes(random.Random(1).choices(b"abcdefgh", k=size))


def tiny() -> bytes:
    """As many keys as there may be, of different lengths."""
    return encode_batch([b""] * LARGEST, [b"%d" % n for n in range(LARGEST)], now_ms=1)


WORST: Final[dict[str, Callable[[], bytes]]] = {
    "tiny": tiny,
    "some without": lambda: encode_batch(
        [b"%d" % n for n in range(LARGEST)],
        [b"%0*d" % (80 + n % 7, n) if n % 3 else None for n in range(LARGEST)],
        now_ms=1,
        codec="zstd",
    ),
    "text": lambda: encode_batch([text(SIZE // 2 - 100)] * 2, [b"a", b"b"], now_ms=1, codec="zstd"),
    "large keys": lambda: encode_batch(
        [b""] * PIECE, [text(SIZE // PIECE - 50) + b"%d" % n for n in range(PIECE)], now_ms=1
    ),
    "sequences of LZ4": lambda: slow_batch(SIZE),
}


def waits(rig: Rig, batches: list[bytes], subscriptions: int, consumers: int) -> list[Reader]:
    """Consumers of new subscriptions to what is written."""
    producer = rig.client("producer")
    for batch in batches:
        producer.ask(produce(), [batch])
        producer.answer()
    readers = []
    for number in range(subscriptions * consumers):
        reader = Reader(rig, f"c{number}", KEY_SHARED)
        reader.subscription = f"s{number // consumers}"
        reader.subscribe()
        reader.peer.taken()
        readers.append(reader)
    gc.collect()
    gc.freeze()
    return readers


def receiving(reader: Reader) -> list[Received]:
    """What arrives when a consumer asks for all there is."""
    where = ("flights", 0, reader.subscription, reader.name, reader.session)
    return asking(reader.peer, Receive(0, 30_000, *where, 1, 1 << 20, 1 << 30, 30_000))


def dealing(batches: list[bytes], subscriptions: int, consumers: int) -> Callable[[], bool]:
    """Turns in which all consumers get the messages of new subscriptions."""
    rig = alone()
    readers = waits(rig, batches, subscriptions, consumers)
    events = [event for reader in readers for event in receiving(reader)]

    def turn() -> bool:
        rig.turn(*events)
        events.clear()
        served = rig.broker.parts.subscriptions.served.values()
        more = any(each.dispatcher.deadline() <= rig.mono for each in served)
        assert more or any(reader.peer.replies for reader in readers)
        return more

    return turn


@pytest.mark.parametrize("case", WORST)
def test_no_turn_lasts(case: str) -> None:
    batch = WORST[case]()
    assert longest_ms(lambda: dealing([batch], 1, 2), MOST_MS) <= MOST_MS


def test_many_consumers_and_subscriptions_do_not_make_a_turn_last() -> None:
    batch = tiny()
    assert longest_ms(lambda: dealing([batch], 1, 20), MOST_MS) <= MOST_MS
    assert longest_ms(lambda: dealing([batch], 10, 1), MOST_MS) <= MOST_MS


def test_many_small_batches_do_not_make_a_turn_last() -> None:
    keys: Keys = [b"%d" % n for n in range(1_000)]
    batches = [encode_batch([b""] * len(keys), keys, now_ms=1)] * 50
    assert longest_ms(lambda: dealing(batches, 1, 2), MOST_MS) <= MOST_MS


# ── what they deal out ──────────────────────────────────────────────────────────────────────────


def entry(keys: Keys, base: int = 0) -> Entry:
    """An entry of the log."""
    frame = stamp(encode_batch([b""] * len(keys), keys, now_ms=1), base, 1, 1)
    return Entry(peek(frame), frame)


def read(reader: SlotReader, queue: str, wanted: Entry) -> list[int] | None:
    """The slots, with a small budget."""
    found = reader.read(queue, wanted, ScanBudget(1))
    return None if found is None else list(found)


def test_slices_find_the_slots_of_the_whole() -> None:
    keys: Keys = [b"%d" % n if n % 7 else None for n in range(3 * PIECE + 5)]
    wanted, reader, calls = entry(keys, 70_000), SlotReader(), 1
    while (found := read(reader, "queue", wanted)) is None:
        calls += 1
    assert calls > 4
    assert found == slots_of(wanted)
    assert read(reader, "queue", wanted) == found


def test_whoever_asks_for_another_batch_works_on_the_first_of_all() -> None:
    one, two = (entry([b"%d %d" % (n, m) for m in range(2 * PIECE)]) for n in range(2))
    reader = SlotReader()
    assert read(reader, "one", one) is None
    while (found := read(reader, "two", two)) is None:
        pass
    assert found == slots_of(two)
    assert read(reader, "one", one) == slots_of(one)


def test_damage_is_told_to_whoever_asks_for_that_batch() -> None:
    good = entry([b"%d" % n for n in range(2 * PIECE)])
    bad = Entry(good.head, bytes(good.frame[:96]) + b"\xff" * (good.size - 96))
    reader = SlotReader()
    assert read(reader, "bad", bad) is None
    while (found := read(reader, "good", good)) is None:
        pass
    assert found == slots_of(good)
    with pytest.raises(DamagedBatch):
        reader.read("bad", bad, ScanBudget(1 << 40))
    assert read(reader, "good", good) == found


def test_what_is_kept_of_large_batches_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_reader, "KEPT", 3 * slot_reader.LEAST_KEPT)
    reader, wanted = SlotReader(), entry([b"%d" % n for n in range(2 * PIECE)])
    for queue in "abcd":
        assert reader.read(queue, wanted, ScanBudget(1 << 40)) is not None
    assert read(reader, "d", wanted) is not None
    assert read(reader, "a", wanted) is None


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("wanted", ["", "WHERE KEYS IN ('a', 'c', 'f')"])
def test_pieces_change_nothing_of_what_is_delivered(
    seed: int, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    piece = rng.choice([1, 2, 5])
    for module in (slot_reader, key_shared_dispatcher):
        monkeypatch.setattr(module, "PIECE", piece)
    look_ahead = rng.choice([10, 50_000])
    bench = Bench(SubscriptionConfig(kind="key_shared", filter=wanted, look_ahead=look_ahead))
    bench.units = rng.choice([1, 30, 500])
    play(bench, rng, 150)
    bench.finish_alone()
    meant = set(KEYS) if not wanted else {b"a", b"c", b"f"}
    matching = {at for at, key in enumerate(bench.log.keys) if key in meant}
    assert {offset for got in bench.got.values() for offset in got} == matching
