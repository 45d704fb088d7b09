"""What a fault is, and how a function is made one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tests.chaos.rig import Rig


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that is in force."""

    whom: str
    """What it was done to, in words."""
    lasts: float
    """Seconds until it is mended."""
    mend: Callable[[], None]
    harmed: Sequence[str] = ()
    """Nodes that may end for it, or log that something is wrong: see `tests.chaos.account`."""


Strike: TypeAlias = Callable[[Rig, random.Random], Struck]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    name: str
    strike: Strike
    served: bool = True
    """Whether every queue is to be served while it is in force (after a fail-over), and not only
    once it is mended."""
    stops_nobody: bool = False
    """Whether producers and readers are to go on as if nothing had happened."""
    combines: bool = True
    """Whether another may strike at the same time."""
    needs: str = ""
    """The only kind of links that can do it."""


def fault(
    *, served: bool = True, stops_nobody: bool = False, combines: bool = True, needs: str = ""
) -> Callable[[Strike], Fault]:
    """Make a fault of a function; its name is the function's, with hyphens."""

    def make(strike: Strike) -> Fault:
        name = str(getattr(strike, "__name__", strike)).replace("_", "-")
        return Fault(name, strike, served, stops_nobody, combines, needs)

    return make


def beyond_leases(rng: random.Random) -> float:
    """Seconds, longer than a session (3 s) and every lease."""
    return rng.uniform(3.5, 7.0)
