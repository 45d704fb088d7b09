"""Strikes a cluster with one fault after the other."""

from __future__ import annotations

import random
import time
from typing import Final

import msgspec

from logboom.wire.errors import LogboomError
from tests.chaos.catalogue import Struck
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.outages import BAR_S, UNHURT_S, Event
from tests.chaos.plan import Plan
from tests.chaos.rig import Rig

REST_S: Final = (0.5, 3.0)
"""Between a cluster that is whole again and the next fault."""
TOGETHER: Final = 0.2
"""Share of faults that strike with a second one."""


class Weather:
    """Strikes one fault after the other."""

    def __init__(self, plan: Plan, rig: Rig) -> None:
        self._plan = plan
        self._rig = rig
        self._rng = random.Random(plan.seed)
        self.began = time.monotonic()
        self.events: list[Event] = []

    def blow(self) -> None:
        """Every fault once, in order, then at random until the time is over."""
        chosen = [FAULTS[name] for name in self._plan.faults]
        for fault in chosen:
            self._strike([fault])
        while time.monotonic() - self.began < self._plan.seconds:
            together = [self._rng.choice(chosen)]
            if together[0].combines and self._rng.random() < TOGETHER:
                others = [f for f in chosen if f.combines and f is not together[0]]
                together += self._rng.sample(others, min(1, len(others)))
            self._strike(together)

    def _strike(self, faults: list[Fault]) -> None:
        at = time.monotonic() - self.began
        if self.events:
            last = self.events[-1]
            self.events[-1] = msgspec.structs.replace(last, ended=at)
        struck: list[Struck] = []
        account = self._rig.account
        for fault in faults:
            before = account.lengths()
            try:
                one = fault.strike(self._rig, self._rng)
            except LogboomError as error:
                # The first of two left nobody whom the second could hit.
                if not struck:
                    raise
                self._plan.say(f"{fault.name} cannot strike now: {error}")
            else:
                struck.append(one)
                account.harm(fault.name, one.harmed, before)
        self._rig.sleep(max(one.lasts for one in struck))
        # What a mending takes, such as the start of a process, counts as outage.
        mended = time.monotonic() - self.began
        for one in struck:
            one.mend()
        name = " + ".join(fault.name for fault in faults[: len(struck)])
        whom = "; ".join(one.whom for one in struck)
        served = len(struck) == 1 and faults[0].served
        unhurt = len(struck) == 1 and faults[0].stops_nobody
        bar = None if len(struck) > 1 else UNHURT_S if unhurt else BAR_S
        self.events.append(Event(name, whom, at, mended, mended, served, bar, unhurt))
        self._rig.wait_whole()
        account.healed()
        now = time.monotonic() - self.began
        self._plan.say(f"{at:7.1f} s  {name}: {whom}; whole {now - mended:.1f} s after the mending")
        self._rig.sleep(self._rng.uniform(*REST_S))
