"""How often somebody may try passwords: failures are counted for each viewer and each address, pure.

The first few failures cost nothing. After each further one the viewer, or the address, waits twice as
long as before. An address gets more tries than a viewer, since many people may share it. An attacker
who locks a viewer out is told apart by no password, so that a viewer waits five minutes at most.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

FREE_FAILURES: Final = {"viewer": 5, "address": 20}
"""Kind of a counter → failures that cost no time."""
MAX_WAIT_S: Final = 300.0
FORGOTTEN_S: Final = 3_600.0
"""Seconds after the last failure at which a counter begins anew."""
MAX_COUNTERS: Final = 20_000
"""Counters that are kept; the oldest is given up for a new one."""


@dataclass(slots=True)
class FailureCounter:
    """The failures of one viewer or address."""

    failures: int
    last_mono_s: float


class SignInLimits:
    """The failures of all viewers and addresses."""

    def __init__(self) -> None:
        self._counters: OrderedDict[tuple[str, str], FailureCounter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counters)

    def wait_s(self, viewer: str, address: str, now_mono_s: float) -> float:
        """Return how many seconds must pass before a password is looked at; 0: none."""
        return max(self._wait_s(key, now_mono_s) for key in _keys(viewer, address))

    def _wait_s(self, key: tuple[str, str], now_mono_s: float) -> float:
        counter = self._counters.get(key)
        if counter is None or now_mono_s - counter.last_mono_s > FORGOTTEN_S:
            return 0.0
        above = counter.failures - FREE_FAILURES[key[0]]
        if above < 0:
            return 0.0
        # 2**16 s are more than the maximum: a greater power would only cost time.
        wait_s = min(2.0 ** min(above, 16), MAX_WAIT_S)
        return max(0.0, counter.last_mono_s + wait_s - now_mono_s)

    def failed(self, viewer: str, address: str, now_mono_s: float) -> None:
        """Count a try, before its password is checked; `succeeded` takes it back."""
        for key in _keys(viewer, address):
            counter = self._counters.pop(key, None)
            if counter is None or now_mono_s - counter.last_mono_s > FORGOTTEN_S:
                counter = FailureCounter(0, now_mono_s)
            counter.failures += 1
            counter.last_mono_s = now_mono_s
            self._counters[key] = counter
        while len(self._counters) > MAX_COUNTERS:
            self._counters.popitem(last=False)

    def succeeded(self, viewer: str, address: str) -> None:
        """Forget the failures of a viewer, and the try that succeeded. Other failures of the address
        stay: one good account must not help to guess others."""
        of_viewer, of_address = _keys(viewer, address)
        self._counters.pop(of_viewer, None)
        counter = self._counters.get(of_address)
        if counter is not None:
            counter.failures -= 1
            if counter.failures <= 0:
                del self._counters[of_address]


def _keys(viewer: str, address: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("viewer", viewer[:64]), ("address", network_of(address))


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
