"""A leader's view of one queue's followers, and the high watermark that results from it.

HW = min over the ISR's synced positions, the leader's own included (Q1). A follower that the leader
has asked to add counts from the request on (Q6). The HW does not advance while the committed ISR is
below min(min_in_sync, replicas) (Q7). A follower's position counts only once it was compared in
this epoch (Q4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from logboom.nodes.log.keys import Position
from logboom.wire.actor import PeerAddress
from logboom.wire.base import WireMessage
from logboom.wire.view import QueueView, TopicConfig

REFUSED_PAUSE: Final = 0.5
"""Seconds before a refused request to add a follower is repeated."""
JOIN_SHARE: Final = 0.5
"""Fraction of the period without being caught up after which a member leaves. A follower that is
further behind does not join, because it would have to leave again at once."""
MARK_EVERY: Final = 0.1
"""Seconds between two marks of our end, by which the lag of a follower is measured."""
MOST_MARKS: Final = 32
"""Maximum number of marks per follower; older ones are thinned out."""
MAX_REPLICATION_MARKS: Final = 256
"""Synced ends of a queue that are timed at once; further ones are left out."""


class FollowerProgress:
    """One follower, as seen in this leader's epoch."""

    __slots__ = (
        "caught_up_at",
        "instance_epoch",
        "lacks",
        "marks",
        "pause_until",
        "position",
        "seen_at",
    )

    def __init__(self, now: float) -> None:
        self.position: Position | None = None
        """On its disk, and compared with our log; None: not yet heard in this epoch."""
        self.instance_epoch = 0
        self.caught_up_at = now
        """Time at which our end was what the follower has now; a new leader grants everybody a full
        period."""
        self.marks: list[tuple[float, Position]] = []
        """While it is behind: (time, our end then), oldest first, at which it asked."""
        self.seen_at = now
        self.pause_until = 0.0
        self.lacks = False
        """True if it has yet to fetch copies that compaction keeps."""

    def mark(self, position: Position, end: Position, now: float) -> None:
        """Note that it has everything before `position`, while our log ends at `end`."""
        marks = self.marks
        reached = 0
        for at, ended in marks:
            if ended > position:
                break
            # With a busy producer it is always a little behind: what counts is for how long.
            self.caught_up_at = max(self.caught_up_at, at)
            reached += 1
        if reached:
            del marks[:reached]
        if position >= end:
            self.caught_up_at = now
        elif not marks or now - marks[-1][0] >= MARK_EVERY:
            if len(marks) == MOST_MARKS:
                del marks[1::2]
            marks.append((now, end))

    def forgive(self, now: float, away: float) -> None:
        """Exclude the seconds for which the leader's loop was stalled and heard nobody."""
        self.caught_up_at = min(now, self.caught_up_at + away)
        self.marks = [(min(now, at + away), end) for at, end in self.marks]


class PendingIsrChange:
    """An ISR change in flight: until its outcome is known, the added replicas count (Q6)."""

    __slots__ = ("added", "resolved_at", "version")

    def __init__(self, added: tuple[str, ...], version: int) -> None:
        self.added = added
        self.version = version
        """Queue version that the change compares."""
        self.resolved_at: int | None = None
        """Metadata version of the answer: a view as recent as that shows the outcome."""


class PendingProduce(NamedTuple):
    """A producer that waits until its batch is as safe as requested."""

    after: Position
    """The request is answered once the HW (acks=all) or the synced end (acks=leader) is here."""
    address: PeerAddress
    number: int
    base_offset: int
    append_time_ms: int
    deadline: float
    side: int = -1
    """Side of a parked batch; -1 if it is not parked."""
    reply: WireMessage | None = None
    """The answer in place of Produced."""


