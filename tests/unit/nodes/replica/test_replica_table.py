"""What a turn did to replicas, and which syncs count (Q1)."""

from __future__ import annotations

from logboom.nodes.log.keys import Position
from logboom.nodes.replica.replica import SNAPSHOT_BYTES, Replica
from logboom.nodes.replica.replica_table import (
    DERIVED_BYTES,
    MIN_SNAPSHOT_BYTES,
    ReplicaTable,
)
from logboom.nodes.turn import BrokerTurn
from logboom.wire.actor import Instant
from logboom.wire.batch import validate_batch
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.rig import batch


def turn_of(queues: ReplicaTable) -> BrokerTurn:
    """A turn's begin."""
    queues.begin()
    return BrokerTurn(Instant(1.0, 1))


def append(queues: ReplicaTable, replica: Replica, turn: BrokerTurn, count: int = 1) -> None:
    """Append a batch as a leader."""
    data = batch(count)
    head = validate_batch(data, stamped=False)
    replica.append_batch(data, head, 5, turn.writes, queues.cache)
    queues.touch(replica)


def led(queues: ReplicaTable) -> Replica:
    """A new replica that leads epoch 1."""
    replica = queues.create(1, 0, "flights")
    replica.leader_epoch = 1
    return replica


def test_a_sync_moves_only_what_was_written_by_its_token() -> None:
    storage = SimulatedStorage("store")
    queues = ReplicaTable(storage, 1 << 20)
    replica = led(queues)
    ends = []
    for count in (1, 2, 3):
        turn = turn_of(queues)
        append(queues, replica, turn, count)
        queues.commit(turn)
        storage.write(turn.writes)
        ends.append(turn.out.token)
    assert ends == [1, 2, 3]
    assert replica.synced == Position(0)
    assert queues.synced(2) == [replica]
    assert replica.synced == Position(3)
    assert queues.synced(2) == []
    assert queues.synced(3) == [replica]
    assert replica.synced == Position(6)


def test_a_sync_of_what_was_written_before_a_cut_says_nothing_of_what_stands_there_now() -> None:
    storage = SimulatedStorage("store")
    queues = ReplicaTable(storage, 1 << 20)
    replica = led(queues)
    turn = turn_of(queues)
    append(queues, replica, turn, 4)
    queues.commit(turn)
    storage.write(turn.writes)
    turn = turn_of(queues)
    replica.cut(Position(0), turn.writes, storage)
    append(queues, replica, turn, 9)
    queues.commit(turn)
    storage.write(turn.writes)
    queues.synced(1)
    assert replica.synced == Position(0)
    queues.synced(2)
    assert replica.synced == Position(9)


def test_reads_of_the_store_see_a_turns_writes_from_the_next_turn_on() -> None:
    queues = ReplicaTable(SimulatedStorage("store"), 1 << 20)
    replica = led(queues)
    turn = turn_of(queues)
    append(queues, replica, turn)
    queues.commit(turn)
    assert replica.written == Position(0)
    queues.begin()
    assert replica.written == Position(1)


def test_a_turn_without_writes_has_no_token() -> None:
    queues = ReplicaTable(SimulatedStorage("store"), 1 << 20)
    turn = turn_of(queues)
    queues.commit(turn)
    assert (turn.out.token, turn.out.writes) == (0, None)


def test_many_queues_write_their_windows_down_more_often() -> None:
    queues = ReplicaTable(SimulatedStorage("store"), 1 << 20)
    assert queues.windows_every == SNAPSHOT_BYTES
    for number in range(20_000):
        queues.replicas[1, number] = None  # type: ignore[assignment]  # only counted here
    assert queues.windows_every == MIN_SNAPSHOT_BYTES


def derive(queues: ReplicaTable, replica: Replica, turn: BrokerTurn, size: int = 1) -> None:
    """What `LogApplier` does with an entry below the HW."""
    turn.writes.put("parked", b"row", bytes(size))
    turn.derived += 1
    queues.touch_derived(replica)


def test_derived_rows_wait_for_the_sync_of_another_turn() -> None:
    queues = ReplicaTable(SimulatedStorage("store"), 1 << 20)
    replica = led(queues)
    turn = turn_of(queues)
    derive(queues, replica, turn)
    queues.commit(turn)
    assert (turn.out.token, len(turn.writes)) == (0, 2), "the row, and the queue's record"
    assert turn.out.writes is turn.writes
    turn = turn_of(queues)
    derive(queues, replica, turn)
    append(queues, replica, turn)
    queues.commit(turn)
    assert turn.out.token == 1
    assert queues.synced(1) == [replica]


def test_a_write_that_somebody_may_wait_for_is_synced_beside_derived_rows() -> None:
    queues = ReplicaTable(SimulatedStorage("store"), 1 << 20)
    replica = led(queues)
    turn = turn_of(queues)
    turn.writes.put("state", b"mark of damage", b"")
    derive(queues, replica, turn)
    queues.commit(turn)
    assert turn.out.token == 1


def test_many_derived_rows_are_synced() -> None:
    queues = ReplicaTable(SimulatedStorage("store"), 1 << 20)
    replica = led(queues)
    tokens = []
    for _ in range(5):
        turn = turn_of(queues)
        derive(queues, replica, turn, DERIVED_BYTES // 2)
        queues.commit(turn)
        tokens.append(turn.out.token)
    assert tokens == [0, 1, 0, 2, 0]
