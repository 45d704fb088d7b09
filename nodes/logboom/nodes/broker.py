"""The broker: a state machine over events, composed of the pure parts beside it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from logboom.nodes.config import BrokerConfig
from logboom.nodes.storage import Storage
from logboom.wire.actor import Effects, Event, Instant


class Broker:
    """One broker node; a skin or the simulation drives it (`wire.actor.Core`)."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        rng: random.Random,
        incarnation: str,
        cluster_key: bytes = b"",
    ) -> None:
        """Open all queues that `storage` holds; `config.advertise` must be filled in.

        `incarnation` is random per process. The storage's content counts as on disk.
        """
        self.config = config
        self.storage = storage
        self.rng = rng
        self.incarnation = incarnation
        self.cluster_key = cluster_key

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """Take a turn's events; `Call("stop")` begins a graceful stop, ended by `stop=""`."""
        raise NotImplementedError

    def deadline(self) -> float | None:
        """Monotonic time of the next turn that is wanted without events."""
        raise NotImplementedError
