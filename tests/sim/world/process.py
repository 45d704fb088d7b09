"""One simulated process: it drives a core turn by turn as the real skins do.

A turn: take what has arrived, `handle`, apply the writes, begin the sync, redial, send, hang up.
One sync runs at a time and covers every write before it began; `Synced` comes back as an event.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from logboom.wire.actor import (
    Core,
    Effects,
    Event,
    Note,
    PeerAddress,
    Received,
    Synced,
    SyncFailed,
)
from logboom.wire.event_table import EVENTS
from tests.sim.world.network import GIVE_UP, Network
from tests.sim.world.processor import Processor, counted
from tests.sim.world.raft_disk import PowerLossError
from tests.sim.world.scheduler import Clock, Scheduler, Timer
from tests.sim.world.storage import IO_ERROR
from tests.sim.world.trace import BrokenProperty, Trace

if TYPE_CHECKING:
    from tests.sim.world.storage import SimulatedStorage

TURN_EVENTS = 256
SPINS = 10_000
"""Turns in a row without an event or an effect that count as a busy loop."""
TURN_COST = (0.000_01, 0.000_06)
"""Seconds that a turn keeps the process busy."""
HICCUP = (0.01, 0.15)
"""Seconds of a rare long turn: a garbage collection, a stolen core."""
SYNC_COST = (0.000_1, 0.001_5)
_NOTHING = Effects()


class Ended(Protocol):
    """Told when a core ends by itself."""

    def __call__(self, process: Process, reason: str) -> None:
        """`reason` "" is a graceful end."""
        ...


class Process:
    """A core that runs on a machine."""

    def __init__(
        self,
        name: str,
        core: Core,
        clock: Clock,
        scheduler: Scheduler,
        network: Network,
        rng: random.Random,
        trace: Trace,
        ended: Ended,
        storage: SimulatedStorage | None = None,
        max_unsynced_bytes: int | None = None,
    ) -> None:
        """`max_unsynced_bytes`: while more is written and not synced, nothing is taken of those who
        dialled; None: whatever is."""
        self.name = name
        self.core = core
        self.clock = clock
        self.storage = storage
        self.running = True
        self.paused = False
        self.processor: Processor | None = None
        """What turns cost by their work; None: a turn costs next to nothing, whatever it does."""
        self.after_turn: Callable[[], None] = lambda: None
        """Called when a turn's effects are under way: the checker looks on."""
        self.lost_power: Callable[[Process], None] = lambda _process: None
        """Called when the disk lost its power in the middle of a turn."""
        self.notes: list[Note] = []
        """Everything for the log of this process."""
        self._scheduler = scheduler
        self._network = network
        self._rng = rng
        self._trace = trace
        self._ended = ended
        self._inbox: deque[Event] = deque()
        self._timer: Timer | None = None
        """Of a turn that events ask for."""
        self._due = float("inf")
        """When the next turn is to be, for events or by the core's deadline."""
        self._alarm_at = float("inf")
        """When this process looks at the deadline; before it, if that has moved since."""
        self._free_at = scheduler.now
        self._working = False
        """True while a turn is under way whose effects come at its end."""
        self._held: Effects | None = None
        """The effects of a turn whose work ended while the process was paused."""
        self._pauses = 0
        self._spins = 0
        self._max_unsynced_bytes = max_unsynced_bytes
        self._unsynced: deque[tuple[int, int]] = deque()
        """(token, bytes) of turns that are not synced yet."""
        self._put_off: deque[Event] = deque()
        """What came meanwhile of those who dialled."""
        self._sync_wanted = 0
        self._syncing = False
        self.wake()

    # -- from outside -----------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        """Put an event before the core's next turn."""
        if self.running:
            self._inbox.append(event)
            if self._due > self._free_at:
                self.wake()

    def wake(self) -> None:
        """Take a turn as soon as the process is free."""
        self._plan(self._scheduler.now)

    def pause(self) -> None:
        """SIGSTOP: no turn until `resume`; its connections give up on it after a while."""
        self.paused = True
        self._pauses += 1
        number = self._pauses
        self._scheduler.after(GIVE_UP, lambda: self._forsaken(number))

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        held, self._held = self._held, None
        if held is not None:
            self._end_turn(held)
        if self.running:
            self.wake()

    def kill(self) -> None:
        """kill -9, or the end of the process for any reason: what was in memory is gone."""
        self.running = False
        self._inbox.clear()
        self._put_off.clear()
        self._network.gone(self)

    # -- the loop ---------------------------------------------------------------------------

    def _plan(self, when: float) -> None:
        when = max(when, self._free_at)
        if when >= self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = when
        self._timer = self._scheduler.at(when, self._turn)

    def _sleep(self, deadline: float) -> None:
        """Take a turn at a deadline, unless events come first (nearly always they do: so an alarm
        that is set already and comes before is kept, and set anew when it comes)."""
        self._due = max(deadline, self._free_at)
        if self._due < self._alarm_at:
            self._set_alarm()

    def _set_alarm(self) -> None:
        self._alarm_at = at = self._due
        self._scheduler.at(at, partial(self._alarm, at))

    def _alarm(self, at: float) -> None:
        if at != self._alarm_at:
            return
        self._alarm_at = float("inf")
        if self._timer is not None or not self.running:
            return
        if self._due <= self._scheduler.now:
            self._turn()
        elif self._due < float("inf"):
            self._set_alarm()

    def _turn(self) -> None:
        self._due = float("inf")
        self._timer = None
        if not self.running or self.paused or self._working:
            return
        inbox = self._inbox
        if self._max_unsynced_bytes is not None:
            self._put_some_off(self._max_unsynced_bytes)
        if len(inbox) <= TURN_EVENTS:
            events = list(inbox)
            inbox.clear()
        else:
            events = [inbox.popleft() for _ in range(TURN_EVENTS)]
        calls = 0
        try:
            if self.processor is None:
                effects = self.core.handle(events, self.clock.instant())
            else:
                work = partial(self.core.handle, events, self.clock.instant())
                effects, calls = counted(work)
        except PowerLossError:
            self.lost_power(self)
            return
        self._watch_spinning(events, effects)
        dice = self._rng.random
        least, most = HICCUP if dice() < 0.0005 else TURN_COST
        self._free_at = self._scheduler.now + (least + (most - least) * dice())
        if self.processor is not None:
            self._free_at += self.processor.seconds(calls, events, effects)
            self._working = True
            self._scheduler.at(self._free_at, partial(self._end_turn, effects))
            return
        self._perform(effects)
        self._plan_next()

    def _end_turn(self, effects: Effects) -> None:
        """What a turn has brought about leaves when its work is done, unless that is cut short."""
        if not self.running:
            return
        if self.paused:
            self._held = effects
            return
        self._working = False
        self._perform(effects)
        self._plan_next()

    def _plan_next(self) -> None:
        if not self.running:
            return
        deadline = self.core.deadline()
        if self._inbox:
            self._plan(self._free_at)
        elif deadline is not None:
            self._sleep(self.clock.true_time(deadline) + 1e-6)

    def _put_some_off(self, most: int) -> None:
        """Let who dialled wait while too much is unsynced, as a broker's skin does."""
        inbox = self._inbox
        if sum(size for _, size in self._unsynced) <= most:
            inbox.extendleft(reversed(self._put_off))
            self._put_off.clear()
            return
        for _ in range(len(inbox)):
            event = inbox.popleft()
            dialled = isinstance(event, Received) and isinstance(event.peer, PeerAddress)
            (self._put_off if dialled else inbox).append(event)

    def _perform(self, effects: Effects) -> None:
        if effects.writes is not None and self.storage is not None:
            self.storage.write(effects.writes)
        if effects.token:
            if self._max_unsynced_bytes is not None and effects.writes is not None:
                self._unsynced.append((effects.token, effects.writes.size))
            self._sync_wanted = max(self._sync_wanted, effects.token)
            self._sync()
        for endpoint in effects.redials:
            self._network.hang_up(self, endpoint)
        for peer, frames in effects.sends:
            self._network.send(self, peer, frames)
        for endpoint in effects.hangups:
            self._network.hang_up(self, endpoint)
        for kicked in effects.kicks:
            self._network.kick(self, kicked)
        for each in effects.notes:
            if not each.fields.keys() <= {*EVENTS[each.event].fields}:
                raise BrokenProperty("events are those of the table", f"{self.name}: {each}")
        self.notes += effects.notes
        if effects.stop is not None:
            self.kill()
            self._ended(self, effects.stop)
            return
        self.after_turn()

    def _sync(self) -> None:
        if self._syncing or self.storage is None:
            return
        self._syncing = True
        token, mark = self._sync_wanted, self.storage.mark()
        self._scheduler.after(self._rng.uniform(*SYNC_COST), lambda: self._sync_done(token, mark))

    def _sync_done(self, token: int, mark: int) -> None:
        if not self.running or self.storage is None:
            return
        self._syncing = False
        if self.storage.refuses:
            self.storage.sync_failed(mark, self._rng)
            self.deliver(SyncFailed(token, IO_ERROR))
            return
        self.storage.sync_to(mark)
        while self._unsynced and self._unsynced[0][0] <= token:
            self._unsynced.popleft()
        self.deliver(Synced(token))
        if self._sync_wanted > token:
            self._sync()

    def _watch_spinning(self, events: list[Event], effects: Effects) -> None:
        if events or effects != _NOTHING:
            self._spins = 0
            return
        self._spins += 1
        if self._spins > SPINS:
            raise BrokenProperty("idle nodes sleep", f"{self.name} takes turns without end")

    def _forsaken(self, number: int) -> None:
        if self.running and self.paused and self._pauses == number:
            self._network.break_all(self.name)
