"""A member of a consumer group: the client's own core, and a handler that takes its time."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from logboom.client.calls import CoreCall
from logboom.client.core import ClientConfig, ClientCore
from logboom.client.fetch.fetch_buffer import FetchBuffer
from logboom.client.fetch.retry_copies import place_of
from logboom.client.groups.assigned_queue import AssignedQueue
from logboom.client.groups.failed_messages import FailedMessages
from logboom.client.groups.group_collector import GroupFetchCollector
from logboom.client.groups.member import CloseMember, MemberOptions, MemberState, OpenMember
from logboom.client.groups.offset_committer import cut
from logboom.client.results import Message
from logboom.wire.actor import Call, Effects, Event, Instant
from logboom.wire.errors import GroupError, LogboomError, RetryableError
from logboom.wire.group_view import GroupConfig
from tests.sim.cast.group_sink import GroupSink
from tests.sim.judges.group_ledger import GroupLedger
from tests.sim.judges.history import Queue
from tests.sim.world.trace import BrokenProperty

NEVER: Final = 1e6
"""Seconds: longer than any run."""
AT_ONCE: Final = 6
"""Messages that are handled at the same time."""
COMMIT_EVERY_S: Final = 0.7
STILL_S: Final = 1.0
"""Seconds without a turn after which a process must have stood still."""
TICK_S: Final = 2.0
"""Seconds within which a member's core looks at its clock twice (it notes what was asked in between),
however slow its turns are."""
LEAVE_S: Final = 8.0


@dataclass
class Poison:
    """One message of a group that ends every process that handles it."""

    after: int
    """Messages that are handled before it."""
    value: bytes | None = None
    buried: int = 0

    def taken(self, value: bytes) -> bool:
        """A message is handled; whether it is this one."""
        self.after -= 1
        if self.value is None and self.after < 0:
            self.value = value
        return value == self.value


@dataclass(frozen=True)
class Membership:
    """What does not change from one process of a member to the next."""

    name: str
    group: str
    topics: list[str]
    config: GroupConfig
    instance: str = ""
    handling_s: Sequence[float] = field(default=(0.0, 0.0, 0.01, 0.05, 0.3))
    """How long handlers take, one of these."""
    failing: float = 0.0
    """Share of handlers that fail."""
    poison: Poison | None = None
    """A message of the group that ends the process of whoever handles it."""
    max_poll_interval_ms: int = 0
    """0: it may ask for nothing as long as it likes."""


class GroupMember:
    """One process of a member; a `Core`."""

    def __init__(
        self,
        of: Membership,
        member_id: str,
        endpoints: Sequence[str],
        rng: random.Random,
        ledger: GroupLedger,
        date_ms: Callable[[], int],
    ) -> None:
        """`date_ms`: the right date, which this machine's clock may not show."""
        self.of = of
        self.id = member_id
        self._rng = rng
        self._ledger = ledger
        self._now = Instant(0.0, 0)
        self._calls: list[Call] = []
        self._core: ClientCore | None = None
        self._config = ClientConfig(tuple(endpoints), member_id)
        options = MemberOptions(
            of.group,
            member_id,
            dict.fromkeys(of.topics, "*"),
            of.instance,
            config=of.config,
            commit_every_s=COMMIT_EVERY_S,
            prefetch_bytes=6_000,
            max_poll_interval_ms=of.max_poll_interval_ms,
        )
        self.member = MemberState(options, FetchBuffer(6_000, _ignore), nullcontext())
        sink = GroupSink(self._call, lambda: self._now.mono, date_ms, self._buried)
        failures = FailedMessages(self.member, lambda: self._now.mono, sink)
        self._intake = GroupFetchCollector(self.member, self._call, failures)
        self._handling: list[tuple[float, int, Message, AssignedQueue]] = []
        self._ended = False
        """A message has ended this process."""
        self._order = count()
        self.hurry = False
        """From now on handlers take no time."""
        self._hangs_until = 0.0
        """Until then the program does nothing: only the core goes on."""
        self._asks = False
        """It has polled or finished something since its core last had a turn."""
        self._looked_at = 0.0
        self._asked_at = 0.0
        """When its core had its turn after that: no core of a process that stood still looks before."""
        self._left: LogboomError | None = None
        """Why it was away when that was looked at last."""
        self.went_away: Callable[[], None] = _ignore
        """Called when the core leaves the group since the program asks for nothing."""
        self.poisoned: Callable[[], None] = _ignore
        """Called when a message ends this process."""
        self.leaving = False
        self._left_with: list[AssignedQueue] = []
        """Its queues when it began to leave."""
        self.joined = False
        self.replaced: Callable[[], None] = _ignore
        """Called once the group says that another process has this one's name."""

    # -- the core ---------------------------------------------------------------------------

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """One turn of the core, then of the program that uses it."""
        self._now = now
        if self._core is None:
            self._core = ClientCore(self._config, self._rng, now)
            opened = OpenMember(self.member, NEVER)
            opened.outcome.add_callback(lambda: self._opened(opened))
            self._call(opened)
        for event in events:
            if isinstance(event, Call):
                event.request()
        calls, self._calls = self._calls, []
        others = [event for event in events if not isinstance(event, Call)]
        effects = self._core.handle([*others, *calls], now)
        self._look_at_bound()
        if now.mono < self._hangs_until or self._ended:
            return effects
        while self._handling and self._handling[0][0] <= now.mono and not self._ended:
            _, _, message, holding = heapq.heappop(self._handling)
            self._finish(message, holding)
        if not self._ended:
            self._take()
        return effects

    def hang(self, seconds: float) -> None:
        """The program does nothing for so long."""
        self._hangs_until = self._now.mono + seconds

    def wake(self) -> None:
        """It goes on."""
        self._hangs_until = 0.0

    def _look_at_bound(self) -> None:
        """Whose program asks for nothing must not keep its queues."""
        member, bound = self.member, self.of.max_poll_interval_ms / 1000
        if member.away is not None and member.away is not self._left:
            self.went_away()
        self._left = member.away or self._left
        # A core that stood still counts from when it goes on what it had not noticed before.
        if self._asks or self._now.mono - self._looked_at > STILL_S:
            self._asks, self._asked_at = False, self._now.mono
        self._looked_at = self._now.mono
        quiet = self._now.mono - self._asked_at
        late = bound and quiet > bound + TICK_S and not self.leaving
        if late and member.away is None and member.holdings:
            detail = f"{self.id}: {sorted(member.holdings)} after {quiet:.1f} s of {bound:g} s"
            raise BrokenProperty("who asks for nothing keeps no queue", detail)

    def deadline(self) -> float | None:
        """When a handler ends, or the core wants a turn."""
        if self._calls or self._core is None:
            return self._now.mono
        wanted = [self._core.deadline()]
        if self._now.mono < self._hangs_until:
            wanted.append(self._hangs_until)
        else:
            # Who takes no more for now looks again when a handler ends.
            takes = len(self._handling) < AT_ONCE and not self.leaving
            wanted += [self._intake.due()] if takes else []
            wanted += [self._handling[0][0]] if self._handling else []
        return min((at for at in wanted if at is not None), default=None)

    def _call(self, call: CoreCall) -> None:
        self._calls.append(Call(call))

    def _opened(self, call: OpenMember) -> None:
        if call.outcome.error is not None:
            if self.leaving:
                return
            raise BrokenProperty("members join", f"{self.id}: {call.outcome.error}")
        self.joined = self._asks = True  # the core looks from then on

    # -- the program ------------------------------------------------------------------------

    def _take(self) -> None:
        room = AT_ONCE - len(self._handling)
        if room <= 0 or self.leaving:
            return
        self._asks = True
        try:
            taken = self._intake.take(room, self._now.mono)
        except RetryableError:
            return
        except GroupError as error:
            if error.code != "INSTANCE_TAKEN":
                raise
            self.replaced()
            return
        for message in taken:
            holding = self.member.holding(*place_of(message)[:2])
            assert holding is not None, "who hands out has the queue"
            topic, number, offset = place_of(message)
            value = bytes(message.value or b"")
            self._ledger.give(
                self.of.group, Queue(topic, number), holding.owner_epoch, offset, value, self.id
            )
            spent = 0.0 if self.hurry else self._rng.choice(self.of.handling_s)
            ends = self._now.mono + spent
            heapq.heappush(self._handling, (ends, next(self._order), message, holding))

    def _finish(self, message: Message, holding: AssignedQueue) -> None:
        self._asks = True
        has = self.member.holdings.get(holding.key) is holding
        owned = has and not holding.cancelled and not holding.releasing
        topic, number, offset = place_of(message)
        place = Queue(topic, number)
        poison = self.of.poison
        if poison is not None and poison.taken(bytes(message.value or b"")):
            self._ended = True
            self.poisoned()
            return
        if self._rng.random() < self.of.failing and not self.hurry and owned:
            self._ledger.pass_on(self.of.group, place, offset)
            self._intake.nack(message, None, "it failed", self._now.mono)
            return
        self._ledger.finish(self.of.group, place, holding.owner_epoch, offset, self.id, owned=owned)
        if message.read_from is not None:
            self._ledger.retried(self.of.group, Queue(message.topic, message.queue), message.offset)
        self._intake.ack(message)

    def _buried(self, message: Message) -> None:
        """A message is a dead letter: nobody is to handle it any more."""
        poison, value = self.of.poison, bytes(message.value or b"")
        where = f"{self.of.group} {message.topic}/{message.queue} {message.offset}"
        if poison is None or value != poison.value:
            raise BrokenProperty("only what ends its consumers is given up", f"{where}: {value!r}")
        topic, number, offset = place_of(message)
        for place in (Queue(topic, number), Queue(message.topic, message.queue)):
            at = offset if place.topic == topic else message.offset
            self._ledger.pass_on(self.of.group, place, at)
            self._ledger.retried(self.of.group, place, at)
        poison.buried += 1

    def leave(self, left: Callable[[], None]) -> None:
        """Go in good order; called through a `Call`, `left` once it is done."""
        self.leaving = True
        self._left_with = list(self.member.holdings.values())
        call = CloseMember(self.member, LEAVE_S)
        call.outcome.add_callback(left)
        self._call(call)

    def left_out(self) -> bool:
        """True if some of its last commits found no room in its farewell."""
        dirty = [(each, each.last_commit()) for each in self._left_with if each.dirty]
        return bool(cut(dirty)[1])


def _ignore() -> None:
    return None
