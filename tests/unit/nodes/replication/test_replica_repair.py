"""Damage at a follower, in the index and in retention: reported, and fetched no more until cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logboom.nodes.log.keys import Position, log_key
from logboom.nodes.log.storage import Family, WriteSet
from logboom.wire.actor import Note, note
from logboom.wire.commands import ReportDamage, ReportTails
from logboom.wire.errors import DataDamaged, Unavailable
from logboom.wire.messages import OffsetForTime, Offsets, Replicate, Stats
from logboom.wire.view import TopicConfig
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.replication.test_scrubber import flip
from tests.unit.nodes.rig import ME, Rig, batch, entry, produce, pull
from tests.unit.nodes.test_broker_rules import flowing, replicated

BOTH = (ME, "broker-2")


def spoil(rig: Rig, offset: int) -> None:
    """Tear an entry in the store to pieces; memory holds it no longer."""
    writes = WriteSet()
    writes.put("log", log_key(1, 0, offset), b"torn")
    rig.storage.write(writes)
    rig.replica().tail.clear()


def reported(rig: Rig) -> list[tuple[int, int]]:
    """The queues that the oldest proposal reports as damaged."""
    command = rig.commands[0][1]
    assert isinstance(command, ReportDamage)
    assert not command.mended
    return command.queues


def test_a_damaged_leader_tells_no_end_until_it_knows_who_leads() -> None:
    """Its report may have moved the queue already: another may have acked beyond what it holds."""
    rig = Rig()
    rig.lead(isr=(ME,), replicas=(ME,))
    client = rig.client()
    for _ in range(2):
        client.ask(produce(), [batch(2)])
        client.answer()
    client.ask(Offsets(0, 1_000, "flights", [0]))
    assert client.answer().offsets == [(0, 4)]
    spoil(rig, 2)
    client.ask(pull(2))
    client.taken()
    client.ask(Offsets(0, 1_000, "flights", [0]))
    with pytest.raises(Unavailable):
        client.answer()
    # Nobody else can lead: it goes on with what it has.
    rig.settle()
    rig.decide()
    rig.lead(isr=(ME,), replicas=(ME,))
    client.ask(Offsets(0, 1_000, "flights", [0]))
    assert client.answer().offsets == [(0, 4)]


def test_a_damaged_follower_stops_fetching_until_it_was_cut() -> None:
    rig = Rig(follower_reads=True)
    rig.lead(epoch=1, leader="broker-2", isr=BOTH, replicas=BOTH)
    replicated(rig, flowing(1, 4, 2), frames=[entry(0, 1, 2), entry(2, 1, 2)])
    spoil(rig, 2)
    rig.client().ask(pull(2))
    rig.settle()
    assert reported(rig) == [(1, 0)]
    station = rig.stations["b2:7711"]
    while station.count(Replicate):
        station.take(Replicate)
    rig.settle(2.0)
    assert station.count(Replicate) == 0
    # The report was sent again meanwhile, under the same number.
    del rig.commands[:-1]
    rig.decide()
    # Still in the ISR as far as is known here: not a byte is cut.
    assert rig.replica().end == Position(4)
    rig.lead(epoch=1, leader="broker-2", isr=("broker-2",), replicas=BOTH)
    rig.settle()
    assert rig.replica().end == Position(2)
    (queue,) = replicated(rig, flowing(1, 4, 1), frames=[entry(2, 1, 2)]).queues
    assert (queue.offset, queue.last_epoch) == (2, 1)


def test_damage_found_by_retention_is_reported() -> None:
    rig = Rig()
    rig.lead(isr=(ME,), replicas=(ME,), config=TopicConfig(retention_ms=1_000))
    client = rig.client()
    for _ in range(3):
        client.ask(produce(), [batch()])
    rig.settle()
    spoil(rig, 0)
    rig.wall_ms += 60_000
    rig.settle(6.0)
    assert reported(rig) == [(1, 0)]
    assert len(rig.storage.content("log")) == 3


class IndexLost(SimulatedStorage):
    """A disk that, while told so, cannot read its index family."""

    lost = False

    def scan(
        self,
        family: Family,
        start: bytes,
        end: bytes,
        *,
        reverse: bool = False,
        values_checked_by_caller: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Fail for the index, else as ever."""
        if self.lost and family == "index":
            raise DataDamaged("Corruption: block checksum mismatch")
        checked = values_checked_by_caller
        return super().scan(family, start, end, reverse=reverse, values_checked_by_caller=checked)


