"""The queues of a member as its coordinator lists them: taken, drained, gone on with, lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from logboom.client.core_context import CoreTurn
from logboom.client.fetch.fetch_buffer import QueueFetch
from logboom.client.groups.assigned_queue import AssignedQueue
from logboom.client.groups.member import MemberState
from logboom.client.groups.offset_tracker import trying_of
from logboom.client.groups.trials import Trial
from logboom.wire.errors import DamagedBatch, LogboomError
from logboom.wire.group_messages import GroupAssigned
from logboom.wire.group_view import OwnedQueue, QueueKey
from logboom.wire.view import TopicView

DRAIN_SHARE: Final = 0.7
"""Share of the group's drain time after which handlers are told to stop and the rest is released:
the coordinator's clock began earlier, and fences (G2)."""
FIND_S: Final = 10.0
"""Seconds in which a topic's queues are looked for before it is tried again."""


class QueueReader(Protocol):
    """Who reads queues: `logboom.client.fetch.fetcher.Fetcher`."""

    def open(self, fetch: QueueFetch) -> None:
        """Begin to read."""
        ...

    def curb(self, fetch: QueueFetch) -> None:
        """There is less room: ask for no more than that."""
        ...

    def close(self, fetch: QueueFetch) -> None:
        """Read no longer."""
        ...


class TopicFinder(Protocol):
    """Who finds topics: `logboom.client.cluster.metadata_updater.MetadataUpdater`."""

    def want(
        self, topic: str, done: Callable[[TopicView | LogboomError], None], timeout: float
    ) -> None:
        """`done` gets the topic, or an error."""
        ...


