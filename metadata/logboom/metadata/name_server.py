"""The name server's core: raft, replicated state, WATCH, sessions; events in, effects out.

This is the interface; the body follows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from logboom.metadata.config import NameServerConfig
from logboom.metadata.journal_store import JournalStore
from logboom.metadata.raft_config import RaftConfig
from logboom.wire.actor import Effects, Event, Instant


class NameServer:
    """One name server. Listeners: "main" (clients, brokers) and "raft" (other name servers).

    It syncs its own journal through `disk` within `handle` (SAFETY R8), so its effects carry
    neither writes nor tokens, and no `Synced` ever comes.
    """

    def __init__(
        self,
        config: NameServerConfig,
        disk: JournalStore,
        rng: random.Random,
        cluster_key: bytes,
        now: Instant,
        raft_config: RaftConfig | None = None,
    ) -> None:
        """Open the journal and restore the state.

        Raises:
            JournalError: the journal or snapshot is damaged or of another node (R9).
        """
        raise NotImplementedError

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """One turn. `Call("stop")` ends in `Effects.stop == ""` after leadership was offered."""
        raise NotImplementedError

    def deadline(self) -> float | None:
        """Monotonic time of the next turn wanted without events."""
        raise NotImplementedError
