"""What operators do to a cluster at work."""

from __future__ import annotations

import random

from tests.chaos.catalogue import Struck, fault
from tests.chaos.rig import Rig


def _nothing() -> None:
    """For what is over once it has struck."""


@fault(combines=False)
def rolling_restart(rig: Rig, rng: random.Random) -> Struck:
    """Every node in turn, in good order."""
    names = [*rig.servers, *rig.brokers]
    rng.shuffle(names)
    for name in names:
        rig.restart(name)
        rig.wait_whole()
    return Struck(" ".join(names), 0.0, _nothing)


@fault(combines=False)
def rolling_upgrade(rig: Rig, rng: random.Random) -> Struck:
    """Every node in turn becomes the next version, or goes back to this one."""
    there = not rig.next_version
    names = [*rig.servers, *rig.brokers]
    rng.shuffle(names)
    for name in names:
        if there:
            rig.next_version.add(name)
        else:
            rig.next_version.discard(name)
        rig.restart(name)
        rig.wait_whole()
    return Struck("to protocol + 1" if there else "back to this protocol", 0.0, _nothing)


@fault(combines=False)
def empty_broker(rig: Rig, rng: random.Random) -> Struck:
    """A broker's disk is lost: an empty one takes its place and catches up under load."""
    name = rng.choice(rig.brokers)
    rig.kill([name])
    rig.lose_disk(name)
    return Struck(name, rng.uniform(0.1, 4.0), lambda: rig.start([name]))


@fault(combines=False)
def new_name_server(rig: Rig, rng: random.Random) -> Struck:
    """A name server's disk is lost: `logboom name-server remove`, a new member, `add` (R12)."""
    lost = rng.choice(rig.servers)
    rig.kill([lost])
    return Struck(lost, rng.uniform(0.1, 2.0), lambda: rig.replace(lost))
