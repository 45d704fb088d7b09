"""A bulk load at the end of a run: batches of about 1 MiB into many queues, as fast as one producer
sends them; then nobody sends anything, and a broker gets an empty disk.

What one answer to a follower holds is less than what all queues have for it then. All of it must come
to every replica all the same, though nothing new ever reminds the leaders of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import Final

from logboom.client import connect
from logboom.client.results import ColumnBatch
from logboom.wire.errors import LogboomError, StartError
from tests.chaos.ledger import UNREAD, Verdict
from tests.chaos.plan import Plan
from tests.chaos.rig import WHOLE_S, Rig
from tests.sim.judges.logs import LOST

TOPIC: Final = "bulk"
QUEUES: Final = 12
VALUE_BYTES: Final = 2_000
AT_ONCE: Final = 520
"""Messages of one call: about as many as a batch holds."""
SETTLED_S: Final = 120.0
READ_S: Final = 120.0
TAKEN: Final = "a whole cluster takes a bulk load"
FILLED: Final = "an empty disk is filled though nobody sends anything"
_DRAW: Final = random.Random(61)
_FILLINGS: Final = [_DRAW.randbytes(VALUE_BYTES - 8) for _ in range(61)]


def value(number: int) -> bytes:
    """The value of a message."""
    return number.to_bytes(8, "big") + _FILLINGS[number % len(_FILLINGS)]


def load_bulk(plan: Plan, rig: Rig, verdict: Verdict) -> None:
    """Do it, on a cluster that is whole.

    Raises:
        StartError: the cluster does not become whole with the new topic.
    """
    with connect(rig.endpoints, timeout_s=WHOLE_S, client_id="bulk") as boom:
        boom.admin.create_topic(TOPIC, queues=QUEUES, replicas=3, retention_ms=-1)
    rig.health.also(TOPIC)
    rig.wait_whole()
    begun = time.monotonic()
    stored = _send(plan.bulk, rig, verdict)
    sent = time.monotonic()
    name = random.Random(f"bulk of {plan.seed}").choice(rig.brokers)
    rig.kill([name])
    rig.lose_disk(name)
    rig.start([name])
    try:
        rig.wait_whole()
    except StartError as error:
        verdict.found(FILLED, str(error))
    filled = time.monotonic()
    _read(stored, rig, verdict)
    plan.say(
        f"bulk load: {len(stored):,} of {plan.bulk:,} messages taken in {sent - begun:.1f} s; the "
        f"empty disk of {name} filled in {filled - sent:.1f} s"
    )


def _send(messages: int, rig: Rig, verdict: Verdict) -> dict[tuple[int, int], int]:
    """(queue, offset) → number of each message that was acknowledged."""
    stored: dict[tuple[int, int], int] = {}
    with connect(rig.endpoints, client_id="bulk") as boom, boom.producer() as producer:
        calls = []
        for first in range(0, messages, AT_ONCE):
            numbers = range(first, min(messages, first + AT_ONCE))
            queue = first // AT_ONCE % QUEUES
            calls.append((numbers, producer.send_many(TOPIC, [*map(value, numbers)], queue=queue)))
        for numbers, future in calls:
            left = iter(numbers)
            try:
                for queue, offset, count in future.result(SETTLED_S):
                    stored.update(((queue, offset + n), next(left)) for n in range(count))
            except LogboomError as error:
                verdict.found(TAKEN, str(error)[:200], len(numbers))
    return stored


def _read(stored: dict[tuple[int, int], int], rig: Rig, verdict: Verdict) -> None:
    """Everything that was acknowledged is read where it was said, by who comes late."""
    left = dict(stored)
    deadline = time.monotonic() + READ_S
    with (
        connect(rig.endpoints, client_id="bulk") as boom,
        boom.consumer(TOPIC, queues=range(QUEUES)) as consumer,
    ):
        while left and time.monotonic() < deadline:
            _take(consumer.poll_columns(0.5), left, verdict)
    if left:
        verdict.found(UNREAD, f"of the bulk load {sorted(left)[:3]} …", len(left))


def _take(
    batches: Iterable[ColumnBatch], left: dict[tuple[int, int], int], verdict: Verdict
) -> None:
    for batch in batches:
        for offset, held in enumerate(batch.columns.values(), batch.columns.base_offset):
            number = left.pop((batch.queue, offset), None)
            if number is not None and held != value(number):
                verdict.found(LOST, f"bulk load, queue {batch.queue} offset {offset}: {number}")