def test_an_index_that_cannot_be_read_is_made_anew() -> None:
    storage = IndexLost("store-1")
    rig = Rig(storage, scrub_bytes_per_s=0)
    rig.lead()
    client = rig.client()
    for _ in range(600):
        client.ask(produce(), [batch()])
    rig.settle()
    sound = storage.content("index")
    assert sound
    ask = OffsetForTime(0, 1_000, "flights", 0, 1)
    storage.lost = True
    client.ask(ask)
    with pytest.raises(Unavailable, match="made anew"):
        client.answer()
    storage.lost = False
    rig.settle(1.0)
    assert storage.content("index") == sound
    client.ask(ask)
    assert client.answer().offset == 0
    assert rig.commands == []


def test_damage_found_at_the_start_is_reported_before_anything_is_led() -> None:
    first = Rig()
    first.lead()
    client = first.client()
    for _ in range(3):
        client.ask(produce(), [batch()])
    spoil(first, 1)
    rig = Rig(first.storage, incarnation="two")
    assert reported(rig) == [(1, 0)]
    rig.decide()
    rig.lead(epoch=2, leader="broker-2", isr=("broker-2",), replicas=BOTH)
    rig.settle()
    # Nothing of it can be trusted: it begins anew.
    assert rig.replica().end == Position(0)
    (queue,) = replicated(rig).queues
    assert (queue.offset, queue.last_epoch) == (0, -1)


def mending_rig() -> Rig:
    """A follower that was cut at offset 2 of 6 and has not fetched anything again yet."""
    rig = Rig(follower_reads=True)
    rig.lead(epoch=1, leader="broker-2", isr=BOTH, replicas=BOTH)
    replicated(rig, flowing(1, 6, 3), frames=[entry(at, 1, 2) for at in (0, 2, 4)])
    spoil(rig, 2)
    rig.client().ask(pull(2))
    rig.settle()
    rig.decide()
    rig.lead(epoch=1, leader="broker-2", isr=("broker-2",), replicas=BOTH)
    rig.settle()
    assert rig.replica().end == Position(2)
    return rig


def mended(rig: Rig) -> list[tuple[int, int]]:
    """The queues in the reports of mending that wait."""
    commands = [command for _, command in rig.commands if isinstance(command, ReportDamage)]
    return [queue for command in commands if command.mended for queue in command.queues]


def test_q14_only_what_lies_behind_the_damage_is_fetched_again() -> None:
    rig = mending_rig()
    (asked,) = replicated(rig, flowing(1, 6, 2), frames=[entry(2, 1, 2), entry(4, 1, 2)]).queues
    assert asked.offset == 2
    rig.settle()
    assert mended(rig) == [(1, 0)]


def test_q14_what_became_committed_while_it_was_mended_is_applied() -> None:
    # Otherwise retention, which waits for it, would stand still until the next message.
    rig = mending_rig()
    replicated(rig, flowing(1, 6, 2), frames=[entry(2, 1, 2), entry(4, 1, 2)])
    rig.settle()
    assert (rig.replica().damage, rig.replica().hw) == (None, Position(6))
    assert rig.replica().applied == Position(6)


def test_q14_a_restart_while_it_is_mended_forgets_nothing() -> None:
    # The name servers keep it out of the ISR until it says that it is whole: it must say so.
    rig = Rig(mending_rig().storage, incarnation="two")
    rig.lead(epoch=2, leader="broker-2", isr=("broker-2",), replicas=BOTH)
    replicated(rig, flowing(2, 6, 2), frames=[entry(2, 1, 2), entry(4, 1, 2)])
    rig.settle()
    assert mended(rig) == [(1, 0)]
    rig.decide()
    assert rig.replica().damage is None
    assert Rig(rig.storage, incarnation="three", register=False).replica().damage is None


def test_q14_damage_found_before_a_restart_is_reported_after_it() -> None:
    rig = Rig(scrub_bytes_per_s=0)
    rig.lead()
    client = rig.client()
    for _ in range(40):
        client.ask(produce(), [batch(2)])
    flip(rig.storage, 10)
    rig.replica().tail.clear()
    client.ask(pull(10))
    rig.settle()
    again = Rig(rig.storage, incarnation="two", scrub_bytes_per_s=0)
    # No opening reads the middle of a log: without its mark nobody would know.
    assert reported(again) == [(1, 0)]
    again.decide()
    again.lead(epoch=2, leader="broker-2", isr=("broker-2",), replicas=BOTH)
    again.settle()
    assert again.replica().end == Position(10)


def test_q14_the_report_waits_until_the_mark_is_on_disk() -> None:
    rig = Rig(scrub_bytes_per_s=0)
    rig.lead()
    client = rig.client()
    client.ask(produce(), [batch(2)])
    spoil(rig, 0)
    rig.auto_sync = False
    client.ask(pull(0))
    rig.settle()
    assert rig.commands == []
    rig.sync()
    rig.settle()
    assert reported(rig) == [(1, 0)]


