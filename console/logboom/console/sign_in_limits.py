"""How often somebody may try passwords: failures are counted for each viewer at each address, pure.

The first few failures of a pair, a viewer at an address, cost nothing. After each further one the pair
waits twice as long as before. So nobody's failures keep a viewer out at another address, and those of
its neighbours do not either.

Who tries one viewer from many addresses, or many viewers from one address, meets no pair twice. Therefore
both also count the pairs that failed: beyond some, further tries take turns at a pace, and a right
password gets in when its turn comes. A viewer that has signed in from an address before waits for no
turn there.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

FREE_FAILURES: Final = {"pair": 5}
"""Failures that cost no time."""
FREE_PAIRS: Final = {"viewer": 10, "address": 20}
"""Pairs with failures, of a viewer or of an address, that cost no time."""
MAX_WAIT_S: Final = 300.0
"""Seconds that a pair waits at most."""
MAX_PACE_S: Final = {"viewer": 30.0, "address": 5.0}
"""Seconds between two turns, at most."""
MAX_HELD_S: Final = 30.0
"""Seconds for which a try waits for its turn; whose turn is later is refused."""
FORGOTTEN_S: Final = 3_600.0
"""Seconds after the last failure at which a counter begins anew."""
MAX_COUNTERS: Final = 20_000
"""Counters of each kind that are kept; the oldest is given up for a new one."""

Side: TypeAlias = Literal["viewer", "address"]


class SignInTurn(NamedTuple):
    """What becomes of a try."""

    is_refused: bool
    wait_s: float
    """Seconds until its password is looked at; if it is refused, until another try is sensible."""


@dataclass(slots=True)
class FailureCounter:
    """The failures of one pair."""

    failures: int
    last_mono_s: float


@dataclass(slots=True)
class PairCounter:
    """The pairs with failures of one viewer or one address."""

    pairs: int = 0
    last_mono_s: float = 0.0
    next_turn_mono_s: float = 0.0

    def pace_s(self, side: Side) -> float:
        """Return the seconds between two turns; 0: no turns."""
        above = self.pairs - FREE_PAIRS[side]
        return 0.0 if above < 0 else min(2.0 ** min(above, 16), MAX_PACE_S[side])


class SignInLimits:
    """The failures of all viewers and addresses."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[str, str], FailureCounter] = OrderedDict()
        """Viewer and network → its failures; the oldest first, as in all tables here."""
        self._sides: dict[Side, OrderedDict[str, PairCounter]] = {
            "viewer": OrderedDict(),
            "address": OrderedDict(),
        }
        self._good: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Viewers and networks that they have signed in from."""

    def __len__(self) -> int:
        return len(self._pairs) + len(self._good) + sum(map(len, self._sides.values()))

    def begin(self, viewer: str, address: str, now_mono_s: float) -> SignInTurn:
        """Take a try, and count it as a failure unless it is refused; `succeeded` takes it back.

        It is counted before its password is checked, so that many at once are no way around the limits.
        """
        pair = _pair(viewer, address)
        wait_s = self._pair_wait_s(pair, now_mono_s)
        if wait_s > 0:
            return SignInTurn(True, wait_s)
        counters: list[tuple[Side, PairCounter]] = [
            ("viewer", self._side("viewer", pair[0], now_mono_s)),
            ("address", self._side("address", pair[1], now_mono_s)),
        ]
        if pair not in self._good:
            wait_s = max(0.0, *(each.next_turn_mono_s - now_mono_s for _, each in counters))
            if wait_s > MAX_HELD_S:
                return SignInTurn(True, wait_s)
            for side, each in counters:
                pace_s = each.pace_s(side)
                if pace_s > 0:
                    each.next_turn_mono_s = max(now_mono_s, each.next_turn_mono_s) + pace_s
        self._count(pair, counters, now_mono_s)
        return SignInTurn(False, wait_s)

    def _pair_wait_s(self, pair: tuple[str, str], now_mono_s: float) -> float:
        counter = self._pairs.get(pair)
        if counter is None or now_mono_s - counter.last_mono_s > FORGOTTEN_S:
            return 0.0
        above = counter.failures - FREE_FAILURES["pair"]
        if above < 0:
            return 0.0
        # 2**16 s are more than the maximum: a greater power would only cost time.
        wait_s = min(2.0 ** min(above, 16), MAX_WAIT_S)
        return max(0.0, counter.last_mono_s + wait_s - now_mono_s)

    def _side(self, side: Side, name: str, now_mono_s: float) -> PairCounter:
        """Return the counter of a viewer or an address, which becomes the newest."""
        table = self._sides[side]
        found = table.pop(name, None)
        if found is None or now_mono_s - found.last_mono_s > FORGOTTEN_S:
            found = PairCounter(last_mono_s=now_mono_s)
        table[name] = found
        _keep_newest(table)
        return found

    def _count(
        self, pair: tuple[str, str], counters: list[tuple[Side, PairCounter]], now_mono_s: float
    ) -> None:
        counter = self._pairs.pop(pair, None)
        is_new = counter is None or now_mono_s - counter.last_mono_s > FORGOTTEN_S
        if counter is None or is_new:
            counter = FailureCounter(0, now_mono_s)
        counter.failures += 1
        counter.last_mono_s = now_mono_s
        self._pairs[pair] = counter
        _keep_newest(self._pairs)
        for _, each in counters:
            each.pairs += is_new
            each.last_mono_s = now_mono_s

    def succeeded(self, viewer: str, address: str) -> None:
        """Forget the failures of a viewer at an address, the try that succeeded included. Those of other pairs
        stay: one good account must not help to guess others."""
        pair = _pair(viewer, address)
        if self._pairs.pop(pair, None) is not None:
            of_viewer = self._sides["viewer"].get(pair[0])
            of_address = self._sides["address"].get(pair[1])
            for counter in (of_viewer, of_address):
                if counter is not None and counter.pairs > 0:
                    counter.pairs -= 1
        self._good.pop(pair, None)
        self._good[pair] = None
        _keep_newest(self._good)


def _keep_newest(table: OrderedDict[Any, Any]) -> None:
    if len(table) > MAX_COUNTERS:
        table.popitem(last=False)


def _pair(viewer: str, address: str) -> tuple[str, str]:
    return viewer[:64], network_of(address)


def network_of(address: str) -> str:
    """Return what counts as one address: of IPv6 the network of 64 bits, which one household has."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return str(parsed)
