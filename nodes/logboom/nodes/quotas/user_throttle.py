"""One user at one broker: its rates, and its requests that wait for them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from logboom.nodes.quotas.token_bucket import TokenBucket
from logboom.nodes.quotas.waiting_line import WaitingLine, WaitingRequest
from logboom.wire.access.access_rules import Quota
from logboom.wire.messages import Produce, Pull
from logboom.wire.subscription_messages import Receive

NEVER: Final = float("inf")


class Lane(IntEnum):
    """What a request costs; the lanes of a user do not wait for each other."""

    PRODUCE = 0
    FETCH = 1
    OTHER = 2


LANES: Final[dict[type, Lane]] = {Produce: Lane.PRODUCE, Pull: Lane.FETCH, Receive: Lane.FETCH}
"""Request → its lane; all others are in `OTHER`."""


class UserThrottle:
    """The rates and the waiting requests of one user.

    A produced batch is charged when it is served, what is fetched when it is sent.
    """

    def __init__(self, user: str) -> None:
        self.user = user
        self.version = -1
        """Metadata version of the quota."""
        self.limited = False
        """True if there is any rate."""
        self.lines = tuple(WaitingLine() for _ in Lane)
        self.throttled_ms = 0
        """Total time for which requests have waited."""
        self._produce: TokenBucket | None = None
        self._fetch: TokenBucket | None = None
        self._requests: TokenBucket | None = None

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return sum(map(len, self.lines))

    @property
    def waiting_bytes(self) -> int:
        """Bytes of requests that wait."""
        return sum(line.waiting_bytes for line in self.lines)

    def follow(self, quota: Quota, version: int, now: float) -> None:
        """Apply a quota of this metadata version."""
        self.version = version
        self._produce = _changed(self._produce, quota.produce_bytes_per_s, now)
        self._fetch = _changed(self._fetch, quota.fetch_bytes_per_s, now)
        self._requests = _changed(self._requests, quota.requests_per_s, now)
        self.limited = any((self._produce, self._fetch, self._requests))

    def wait_s(self, lane: Lane, now: float) -> float:
        """Return the seconds until the next request of a lane may be served; 0.0: it may now."""
        wait_s = 0.0 if self._requests is None else self._requests.wait_s(now)
        bucket = self._bucket(lane)
        return wait_s if bucket is None else max(wait_s, bucket.wait_s(now))

    def outlook_s(self, lane: Lane, now: float) -> float:
        """Estimate the seconds until a new request of a lane would be served."""
        line, wait_s = self.lines[lane], self.wait_s(lane, now)
        if self._requests is not None:
            wait_s = max(wait_s, len(line) / self._requests.rate_per_s)
        if lane is Lane.PRODUCE and self._produce is not None:
            wait_s += line.waiting_bytes / self._produce.rate_per_s
        return wait_s

    def charge(self, request: WaitingRequest, lane: Lane, now: float) -> None:
        """Charge a request that is served now."""
        if self._requests is not None:
            self._requests.take(1, now)
        if lane is Lane.PRODUCE and self._produce is not None:
            self._produce.take(request.size, now)
        if self._fetch is not None and isinstance(request.message, Pull):
            # One answer should not overdraw the bucket by more than it holds.
            message = request.message
            message.max_bytes = min(message.max_bytes, self._fetch.rate_per_s)

    def charge_fetched(self, size: int, now: float) -> None:
        """Charge bytes that are sent."""
        if self._fetch is not None:
            self._fetch.take(size, now)

    def due(self, now: float) -> float:
        """Return the monotonic time at which the next waiting request may be served."""
        return min(
            (now + self.wait_s(lane, now) for lane in Lane if self.lines[lane]), default=NEVER
        )

    def _bucket(self, lane: Lane) -> TokenBucket | None:
        if lane is Lane.PRODUCE:
            return self._produce
        return self._fetch if lane is Lane.FETCH else None


def _changed(bucket: TokenBucket | None, rate_per_s: int, now: float) -> TokenBucket | None:
    if rate_per_s <= 0:
        return None
    if bucket is None:
        return TokenBucket(rate_per_s, now)
    if bucket.rate_per_s != rate_per_s:
        bucket.change_rate(rate_per_s, now)
    return bucket
