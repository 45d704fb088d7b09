"""Allocation of 10,000 queues to 1,000 members by every strategy, and what joins and leaves move.

This is pure computation in this process, without a cluster, measured as processor time.
"""

from __future__ import annotations

import math
import time
from typing import Any, Final

from bench.figures import Figure, compared
from bench.references import PYTHON_CPU
from logboom.metadata.allocate import STRATEGIES, allocate, owners

RUNS: Final = 5
BARS: Final = {
    "averagely": 1.0,
    "averagely_by_circle": 1.0,
    "by_config": 3.5,
    "consistent_hash": 60.0,
    "machine_room": 2.2,
    "machine_room_nearby": 2.1,
    "sticky": 8.5,
}
TOPICS: Final = 100
ROOMS: Final = 3

Options = dict[str, Any]
Queue = tuple[int, int]
"""(topic id, number), as in the replicated state."""


def _room(value: Queue | str) -> str:
    number = int(value[-4:]) if isinstance(value, str) else value[1]
    return f"room-{number % ROOMS}"


def _options(strategy: str, queues: list[Queue], members: list[str]) -> Options:
    """Return the options of a strategy.

    Sticky knows a group with one member less, so that it moves queues.
    """
    match strategy:
        case "by_config":
            return {"config": allocate("averagely", queues, members)}
        case "machine_room":
            return {"rooms": [f"room-{n}" for n in range(ROOMS)], "room_of": _room}
        case "machine_room_nearby":
            return {"room_of": _room}
        case "sticky":
            return {"previous": allocate("sticky", queues, members[1:])}
    return {}


def _moves(strategy: str, queues: list[Queue], before: list[str], after: list[str]) -> int:
    """Return the number of queues that change hands when the group changes."""
    first = allocate(strategy, queues, before)
    then = owners(allocate(strategy, queues, after, previous=first))
    return sum(then[queue] != member for queue, member in owners(first).items())


def rows(members: int, queues: int) -> list[Figure]:
    """Return all figures for a group of this many members and queues."""
    group = [f"member-{n:04}" for n in range(members)]
    named = [(n % TOPICS, n // TOPICS) for n in range(queues)]
    size = f"{members:,} members, {queues:,} queues"
    # A member with a middle name, because the first or last one is a favourable case of averagely.
    without = [member for member in group if member != group[members // 2]]
    found = []
    for strategy in STRATEGIES:
        options = _options(strategy, named, group)

        def once(_: int, strategy: str = strategy, options: Options = options) -> list[float]:
            began = time.process_time()
            allocate(strategy, named, group, **options)
            return [1_000 * (time.process_time() - began)]

        (taken,) = PYTHON_CPU.beside(RUNS, once)
        found.append(compared(f"{size}: {strategy}", taken, "ms", BARS[strategy], "less"))
    for strategy in ("sticky", "consistent_hash", "averagely"):
        joined = _moves(strategy, named, without, group)
        left = _moves(strategy, named, group, without)
        # Sticky moves only the share of the new member.
        bar = math.ceil(queues / members) if strategy == "sticky" else None
        found.append(Figure(f"  … {strategy}, queues moved by a join", joined, "", bar, "less"))
        found.append(Figure(f"  … {strategy}, queues moved by a leave", left, ""))
    return found
