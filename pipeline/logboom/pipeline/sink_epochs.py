"""Queries with the same `txnAppId`: one owns it, and of its runs the newest fences the older ones.

Two queries would have equal numbers, and each would take what the other has published for its own.
So the name servers keep the id of the first query, and refuse others. Two runs of one query, such as
those of a checkpoint and its copy, have the same id. A run takes over the application id with its
first write. The epoch of that is stored in the name servers' log, as the greatest sequence of an
artificial application id that belongs to the run alone. So the next process that writes for the run
continues in the same epoch.
"""

from __future__ import annotations

import hashlib
from typing import Final

from logboom.client import Client
from logboom.wire.transactions import MADE_UP

_EPOCHS: Final[dict[tuple[str, str, str, str], int]] = {}
"""The epochs that this process has taken."""


def epoch_of(
    boom: Client, servers: str, app_id: str, query: str, run: str, replaces: str = ""
) -> int:
    """Return the epoch in which a run of a query owns an application id.

    The first call takes the id over.

    Raises:
        TransactionError: APPLICATION_TAKEN: the id belongs to another query.
        TimedOut: no name server answered.
    """
    key = (servers, app_id, run, replaces)
    if key in _EPOCHS:
        return _EPOCHS[key]
    whose = hashlib.sha256(f"{run} {app_id}".encode()).hexdigest()
    note = f"{MADE_UP}spark-run-{whose}"
    _, noted = boom.take_over(note)
    if noted < 0:
        noted, _ = boom.take_over(app_id, owner=query, replaces=replaces)
        boom.decide(note, noted, [])
    _EPOCHS[key] = noted
    return noted
