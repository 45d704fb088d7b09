"""A broker's folder as an older program would have left it.

Format 1 differs from format 2 in one thing: released batches stand with their body, and nobody is
noted as a borrower (`logboom.nodes.log.body_references`). What a folder holds reads the same in both, so a
run goes on in the same way; what lies below it, and what retention makes of it, is another.
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.log.body_references import referenced_key
from logboom.nodes.log.storage import PUT, Operation
from tests.sim.world.disk_image import QUEUE_KEY, Table, entry_of

OLDEST: Final = 1
"""Format of folders that this build still opens."""


def is_borrower(key: bytes) -> bool:
    """Whether a key of family `state` says who borrows a body."""
    return key[QUEUE_KEY : QUEUE_KEY + 1] == b"b"


def aged(
    log: Table, state: Table, written: list[list[Operation]]
) -> tuple[int, list[list[Operation]]]:
    """Change both tables, and the write sets that come behind them; how many bodies came back, and
    the write sets, as many as before."""
    bodies = 0
    for key, stored in list(log.values.items()):
        if referenced_key(key, stored) is not None:
            bodies += 1
            log.values[key] = entry_of(log, key, stored)
    for key in [key for key in state.keys if is_borrower(key)]:
        state.delete_range(key, key + b"\0")
    # As they are applied one after the other: a place may be written anew, and lend another body.
    at_work = Table()
    at_work.replace(log)
    sets: list[list[Operation]] = []
    for operations in written:
        rest: list[Operation] = []
        for kind, family, key, value in operations:
            if family == "state" and kind == PUT and is_borrower(key):
                continue
            whole = value
            if family == "log":
                if kind == PUT and referenced_key(key, value) is not None:
                    bodies += 1
                    whole = entry_of(at_work, key, value)
                at_work.change(kind, key, whole)
            rest.append((kind, family, key, whole))
        sets.append(rest)
    return bodies, sets
