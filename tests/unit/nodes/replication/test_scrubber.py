"""The scrub finds what nobody reads, slowly, goes on where it was, and never cries wolf."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from logboom.nodes.log import index_rows
from logboom.nodes.log.keys import EPOCHS, RECORD, Position, log_key, queue_key
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.replication import scrubber
from logboom.nodes.replication.scrubber import CHECKPOINT, NOTE_EVERY
from logboom.wire.commands import ReportDamage
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.rig import ME, Rig, batch, entry, produce
from tests.unit.nodes.test_broker_rules import flowing, replicated

BOTH = (ME, "broker-2")


def filled(count: int = 8, queues: int = 1) -> SimulatedStorage:
    """A broker's disk with `count` batches of two messages in each queue, made by a broker that
    did not scrub."""
    rig = Rig(scrub_bytes_per_s=0)
    rig.lead(queues=queues)
    client = rig.client()
    for queue in range(queues):
        for _ in range(count):
            client.ask(produce(queue=queue), [batch(2)])
    rig.settle()
    # The next start need not read the log to know its producers, nor to index it.
    writes = WriteSet()
    for replica in rig.broker.queues:
        replica.stage_windows(writes)
        index_rows.put_checkpoint(writes, *replica.key, replica.hw.offset)
    rig.storage.write(writes)
    return rig.storage


def flip(storage: SimulatedStorage, offset: int, queue: int = 0) -> None:
    """Flip a bit in the middle of an entry."""
    key = log_key(1, queue, offset)
    stored = bytearray(storage.content("log")[key])
    stored[len(stored) // 2] ^= 16
    writes = WriteSet()
    writes.put("log", key, bytes(stored))
    storage.write(writes)


def reported(rig: Rig) -> list[tuple[int, int]]:
    """The queues in the reports of damage that wait."""
    commands = [command for _, command in rig.commands if isinstance(command, ReportDamage)]
    return [queue for command in commands if not command.mended for queue in command.queues]


@pytest.mark.parametrize("queue", [0, 2])
@pytest.mark.parametrize("offset", [0, 6, 14])
def test_a_flipped_bit_that_nobody_reads_is_found(offset: int, queue: int) -> None:
    storage = filled(40, queues=3)
    flip(storage, offset, queue)
    rig = Rig(storage, incarnation="two")
    rig.lead(epoch=2, queues=3)
    rig.settle(1.0)
    assert set(reported(rig)) == {(1, queue)}


def test_what_is_sound_is_never_reported() -> None:
    rig = Rig(filled(40, queues=3), incarnation="two", scrub_every_s=0.0)
    rig.lead(epoch=2, queues=3)
    client = rig.client()
    for _ in range(20):
        client.ask(produce(), [batch(3)])
        rig.settle(0.3)
    assert reported(rig) == []
    assert rig.broker.stats.counters["scrub_passes"] > 5
    assert rig.broker.stats.counters["scrub_finds"] == 0


def test_it_reads_no_faster_than_it_may() -> None:
    rig = Rig(filled(200), incarnation="two", scrub_bytes_per_s=64 * 1024, scrub_every_s=0.0)
    before = rig.broker.stats.counters["scrubbed_bytes"]
    rig.settle(20.0)
    spent = rig.broker.stats.counters["scrubbed_bytes"] - before
    # A piece may begin just before the end.
    assert 16 * 64 * 1024 <= spent <= 20 * 64 * 1024 + 512 * 1024


def test_passes_begin_no_more_often_than_asked_and_idle_it_sleeps() -> None:
    rig = Rig(filled(3), incarnation="two", scrub_every_s=10.0)
    rig.settle(35.0)
    assert rig.broker.stats.counters["scrub_passes"] == 4
    wanted = rig.broker.parts.scrubber.deadline()
    assert wanted > rig.mono


def test_without_a_rate_it_rests() -> None:
    rig = Rig(filled(3), incarnation="two", scrub_bytes_per_s=0)
    assert rig.broker.parts.scrubber.deadline() == float("inf")
    assert rig.broker.stats.counters["scrubbed_bytes"] == 0


def test_a_new_process_goes_on_where_the_last_one_was() -> None:
    storage = filled(40, queues=4)
    writes = WriteSet()
    writes.put("index", CHECKPOINT, log_key(1, 2, 20))
    storage.write(writes)
    for offset, queue in ((10, 1), (10, 2), (10, 3)):
        flip(storage, offset, queue)
    rig = Rig(storage, incarnation="two")
    rig.settle(1.0)
    # Queue 1 and the first part of queue 2 lie behind the checkpoint: the next pass's work.
    assert set(reported(rig)) == {(1, 3)}


@pytest.mark.parametrize(
    "checkpoint", [log_key(1, 2, 3), log_key(1, 9, 0), log_key(9, 0, 7), log_key(0, 0, 1), b"?"]
)
def test_a_checkpoint_that_fits_nothing_does_no_harm(checkpoint: bytes) -> None:
    storage = filled(10, queues=3)
    writes = WriteSet()
    writes.put("index", CHECKPOINT, checkpoint)
    storage.write(writes)
    rig = Rig(storage, incarnation="two", scrub_every_s=0.5)
    rig.settle(2.0)
    assert rig.broker.stats.counters["scrub_finds"] == 0
    assert rig.broker.stats.counters["scrub_passes"] > 1


def test_the_checkpoint_is_written_now_and_then() -> None:
    rig = Rig(filled(40), incarnation="two", scrub_every_s=0.0, scrub_bytes_per_s=NOTE_EVERY)
    rig.settle(3.0)
    assert CHECKPOINT in rig.storage.content("index")
    assert rig.broker.queues.token <= 8, "it must not keep the disk busy"


def test_the_checkpoint_tells_how_far_in_the_queue_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    # An entry a turn, a note each turn.
    monkeypatch.setattr(scrubber, "TURN_BYTES", 1)
    monkeypatch.setattr(scrubber, "NOTE_EVERY", 1)
    rig = Rig(filled(40), incarnation="two", scrub_every_s=1e9, scrub_bytes_per_s=20_000)
    noted = []
    for _ in range(20):
        rig.settle(0.05)
        noted.append(rig.storage.content("index")[CHECKPOINT])
    assert noted == sorted(noted)
    assert log_key(1, 0, 2) <= noted[0] < noted[-1] < log_key(1, 0, 80)


def test_a_cut_under_its_feet_is_no_damage() -> None:
    rig = Rig(scrub_bytes_per_s=8_000, scrub_every_s=0.0)
    rig.lead(epoch=1, leader="broker-2", isr=BOTH, replicas=BOTH)
    entries = [entry(2 * n, 1, 2) for n in range(10)]
    replicated(rig, flowing(1, 0, 10), frames=entries)
    rig.settle(1.0)
    replica = rig.replica()
    for end in (15, 9, 3):
        writes = WriteSet()
        replica.cut(Position(end - end % 2), writes, rig.storage)
        replica.append_entry(entry(end - end % 2, 1, 3), writes, rig.broker.queues.cache)
        replica.stage_record(writes)
        rig.storage.write(writes)
        replica.written = replica.end
        rig.settle(1.0)
    assert rig.broker.stats.counters["scrub_finds"] == 0


def test_a_state_record_that_the_disk_lost_is_written_again() -> None:
    storage = filled(5)
    rig = Rig(storage, incarnation="two", scrub_every_s=1.0)
    rig.lead(epoch=2)
    sound = storage.content("state")
    writes = WriteSet()
    writes.put("state", queue_key(1, 0, RECORD), b"nonsense")
    writes.put("state", queue_key(1, 0, EPOCHS), b"nonsens")
    storage.write(writes)
    rig.settle(3.0)
    assert rig.broker.stats.counters["scrub_finds"] == 1
    assert storage.content("state")[queue_key(1, 0, EPOCHS)] == sound[queue_key(1, 0, EPOCHS)]
    again = Rig(storage, incarnation="three", register=False)
    assert again.replica().damage is None
    assert again.replica().end == Position(10)


def test_the_store_checks_all_that_the_scrub_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers check entries alone; what the store keeps around them nobody else looks at."""
    storage = filled()
    left_out: list[bool] = []
    scan = storage.scan

    def watched(*bounds: Any, **asked: Any) -> Iterator[tuple[bytes, bytes]]:
        left_out.append(asked.get("values_checked_by_caller", False))
        return scan(*bounds, **asked)

    monkeypatch.setattr(storage, "scan", watched)
    rig = Rig(storage, incarnation="two")
    rig.lead(epoch=2)
    rig.settle(1.0)
    assert rig.broker.stats.counters["scrub_passes"] > 0
    assert left_out
    assert not any(left_out)
