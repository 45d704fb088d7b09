"""A node may end by itself because of its disk, or not at all; name servers agree in all they hold."""

from __future__ import annotations

import pytest

from logboom.metadata.name_server import NameServer
from logboom.metadata.raft.journal_store import JournalError
from logboom.metadata.raft.raft_node import RaftNode
from logboom.wire.actor import Effects
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

STATE_FAILED = "the state failed on entry 7: KeyError('t')"


def ended_for(reason: str, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """The name servers of this world end for a reason."""
    monkeypatch.setattr(NameServer, "handle", lambda *_: Effects(stop=reason))
    world.start("name-1")
    world.scheduler.run(world.scheduler.now + 0.1)


def test_a_disk_that_refused_long_ago_excuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1)
    world.start("name-1")
    machine = world.machines["name-1"]
    assert machine.journal is not None
    machine.journal.refuses = True
    world.scheduler.run(5.0)
    assert world.trace.totals["ends by a failed disk"] == 1, "it votes, and that is not written"
    assert machine.process is not None, "it was started again"
    world.kill("name-1")
    said = "the journal cannot be written: a simulated I/O error"
    with pytest.raises(BrokenProperty, match="nodes run: name-1 ended: the journal cannot"):
        ended_for(said, monkeypatch, world)


def test_a_disk_that_is_about_to_refuse_excuses_nothing_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(1)
    machine = world.machines["name-1"]
    assert machine.journal is not None
    machine.journal.refuses = True
    with pytest.raises(BrokenProperty, match="nodes run: name-1 ended: the state failed"):
        ended_for(STATE_FAILED, monkeypatch, world)


def test_a_refused_write_excuses_no_other_reason() -> None:
    machine = World(1).machines["name-1"]
    assert machine.journal is not None
    machine.journal.full = True
    with pytest.raises(JournalError) as refused:
        machine.journal.save_snapshot(b"s")
    assert machine.excused(str(refused.value))
    assert not machine.excused(STATE_FAILED)
    machine.journal.crash()
    assert not machine.excused(str(refused.value))


def test_a_broker_must_have_had_a_sync_that_failed() -> None:
    world = World(1)
    machine = world.machines["broker-1"]
    said = "the disk refused a sync (a simulated I/O error): check the disk"
    assert machine.storage is not None
    machine.storage.refuses = True
    assert not machine.excused(said)
    machine.storage.sync_failed(machine.storage.mark(), world.rng)
    assert machine.excused(said)
    machine.storage.crash(world.rng)
    assert not machine.excused(said)


def test_a_name_server_that_counts_other_members_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(1)
    names = [machine.name for machine in world.nodes("name-server")]
    for name in names:
        world.start(name)
    world.scheduler.run(3.0)
    assert world.compare_name_servers()
    one = world.name_server("name-1")
    assert one is not None
    fewer = one.raft.applied_members - {names[-1]}
    counted = property(lambda raft: fewer if raft is one.raft else frozenset(names))
    monkeypatch.setattr(RaftNode, "applied_members", counted)
    with pytest.raises(BrokenProperty, match="states are equal at equal index"):
        world.compare_name_servers()
