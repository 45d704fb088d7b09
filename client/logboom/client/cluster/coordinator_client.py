"""Requests to a group's coordinator, wherever it is.

Any broker knows who coordinates a group: one that does not answers NOT_COORDINATOR and names the
coordinator. A broker that is silent, or gone from the metadata, is left for another.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeAlias

from logboom.client.cluster.leader_cache import Verdict
from logboom.client.cluster.metadata_updater import MetadataUpdater
from logboom.client.cluster.request_router import RequestRouter, RoutedRequest
from logboom.wire.base import WireMessage
from logboom.wire.errors import InternalError, LogboomError, RetryableError, TimedOut
from logboom.wire.messages import AnyMessage

ATTEMPT_TIMEOUT_S: Final = 3.0
"""Seconds that a broker gets to answer a request that it does not hold."""
STUBBORN: Final = 4
"""Refusals of one request before another broker is asked."""

Done: TypeAlias = Callable[[AnyMessage | LogboomError], None]


class CoordinatorClient:
    """The coordinator of one group, as far as it is known (a `Role`)."""

    def __init__(
        self, group: str, asking: RequestRouter, watching: MetadataUpdater, rng: random.Random
    ) -> None:
        self._group = group
        self._asking = asking
        self._watching = watching
        self._rng = rng
        self._endpoint = ""
        self._epoch = -1

    def ask(
        self,
        make: Callable[[int], WireMessage],
        done: Done,
        timeout: float,
        patience: float = ATTEMPT_TIMEOUT_S,
    ) -> RoutedRequest:
        """Ask until there is an answer or a final error, for at most `timeout` seconds.

        `make` gets the milliseconds of one attempt, which lasts `patience` seconds.
        """
        return self._asking.ask(
            self,
            make,
            lambda reply: done(reply.message or reply.error or InternalError("an empty reply")),
            timeout,
            patience,
        )

    def endpoint(self) -> str | None:
        """Return the broker to ask, or None while none is known to be alive."""
        if not self._endpoint and (live := self._live()):
            self._endpoint = self._rng.choice(sorted(live))
        return self._endpoint or None

    def refused(self, endpoint: str, error: LogboomError, failures: int) -> Verdict:
        """Learn who coordinates instead, or leave a broker that is of no use."""
        if error.code == "NOT_COORDINATOR":
            return "at once" if self._follow(endpoint, error) else "later"
        if not isinstance(error, RetryableError) or error.code == "STALE_EPOCH":
            return "end"
        silent = isinstance(error, TimedOut)
        if endpoint == self._endpoint and (silent or failures % STUBBORN == 0):
            # Any other broker knows who coordinates.
            others = [each for each in self._live() if each != endpoint]
            self._endpoint = self._rng.choice(sorted(others)) if others else endpoint
        return "later"

    def has_left(self, endpoint: str) -> bool:
        """True if a broker is not alive: once fenced, it does not answer."""
        self.rerouted()
        return endpoint not in self._live()

    def timed_out(self, last: LogboomError | None) -> TimedOut:
        """Return the error of a request whose time is over."""
        why = f": {last}" if last is not None else ": no broker is known to be alive"
        return TimedOut(f"the coordinator of group {self._group!r} did not answer in time{why}")

    def rerouted(self) -> None:
        """Forget a broker that the metadata calls dead."""
        if self._endpoint not in self._live():
            self._endpoint = ""

    def _live(self) -> list[str]:
        return [b.endpoint for b in self._watching.routes.brokers.values() if b.alive]

    def _follow(self, endpoint: str, error: LogboomError) -> bool:
        """Take the coordinator that a broker names, unless a newer one is known.

        Returns True if it is another broker.
        """
        name, epoch = error.fields.get("coordinator"), error.fields.get("epoch")
        broker = self._watching.routes.brokers.get(name) if isinstance(name, str) else None
        named = error.fields.get("endpoint") if broker is None else broker.endpoint
        if isinstance(named, str) and isinstance(epoch, int) and epoch >= self._epoch:
            self._epoch, self._endpoint = epoch, named
            return named != endpoint
        if endpoint == self._endpoint:
            self._endpoint = ""
        return False