def test_q14_a_report_of_mending_that_was_lost_is_made_again() -> None:
    rig = mending_rig()
    replicated(rig, flowing(1, 6, 2), frames=[entry(2, 1, 2), entry(4, 1, 2)])
    rig.settle()
    assert mended(rig) == [(1, 0)]
    rig.decide("FENCED")
    rig.commands.clear()
    # Fenced meanwhile, it registers anew: under a new instance epoch it says so again.
    rig.within(rig.broker.parts.repair.registered)
    rig.settle()
    assert mended(rig) == [(1, 0)]


def test_q14_a_producer_of_a_damaged_leader_tries_again_until_a_good_copy_is_back() -> None:
    rig = Rig()
    lenient = TopicConfig(retention_ms=-1, min_in_sync=1)
    rig.lead(isr=(ME,), replicas=BOTH, config=lenient)
    client = rig.client()
    client.ask(produce("leader"), [batch(2)])
    spoil(rig, 0)
    client.ask(pull(0))
    client.ask(produce("leader"), [batch(1)])
    with pytest.raises(Unavailable):
        client.answer()
    rig.settle()
    rig.decide()
    # No other can lead.
    rig.lead(epoch=2, isr=(ME,), replicas=BOTH, config=lenient)
    client.ask(produce("leader"), [batch(1)])
    with pytest.raises(Unavailable, match="no good copy is known"):
        client.answer()
    client.ask(pull(0))
    with pytest.raises(DataDamaged):
        client.answer()


def test_reports_of_many_queues_are_made_in_parts() -> None:
    rig = Rig(scrub_bytes_per_s=0)
    rig.lead(queues=1024, isr=(ME,), replicas=BOTH)
    client = rig.client()
    for queue in range(1024):
        client.ask(produce("leader", queue=queue), [batch(1)])
    writes = WriteSet()
    for queue in range(1024):
        writes.put("log", log_key(1, queue, 0), b"torn")
    rig.storage.write(writes)
    again = Rig(rig.storage, incarnation="two", scrub_bytes_per_s=0)
    assert len(reported(again)) == 1000
    again.decide()
    assert len(reported(again)) == 24


def test_a_suspect_broker_reports_its_tails_in_parts() -> None:
    first = Rig(scrub_bytes_per_s=0)
    first.lead(queues=1024)
    first.settle()
    first.storage.suspect = True
    rig = Rig(first.storage, incarnation="two", scrub_bytes_per_s=0)
    sizes = []
    while rig.commands:
        command = rig.decide()
        assert isinstance(command, ReportTails)
        sizes.append(len(command.tails))
        rig.settle()
    assert sizes == [1000, 24]


def notes(rig: Rig) -> list[Note]:
    """What the broker said of damage since the last look."""
    said, rig.notes = rig.notes, []
    return [note for note in said if note.event.startswith("damage_")]


def test_the_log_names_the_queue_the_place_the_cause_and_what_follows() -> None:
    rig = Rig(follower_reads=True)
    rig.lead(epoch=1, leader="broker-2", isr=BOTH, replicas=BOTH)
    replicated(rig, flowing(1, 4, 2), frames=[entry(0, 1, 2), entry(2, 1, 2)])
    spoil(rig, 2)
    rig.client().ask(pull(2))
    rig.settle()
    (said,) = notes(rig)
    assert said.event == "damage_found"
    assert [said.fields[name] for name in ("topic", "queue", "offset")] == ["flights", 0, 2]
    assert said.fields["error"]
    assert str(said.fields["text"]).endswith("is fetched again from another broker")
    client = rig.client()
    client.ask(Stats(0, 1_000))
    assert client.answer().counters["damaged_queues"] == "flights/0"
    # It is told once, however often it is reported.
    rig.settle(5.0)
    assert notes(rig) == []
    del rig.commands[:-1]
    rig.decide()
    rig.lead(epoch=1, leader="broker-2", isr=("broker-2",), replicas=BOTH)
    replicated(rig, flowing(1, 4, 1), frames=[entry(2, 1, 2)])
    rig.settle()
    assert notes(rig) == [note("damage_mended", topic="flights", queue=0)]


def test_the_log_says_that_a_damaged_replica_is_the_only_one() -> None:
    first = Rig()
    first.lead(isr=(ME,), replicas=(ME,))
    first.client().ask(produce(), [batch(2)])
    spoil(first, 0)
    rig = Rig(first.storage, incarnation="two")
    # Nobody could name the queue yet.
    assert notes(rig) == []
    rig.lead(isr=(ME,), replicas=(ME,))
    rig.settle()
    (said,) = notes(rig)
    assert [said.fields[name] for name in ("topic", "queue", "offset")] == ["flights", 0, 0]
    assert str(said.fields["text"]).startswith("This is its only replica")
