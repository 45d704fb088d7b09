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
from functools import lru_cache

from logboom.pipeline.clients import client
from logboom.wire.transactions import MADE_UP


@lru_cache(maxsize=1_024)
def epoch_of(
    servers: str, timeout_s: float, app_id: str, query: str, run: str, replaces: str = ""
) -> int:
    """Return the epoch in which a run of a query owns an application id.

    The first call takes the id over.

    Raises:
        TransactionError: APPLICATION_TAKEN: the id belongs to another query.
        TimedOut: no name server answered.
    """
    boom = client(servers, timeout_s)
    whose = hashlib.sha256(f"{run} {app_id}".encode()).hexdigest()
    note = f"{MADE_UP}spark-run-{whose}"
    _, noted = boom.take_over(note)
    if noted >= 0:
        return noted
    epoch, _ = boom.take_over(app_id, owner=query, replaces=replaces)
    boom.decide(note, epoch, [])
    return epoch