class Reconciler:
    """What one member has, and how it comes and goes."""

    def __init__(
        self, member: MemberState, reads: QueueReader, finds: TopicFinder, turn: CoreTurn
    ) -> None:
        self._member = member
        self._reads = reads
        self._finds = finds
        self._turn = turn

    def adopt(
        self, assigned: GroupAssigned, released: Mapping[QueueKey, int], *, quiet: bool
    ) -> None:
        """Make the member's queues what the coordinator lists. `quiet`: begin nothing new, and go
        on with nothing that is being drained."""
        member = self._member
        begun: list[AssignedQueue] = []
        listed = {(owned.topic_id, owned.queue): owned for owned in assigned.queues}
        with member.lock:
            for key, holding in list(member.holdings.items()):
                if key not in listed:
                    self._lose(holding)
            for key, owned in listed.items():
                known = member.holdings.get(key)
                if known is not None and owned.owner_epoch == known.owner_epoch:
                    self._keep(known, owned, begun, quiet=quiet)
                elif known is not None and owned.owner_epoch < known.owner_epoch:
                    continue  # an answer from before a reset
                elif owned.owner_epoch > released.get(key, -1):
                    topic = assigned.topics.get(owned.topic_id)
                    if topic is not None:
                        self._take(topic, owned, assigned, begun, quiet=quiet)
            # Each is told what it may fetch when all are known that share a bound with it.
            share = member.share_bytes()
            for holding in member.holdings.values():
                if holding.fetch is not None:
                    holding.fetch.share_bytes = share
                    self._reads.curb(holding.fetch)
            for holding in begun:
                self._begin(holding, holding.handed)
        member.changed()

    def _take(
        self,
        topic: str,
        owned: OwnedQueue,
        assigned: GroupAssigned,
        begun: list[AssignedQueue],
        *,
        quiet: bool,
    ) -> None:
        """A queue that is new, or was reset."""
        member = self._member
        known = member.holdings.get((owned.topic_id, owned.queue))
        if known is not None:
            self._lose(known)
        options = member.options
        ended = known is None and (owned.topic_id, owned.queue) in assigned.ended
        trial = self.trial(owned, ended=ended)
        matching = member.matching(topic)
        holding = AssignedQueue(options.group, topic, owned, matching, self._turn.now, trial)
        member.add(holding)
        if owned.revoking or quiet:
            holding.state = "draining"
        else:
            begun.append(holding)

    def trial(self, owned: OwnedQueue, *, ended: bool) -> Trial | None:
        """What is known of the queue's first message, if a process may have ended with it."""
        try:
            kept = trying_of(owned.ranges)
        except DamagedBatch:
            kept = 0
        if self._member.tried.get((owned.topic_id, owned.queue)) == (owned.start, kept):
            # It was this process, which was taken for dead, and nobody's since.
            kept = kept - 1 if kept > 2 else 0
        if not kept and not ended:
            return None
        return Trial(owned.start, kept, self._member.config.max_attempts, ended=ended)

    def _keep(
        self, holding: AssignedQueue, owned: OwnedQueue, begun: list[AssignedQueue], *, quiet: bool
    ) -> None:
        if owned.revoking and holding.state == "reading":
            self._drain(holding)
        elif (
            not owned.revoking and holding.state == "draining" and not (quiet or holding.releasing)
        ):
            # It stays after all: go on behind what was handed out.
            holding.state, holding.cancelled, holding.since = "reading", False, self._turn.now
            if holding.handed < 0:  # a seek had not found its place yet
                holding.place(holding.committed[0])
            holding.arrived = holding.handed
            begun.append(holding)

    def _begin(self, holding: AssignedQueue, start: int) -> None:
        """Read a queue once its topic is known here."""
        member = self._member

        def found(topic: TopicView | LogboomError) -> None:
            with member.lock:
                wanted = member.holdings.get(holding.key) is holding
                if not wanted or holding.state != "reading" or holding.fetch is not None:
                    return
                if isinstance(topic, LogboomError):
                    self._turn.after(1.0, lambda: self._begin(holding, start))
                    return
                share = member.share_bytes()
                fetch = member.make_fetch(holding, start, member.inbox, share, holding.matching)
                fetch.uncommitted = member.options.uncommitted
                holding.fetch = fetch
                self._reads.open(fetch)

        self._finds.want(holding.topic, found, FIND_S)

    def _drain(self, holding: AssignedQueue) -> None:
        """Hand out nothing more of it; under the lock."""
        holding.state, holding.since = "draining", self._turn.now
        self._stop_reading(holding)

    def _lose(self, holding: AssignedQueue) -> None:
        """It is another's, or will be: results of running handlers do not count any more."""
        if holding.trial is not None and holding.state == "reading":
            self._member.tried[holding.key] = (holding.trial.offset, holding.trial.trying)
        holding.state, holding.cancelled, holding.since = "lost", True, self._turn.now
        self._member.remove(holding)
        self._stop_reading(holding)

    def _stop_reading(self, holding: AssignedQueue) -> None:
        holding.place_if_known()
        fetch, holding.fetch = holding.fetch, None
        if fetch is not None:
            fetch.generation += 1
            holding.seen_end = max(holding.seen_end, fetch.max_offset)
            self._reads.close(fetch)
        if self._member.reader is not None:
            self._member.reader.drop(holding)

    def lose_all(self) -> None:
        """The member is out."""
        member = self._member
        with member.lock:
            for holding in list(member.holdings.values()):
                self._lose(holding)
        member.changed()

    def quiesce(self) -> None:
        """Drain everything: the member leaves, or joins again."""
        member = self._member
        with member.lock:
            for holding in list(member.holdings.values()):
                if holding.state == "reading":
                    self._drain(holding)
        member.changed()

    def quiet(self) -> bool:
        """Whether nothing is handed out any more."""
        with self._member.lock:
            return all(
                holding.state == "draining" and (holding.running == 0 or holding.cancelled)
                for holding in self._member.holdings.values()
            )

    def watch_drains(self) -> None:
        """Tell handlers to stop whose time to finish is over (G2)."""
        member = self._member
        limit = member.config.drain_ms / 1000 * DRAIN_SHARE
        with member.lock:
            for holding in member.holdings.values():
                if holding.state == "draining" and self._turn.now - holding.since >= limit:
                    holding.cancelled = True