class Leadership:
    """One queue that this broker leads in one epoch."""

    def __init__(self, me: str, epoch: int, end: Position, now: float) -> None:
        self.me = me
        self.epoch = epoch
        self.election_end = end
        """Our end when the epoch began: entries before it may have been acknowledged by earlier
        leaders (Q8)."""
        self.started_at = now
        self.version = -1
        self.replicas: list[str] = []
        self.isr: tuple[str, ...] = ()
        self.adding: frozenset[str] = frozenset()
        """Replicas that the queue is getting and that are not in the ISR."""
        self.required = 1
        """Members that the committed ISR needs for an acks=all write."""
        self.followers: dict[str, FollowerProgress] = {}
        self.pending: PendingIsrChange | None = None
        self.replication_marks: deque[tuple[Position, float]] = deque()
        """Ends that were synced here and that the HW has yet to reach, and since when they are."""
        self.waiting_all: deque[PendingProduce] = deque()
        self.waiting_leader: deque[PendingProduce] = deque()
        self.late: list[tuple[str, PendingProduce]] = []
        """Duplicates whose original is not yet safe; they do not wait in order."""
        self.releasing: set[Position] = set()
        """Original positions of batches released in this epoch, whose release is not yet committed.
        """
        self.recalling: set[Position] = set()
        """The same of recalled batches."""
        self.relocating: set[Position] = set()
        """The same of batches that were relocated to the log's end, and are still parked there."""
        self.producers: dict[str, dict[int, float]] = {}
        """User → producers that it used in this epoch, in order of the last use, with its time."""
        self.decided = 0
        """Number of the last decision whose DECIDED entry was appended, or resumed, in this epoch.
        """
        self.to_release: deque[Position] | None = None
        """Batches of this decision that have yet to be appended; None: all were."""
        self.reported = 0
        """Number of the last decision that was reported in this epoch."""
        self.settled: tuple[int, bool, int] | None = None
        """What the requests that wait for a decision were last compared with: the last decision
        executed, whether everything before the epoch is applied, and the metadata version."""

    def take_view(self, view: QueueView, config: TopicConfig, metadata: int, now: float) -> None:
        """Follow the committed ISR; `metadata` is the version of the whole view."""
        self.version = view.version
        self.replicas = view.replicas
        self.isr = tuple(view.isr)
        self.adding = frozenset(view.adding).difference(view.isr)
        # What a move adds or removes changes nothing before it is done (M3).
        self.required = required_in_sync(config, len(view.replicas) - len(view.adding))
        for broker in view.replicas:
            if broker != self.me and broker not in self.followers:
                # To join, it needs at least what we had when the epoch began.
                self.followers[broker] = FollowerProgress(
                    now if broker in self.isr else self.started_at
                )
        for broker in [b for b in self.followers if b not in view.replicas]:
            del self.followers[broker]
        pending = self.pending
        if pending is not None and view.version > pending.version:
            self.pending = None
        self.settle(metadata)

    def mark_synced(self, synced: Position, now: float) -> None:
        """Note when an end was synced here, for the time until the other members have it too."""
        marks = self.replication_marks
        if len(marks) < MAX_REPLICATION_MARKS and len(self.isr) > 1:
            marks.append((synced, now))

    def take_replicated(self, hw: Position) -> list[float]:
        """Return when the ends that the HW has reached were synced here."""
        marks, found = self.replication_marks, []
        while marks and marks[0][0] <= hw:
            found.append(marks.popleft()[1])
        return found

    def settle(self, metadata: int) -> bool:
        """Forget a change whose outcome a view of version `metadata` shows; True if there was one."""
        pending = self.pending
        if pending is None or pending.resolved_at is None or metadata < pending.resolved_at:
            return False
        self.pending = None
        return True

    def is_moving(self, broker: str) -> bool:
        """True if nothing waits for a follower: it is being added, and the HW does not count it."""
        pending = self.pending
        return broker in self.adding and (pending is None or broker not in pending.added)

    @property
    def under_replicated(self) -> bool:
        """True if a replica is not in sync, other than one that a move brings."""
        return any(r not in self.isr and r not in self.adding for r in self.replicas)

    @property
    def enough_in_sync(self) -> bool:
        """True if acks=all writes are accepted (Q7)."""
        return len(self.isr) >= self.required

    def high_watermark(self, synced: Position) -> Position | None:
        """Return what all members that count have on disk; None if unknown or the ISR is too small."""
        if len(self.isr) < self.required:
            return None
        hw = synced
        for broker in self.isr:
            if broker != self.me:
                position = self.followers[broker].position if broker in self.followers else None
                if position is None:
                    return None
                hw = min(hw, position)
        if self.pending is not None:
            for broker in self.pending.added:
                position = self.followers[broker].position if broker in self.followers else None
                if position is None:
                    return None
                hw = min(hw, position)
        return hw

    def report(
        self, broker: str, instance_epoch: int, position: Position, end: Position, now: float
    ) -> None:
        """Note that a follower has everything before `position` on disk, with our history (Q4)."""
        progress = self.followers.get(broker)
        if progress is None:
            return
        progress.position = position
        progress.instance_epoch = instance_epoch
        progress.mark(position, end, now)
        progress.seen_at = now

    def forget_position(self, broker: str) -> None:
        """Note that a follower's history differs: it does not count until it has truncated its log."""
        progress = self.followers.get(broker)
        if progress is not None:
            progress.position = None

    def may_join(
        self,
        broker: str,
        hw: Position,
        end: Position,
        now: float,
        period: float,
        alive: Mapping[str, float],
    ) -> bool:
        """Return True if a follower outside the ISR has everything that it needs to be added.

        That is the HW and everything before this epoch, because the HW known here may be behind the
        one at which the last leader acknowledged. It must also keep up as well as a member does:
        while the ISR is too small, the HW does not advance and does not show which follower is
        slow.
        """
        if self.pending is not None or broker in self.isr:
            return False
        progress = self.followers.get(broker)
        return (
            progress is not None
            and progress.position is not None
            and progress.position >= max(hw, self.election_end)
            and not progress.lacks
            and now >= progress.pause_until
            and now - self._caught_up(broker, end, alive) <= period * JOIN_SHARE
        )

    def _caught_up(self, broker: str, end: Position, alive: Mapping[str, float]) -> float:
        """Return the last time of which a follower has everything."""
        progress = self.followers[broker]
        if progress.position is not None and progress.position >= end:
            # Nothing is missing, so it need only be alive. This is noted; otherwise the next append
            # would find it as far behind as the queue was idle.
            heard = alive.get(broker, progress.caught_up_at)
            progress.caught_up_at = max(progress.caught_up_at, heard)
        return progress.caught_up_at

    def laggards(
        self, end: Position, now: float, period: float, alive: Mapping[str, float]
    ) -> list[str]:
        """Return ISR members that were not caught up for `period` seconds; never the leader.

        `alive`: when each follower broker last sent us a request.
        """
        return [
            broker
            for broker in self.isr
            if broker in self.followers
            and broker != self.me
            and now - self._caught_up(broker, end, alive) > period
        ]


def required_in_sync(config: TopicConfig, replicas: int) -> int:
    """Return the copies that an acks=all write needs: as configured, or a majority (1→1, 2→2, 3→2)."""
    return min(config.min_in_sync or replicas // 2 + 1, replicas)
