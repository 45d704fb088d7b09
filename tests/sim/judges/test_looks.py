"""What is acknowledged is on disk: on how many, on whose, and which disk is forgiven what."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from logboom.nodes.log.keys import log_key
from logboom.nodes.log.storage import WriteSet
from logboom.wire.batch import encode_batch, encode_control, stamp
from logboom.wire.head import ControlKind
from logboom.wire.view import TopicConfig
from tests.sim.judges.history import Queue
from tests.sim.judges.looks import Looks
from tests.sim.world.storage import SimulatedStorage
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

QUEUE = Queue("t", 0)
ALL = ["broker-1", "broker-2", "broker-3"]
MESSAGE = b"p/0"


def storage(world: World, broker: str) -> SimulatedStorage:
    found = world.machines[broker].storage
    assert found is not None
    return found


def write(world: World, broker: str, value: bytes = MESSAGE, *, sync: bool = True) -> None:
    writes = WriteSet()
    writes.put("log", log_key(1, 0, 0), stamp(encode_batch([value], now_ms=5), 0, 1, 5))
    storage(world, broker).write(writes)
    if sync:
        storage(world, broker).sync()


@pytest.fixture
def world() -> World:
    """A topic of three replicas, all in sync."""
    made = World(1)
    queue = SimpleNamespace(replicas=ALL, adding=[])
    topic = SimpleNamespace(id=1, config=TopicConfig(), queues=[queue])
    made.observer.topics["t"] = topic  # type: ignore[assignment]  # all that is asked of it
    made.isrs[1, 0] = ALL
    for broker in ALL:
        write(made, broker)
    return made


def acked(world: World) -> None:
    Looks(world).acked(QUEUE, 0, MESSAGE)


def refused(world: World, brokers: str) -> None:
    with pytest.raises(BrokenProperty, match="what is acknowledged is on disk") as found:
        acked(world)
    assert f"is on the disks of {brokers}" in str(found.value)


def test_a_member_of_the_isr_that_has_it_in_memory_alone_is_seen(world: World) -> None:
    acked(world)
    world.replace_storage(world.machines["broker-2"])
    storage(world, "broker-2").taken.clear()
    write(world, "broker-2", sync=False)
    refused(world, "['broker-1', 'broker-3']")
    world.isrs[1, 0] = ["broker-1", "broker-3"]
    acked(world)


def test_two_of_three_disks_are_promised_whatever_is_left_of_the_isr(world: World) -> None:
    world.isrs[1, 0] = ["broker-3"]
    for broker in ("broker-1", "broker-2"):
        world.machines[broker].storage = world.new_storage()
        write(world, broker, b"p/1")
    refused(world, "['broker-3']")


def test_a_disk_that_was_replaced_is_forgiven_what_it_had(world: World) -> None:
    world.bad_disk = "broker-2"
    world.machines["broker-2"].storage = world.new_storage()
    refused(world, "['broker-1', 'broker-3']")  # nothing was ever taken from it
    write(world, "broker-2")
    world.replace_storage(world.machines["broker-2"])
    acked(world)
    world.replace_storage(world.machines["broker-2"])
    acked(world)


def test_a_damaged_log_is_forgiven_what_it_lost_and_not_what_it_never_had(world: World) -> None:
    rng = random.Random(1)
    while storage(world, "broker-2").damage(rng) == 0:
        pass
    assert storage(world, "broker-2").on_disk(1, 0, 0) is None
    acked(world)
    storage(world, "broker-2").taken.clear()
    refused(world, "['broker-1', 'broker-3']")


def test_a_disk_whose_bits_flip_is_not_judged_from_then_on(world: World) -> None:
    world.bad_disk = "broker-2"
    flipped = storage(world, "broker-2")
    assert not flipped.flipped
    assert flipped.flip(random.Random(1), lambda _key: True) is not None
    acked(world)


def test_what_a_failed_sync_lost_is_not_on_disk_though_memory_has_it() -> None:
    found = set()
    for seed in range(20):
        made = SimulatedStorage("s")
        writes = WriteSet()
        writes.put("log", log_key(1, 0, 5), b"entry")
        made.write(writes)
        made.sync_failed(made.mark(), random.Random(seed))
        assert made.get("log", log_key(1, 0, 5)) == b"entry"
        held = made.on_disk(1, 0, 5)
        made.sync()
        assert made.on_disk(1, 0, 5) == held, "a second sync brings nothing back"
        made.crash(random.Random(seed))
        assert made.get("log", log_key(1, 0, 5)) == held
        found.add(held)
    assert found == {None, b"entry"}


def test_what_is_cut_in_memory_stays_on_disk_until_that_is_synced() -> None:
    made = SimulatedStorage("s")
    for value in (b"old", b"new"):
        writes = WriteSet()
        writes.put("log", log_key(1, 0, 5), value)
        made.write(writes)
        assert made.on_disk(1, 0, 5) == (None if value == b"old" else b"old")
        made.sync()
        assert made.on_disk(1, 0, 5) == value


def test_a_log_that_begins_behind_it_had_it_where_there_is_retention(world: World) -> None:
    writes = WriteSet()
    writes.delete("log", log_key(1, 0, 0))
    writes.put("log", log_key(1, 0, 1), stamp(encode_batch([b"p/1"], now_ms=5), 1, 1, 5))
    storage(world, "broker-2").write(writes)
    acked(world)
    storage(world, "broker-2").sync()
    refused(world, "['broker-1', 'broker-3']")
    looks = Looks(world)
    looks.starts[QUEUE] = 0
    looks.acked(QUEUE, 0, MESSAGE)
    with pytest.raises(BrokenProperty, match="what is acknowledged is on disk"):
        looks.acked(QUEUE, 1, MESSAGE)


def test_a_control_entry_in_its_place_is_no_message(world: World) -> None:
    writes = WriteSet()
    control = encode_control(ControlKind.PRODUCER_EXPIRY, MESSAGE)
    writes.put("log", log_key(1, 0, 0), stamp(control, 0, 1, 5))
    storage(world, "broker-3").write(writes)
    storage(world, "broker-3").sync()
    refused(world, "['broker-1', 'broker-2']")


def test_a_cut_below_the_hw_is_seen_though_nothing_is_left_of_it(world: World) -> None:
    looks = Looks(world)
    world.start("broker-1")
    world.scheduler.run(0.1)
    core = world.broker("broker-1")
    assert core is not None
    looks.look()
    core.stats.count("cuts_below_hw")
    with pytest.raises(BrokenProperty, match="broker-1 was told 1 times to cut below its HW"):
        looks.look()
    storage(world, "broker-1").flipped = True
    looks.look()


def test_the_greatest_start_of_any_replica_is_remembered(world: World) -> None:
    looks = Looks(world)
    looks.starts[QUEUE] = 0
    for start in (5, 3):
        queues = SimpleNamespace(by_name={QUEUE: SimpleNamespace(start=start)})
        world.on_broker_turn(SimpleNamespace(queues=queues))  # type: ignore[arg-type]  # all that is asked of it
    assert looks.starts == {QUEUE: 5}
