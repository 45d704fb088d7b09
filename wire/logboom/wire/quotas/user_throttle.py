"""One user at one node: its rates, and its requests that wait for them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from logboom.wire.access.access_rules import Quota
from logboom.wire.base import WireMessage
from logboom.wire.messages import Produce, Propose, Pull, Watch
from logboom.wire.quotas.token_bucket import TokenBucket
from logboom.wire.quotas.waiting_line import WaitingLine, WaitingRequest
from logboom.wire.subscription_messages import Receive
from logboom.wire.transactions import Decide

NEVER: Final = float("inf")


WINDOW_S: Final = 8
"""Seconds of a rate whose batches may wait; those beyond it are sent again."""
MIN_WINDOW_BYTES: Final = 8 * 1024 * 1024
"""The same at rates below one MiB a second, so that some batches may wait."""


class Lane(IntEnum):
    """What a request costs; the lanes of a user do not wait for each other."""

    PRODUCE = 0
    FETCH = 1
    OTHER = 2
    APART = 3
    """WATCH and decisions on transactions, at the rate of requests, but without waiting for others:
    who is over its quota goes on following, and ends its transactions."""


LANES: Final[dict[type, Lane]] = {
    Produce: Lane.PRODUCE,
    Pull: Lane.FETCH,
    Receive: Lane.FETCH,
    Watch: Lane.APART,
}
"""Request → its lane, but for decisions; all others are in `OTHER`."""
BATCH_LANES: Final = (Lane.PRODUCE, Lane.FETCH)
"""Lanes of requests with batches: these wait without an end, and their answers say for how long."""


def lane_of(message: WireMessage) -> Lane:
    """Return the lane of a request."""
    if isinstance(message, Propose) and isinstance(message.command, Decide):
        return Lane.APART
    return LANES.get(type(message), Lane.OTHER)


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
        self._apart: TokenBucket | None = None

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
        self._apart = _changed(self._apart, quota.requests_per_s, now)
        self.limited = any((self._produce, self._fetch, self._requests))

    def wait_s(self, lane: Lane, now: float) -> float:
        """Return the seconds until the next request of a lane may be served; 0.0: it may now."""
        requests, bucket = self._requests_of(lane), self._bucket(lane)
        wait_s = 0.0 if requests is None else requests.wait_s(now)
        return wait_s if bucket is None else max(wait_s, bucket.wait_s(now))

    def outlook_s(self, lane: Lane, now: float) -> float:
        """Estimate the seconds until a new request of a lane would be served."""
        line, wait_s = self.lines[lane], self.wait_s(lane, now)
        requests = self._requests_of(lane)
        if requests is not None:
            wait_s = max(wait_s, len(line) / requests.rate_per_s)
        if lane is Lane.PRODUCE and self._produce is not None:
            wait_s += line.waiting_bytes / self._produce.rate_per_s
        return wait_s

    def room_bytes(self, lane: Lane) -> float:
        """Return how many more bytes may wait in a lane, as far as its rate says."""
        bucket = self._produce if lane is Lane.PRODUCE else None
        if bucket is None:
            return NEVER
        window = max(MIN_WINDOW_BYTES, WINDOW_S * bucket.rate_per_s)
        return window - self.lines[lane].waiting_bytes

    def charge(self, request: WaitingRequest, lane: Lane, now: float) -> None:
        """Charge a request that is served now."""
        requests = self._requests_of(lane)
        if requests is not None:
            requests.take(1, now)
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

    def _requests_of(self, lane: Lane) -> TokenBucket | None:
        return self._apart if lane is Lane.APART else self._requests

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
