"""Nodes that crash, stop, pause, lose their power together, or are replaced for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from logboom.wire.base import Request
from logboom.wire.errors import LogboomError
from logboom.wire.messages import AddNameServer, AnyMessage, Ok, RemoveNameServer
from tests.sim.faults.hand import Fault, Hand

if TYPE_CHECKING:
    from logboom.metadata.config import NameServerMember

STOPPED: Final = (0.2, 7.0)
"""Seconds that a process is stopped and then continued."""


class NodeFaults:
    """What befalls processes and machines."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand
        self.replacing = False
        """Whether a name server is being replaced."""

    def weights(self) -> dict[Fault, float]:
        """How often each should come, relative to the others."""
        return {
            self.crash: 4,
            self.stop: 1,
            self.pause: 2,
            self.blackout: 0.5,
            self.replace_name_server: 0.5,
        }

    def crash(self) -> bool:
        """One node is killed."""
        return self._hand.down(self._hand.victim().name)

    def stop(self) -> bool:
        """One node stops in good order."""
        running = self._hand.running()
        if running:
            self._hand.world.stop(self._hand.rng.choice(running).name)
        return bool(running)

    def blackout(self) -> bool:
        """Every node loses its power at once."""
        hand = self._hand
        seconds = hand.rng.uniform(0.1, 1.0)
        for name in hand.names():
            hand.down(name, seconds + hand.rng.uniform(0, 1.0))
        return True

    def pause(self) -> bool:
        """A process is stopped for longer than its leases, or not, and goes on."""
        return self.freeze(self._hand.victim().name)

    def freeze(self, name: str) -> bool:
        """SIGSTOP, and SIGCONT later."""
        process = self._hand.world.machines[name].process
        if process is None or process.paused:
            return False
        self._hand.note(name, "paused")
        self._hand.count("pauses")
        process.pause()
        self._hand.later(self._hand.rng.uniform(*STOPPED), process.resume)
        return True

    # -- a name server's replacement --------------------------------------------------------

    def replace_name_server(self) -> bool:
        """One is lost for good, or taken out of service; a new, empty one takes its place (R12).

        As an operator does it: one at a time, the new one is added, then the old one removed.
        """
        if self.replacing:
            return False
        self.replacing = True
        hand, world = self._hand, self._hand.world
        old = hand.victim("name-server").name
        if hand.rng.random() < 0.5:
            world.retire(old)
        new = world.join_name_server()
        hand.note(new.id, f"is to take the place of {old}")
        hand.count("name servers replaced")
        world.boot_later(new.id, hand.rng.uniform(0, 0.5))
        self._ask(
            AddNameServer(0, 3_000, new.id, new.endpoint, new.raft_endpoint),
            lambda: self._added(old, new),
        )
        return True

    def _added(self, old: str, new: NameServerMember) -> None:
        self._hand.note(new.id, "was added")
        self._ask(RemoveNameServer(0, 3_000, old), lambda: self._removed(old))

    def _removed(self, old: str) -> None:
        self.replacing = False
        if not self._hand.world.machines[old].retired:
            self._hand.world.retire(old)

    def _ask(self, message: Request, done: Callable[[], None]) -> None:
        """Ask until it is done; the operator does not give up when the faults end."""

        def answered(answer: AnyMessage | None, _error: LogboomError | None) -> None:
            if isinstance(answer, Ok):
                done()
            else:
                self._hand.world.scheduler.after(0.3, lambda: self._ask(message, done))

        self._hand.world.operate(msgspec.structs.replace(message), answered)
