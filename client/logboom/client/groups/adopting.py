"""A newer subscription of the group: finish what is out, commit it, and join again with it.

Then nothing is delivered twice. Members do so in turn, each after a wait of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from logboom.client.groups.committing import Committing
from logboom.client.groups.custody import Custody
from logboom.client.outcome import Outcome
from logboom.client.turn import Turn

NOTHING: Final[dict[str, str]] = {}


class Adopting:
    """What one member does about it."""

    def __init__(
        self, custody: Custody, committing: Committing, turn: Turn, rng: random.Random
    ) -> None:
        self._custody = custody
        self._committing = committing
        self._turn = turn
        self._rng = rng
        self._subscription = NOTHING
        self._at = 0.0
        self._committed = False
        """The last commit is under way."""

    @property
    def wanted(self) -> bool:
        """Whether there is a newer one."""
        return bool(self._subscription)

    @property
    def quiescing(self) -> bool:
        """Whether its turn has come: nothing new is begun."""
        return self.wanted and self._turn.now >= self._at

    def begin(self, subscription: dict[str, str], within_s: float) -> None:
        """The group has this subscription now; adopt it at some time in `within_s`."""
        if not self.wanted:
            self._subscription = subscription
            self._at = self._turn.now + self._rng.random() * within_s

    def stop(self) -> None:
        """The member joins again for another reason."""
        self._subscription = NOTHING

    def step(self, rejoin: Callable[[dict[str, str]], None]) -> None:
        """Go on as far as possible now; `rejoin` is called in the end."""
        if not self.quiescing:
            return
        self._custody.quiesce()
        if self._committed or not self._custody.quiet():
            return
        self._committed = True
        done: Outcome[None] = Outcome()

        def committed() -> None:
            self._committed = False
            if self.wanted:
                subscription, self._subscription = self._subscription, NOTHING
                rejoin(subscription)

        done.add_callback(committed)
        self._committing.commit(done)
