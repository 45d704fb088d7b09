"""What the Raft leader does for users: it admits those of its configuration, and ends their keys."""

from __future__ import annotations

from typing import Final

from logboom.metadata.access.initial_keys import InitialKeys
from logboom.metadata.raft.log_commands import decode_result
from logboom.metadata.raft.raft_config import SubmitOutcome
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.wire.access.access_commands import AdmitInitialUsers, EndUserKeys
from logboom.wire.event_log import log_event

MAX_ADMITTED: Final = 200
"""Users that one command admits, so that it stays small."""


class AccessDuties:
    """The commands that are due; at most one of each kind is under way."""

    def __init__(self, keys: InitialKeys) -> None:
        self._keys = keys
        self._admitting = False
        self._ending = False
        self._refused = False
        """True if an admission was refused in this term: it would be again."""
        self._looked_at = -1
        """Version of the users at which nobody waited for admission."""

    def restart(self) -> None:
        """Begin a term: what was under way has ended."""
        self._admitting = self._ending = self._refused = False
        self._looked_at = -1

    def take_admission(self, cluster: ClusterState, wall_ms: int) -> AdmitInitialUsers | None:
        """Return the admission of users whose keys were never admitted, if it is due."""
        if self._admitting or self._refused or self._looked_at == cluster.access.version:
            return None
        fresh = self._keys.fresh(cluster)[:MAX_ADMITTED]
        if not fresh:
            self._looked_at = cluster.access.version
            return None
        self._admitting = True
        return AdmitInitialUsers(fresh, wall_ms)

    def take_ends(self, cluster: ClusterState, log_ms: int) -> EndUserKeys | None:
        """Return the end of keys, if one is due at this time of the log."""
        end_ms = cluster.access.next_end_ms()
        if self._ending or end_ms is None or end_ms > log_ms:
            return None
        self._ending = True
        return EndUserKeys(log_ms)

    def admitted(self, outcome: SubmitOutcome) -> None:
        """Note how an admission ended."""
        self._admitting = False
        if outcome.applied:
            result = decode_result(outcome.result)
            if result.code:
                self._refused = True
                log_event("initial_users_refused", text=result.text)

    def ended(self, _outcome: SubmitOutcome) -> None:
        """Note that an end of keys was applied, or has failed and is to be tried again."""
        self._ending = False

    def wait_s(self, cluster: ClusterState, log_ms: int) -> float | None:
        """Return the seconds after which keys end next; None: none does, or it is under way."""
        end_ms = cluster.access.next_end_ms()
        return None if end_ms is None or self._ending else max(0, end_ms - log_ms) / 1000
