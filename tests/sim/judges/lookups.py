"""Lookups by message time, held against a reading of the whole log.

Messages of a run have times that go back, and times far in the future. A lookup that answers BUSY is
asked again, as clients do; each one must go on from where the last one ended, so that it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from logboom.nodes.log import index
from logboom.nodes.log.keys import log_key
from logboom.wire.batch import open_batch, peek
from logboom.wire.errors import Unavailable
from tests.sim.world.trace import BrokenProperty

if TYPE_CHECKING:
    from logboom.nodes.log.storage import Storage
    from logboom.nodes.replica.replica import Replica
    from tests.sim.world.world import World

SAMPLES: Final = 24
"""Times that are looked up in each replica."""


def judge_lookups(world: World) -> None:
    """Look times up in every replica of every broker that runs.

    Raises:
        BrokenProperty: a lookup is wrong, or does not end.
    """
    for machine in world.nodes("broker"):
        core = world.broker(machine.name)
        storage = machine.storage
        if core is None or storage is None or storage.flipped:
            continue
        with pytest.MonkeyPatch.context() as patch:
            # A batch or two: so lookups are broken off.
            patch.setattr(index, "LOOKUP_BYTES", 300)
            for replica in core.queues:
                if replica.damage is None and not replica.restoring:
                    _judge(machine.name, replica, core.queues.storage, world)


def _judge(broker: str, replica: Replica, storage: Storage, world: World) -> None:
    topic_id, queue = replica.key
    first, end = (
        log_key(topic_id, queue, replica.start),
        log_key(topic_id, queue, *replica.readable),
    )
    batches = []
    entries = 0
    for _, entry in storage.scan("log", first, end):
        entries += 1
        head = peek(entry)
        if head.count and not head.is_control:
            batches.append((head, list(open_batch(entry, head).timestamps())))
    known = sorted({time_ms for _, times in batches for time_ms in times})
    asked = known[:: max(1, len(known) // SAMPLES)] + known[-1:]
    for timestamp_ms in [each + more for each in asked for more in (0, 1)]:
        wanted = (replica.readable.offset, -1)
        for head, times in batches:
            if head.max_timestamp_ms >= timestamp_ms:
                place = next(n for n, time_ms in enumerate(times) if time_ms >= timestamp_ms)
                wanted = (head.base_offset + place, times[place])
                break
        found = _ask(replica, timestamp_ms, 2 * entries + 10, world)
        if found != wanted:
            raise BrokenProperty(
                "a lookup by time is right",
                f"{broker} {replica.topic}/{replica.queue} {timestamp_ms}: {found}, not {wanted}",
            )


def _ask(replica: Replica, timestamp_ms: int, tries: int, world: World) -> tuple[int, int] | None:
    for _ in range(tries):
        try:
            found = replica.index.offset_for_time(timestamp_ms, replica.start, replica.readable)
        except Unavailable:
            world.trace.count("lookups broken off")
            continue
        world.trace.count("lookups by time")
        return found
    return None
