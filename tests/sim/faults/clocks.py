"""Clocks that jump, strobe and drift.

Monotonic clocks stay within ±0.5 % of true time, which is what `lease + raft leader fallback ≤
session` (SAFETY Q11) leaves room for: ±0.5 % at both ends bend 3 s by 30 ms, less than a raft
election takes. A clock that runs per cents wrong is outside the fault model: acks=all stays safe
(it never asks the time), acks=leader and end offsets need not. Wall clocks may do anything.
"""

from __future__ import annotations

from typing import Final

from tests.sim.faults.hand import Fault, Hand

SPEED: Final = (0.995, 1.005)
JUMPS_MS: Final = (3_600_000, 30 * 86_400_000)
"""How far a wall clock is set ahead or back at most: an hour, or beyond all that is kept for a time."""
FURTHEST_MS: Final = 19 * 86_400_000
"""How far a wall clock is from the true time at most: brokers refuse a delay of more than 40 days, and by
two clocks that are further apart a short one is as long."""


class ClockFaults:
    """What befalls clocks, those of clients too."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand

    def weights(self) -> dict[Fault, float]:
        """How often each should come, relative to the others."""
        return {self.jump: 0.5, self.strobe: 0.5, self.drift: 0.7}

    def _anybody(self) -> str:
        return self._hand.rng.choice(self._hand.others(()))

    def jump(self) -> bool:
        """A wall clock is set."""
        name = self._hand.victim().name if self._hand.rng.random() < 0.7 else self._anybody()
        self._jump(name, self._hand.rng.choice(JUMPS_MS))
        self._hand.note(name, "wall clock jumps")
        return True

    def _jump(self, name: str, most_ms: int) -> None:
        ahead = self._hand.rng.randint(-most_ms, most_ms)
        clock = self._hand.world.machines[name].clock
        clock.wall_ahead_ms = max(-FURTHEST_MS, min(clock.wall_ahead_ms + ahead, FURTHEST_MS))

    def strobe(self) -> bool:
        """A wall clock jumps to and fro, faster than anything waits."""
        hand, rng = self._hand, self._hand.rng
        name = self._anybody()
        at = 0.0
        for _ in range(rng.randint(10, 40)):
            at += rng.uniform(0.005, 0.15)
            hand.later(at, lambda: self._jump(name, 120_000))
        hand.note(name, "wall clock strobes")
        return True

    def drift(self) -> bool:
        """A monotonic clock runs at another speed from now on."""
        name = self._anybody()
        machine = self._hand.world.machines[name]
        speed = self._hand.rng.uniform(*SPEED)
        machine.clock.drift(speed)
        if machine.process is not None:
            machine.process.wake()
        self._hand.note(name, f"clock runs at {speed:.4f}")
        return True
