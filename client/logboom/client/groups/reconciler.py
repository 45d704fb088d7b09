"""Reconciliation of a member's queues with the assignment from its coordinator."""

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
"""Share of the group's drain time after which handlers are told to stop and the rest is released.

The coordinator's clock started earlier than ours, and it fences the member when the time is up (see
docs/SAFETY.md, G2).
"""
FIND_S: Final = 10.0
"""Seconds for which the queues of a topic are looked up before the next try."""


class QueueReader(Protocol):
    """A reader of queues, as `logboom.client.fetch.fetcher.Fetcher` is."""

    def open(self, fetch: QueueFetch) -> None:
        """Start reading."""
        ...

    def curb(self, fetch: QueueFetch) -> None:
        """Reduce what is requested to the room that is left."""
        ...

    def close(self, fetch: QueueFetch) -> None:
        """Stop reading."""
        ...


class TopicFinder(Protocol):
    """A lookup of topics, as `logboom.client.cluster.metadata_updater.MetadataUpdater` is."""

    def want(
        self, topic: str, done: Callable[[TopicView | LogboomError], None], timeout: float
    ) -> None:
        """Find a topic and pass it, or an error, to `done`."""
        ...


class Reconciler:
    """The queues of one member: how they are taken, drained and lost."""

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
        """Make the member's queues match the coordinator's list.

        Args:
            assigned: the coordinator's answer.
            released: queue → owner epoch in which this member released it.
            quiet: start no new queue, and resume none that is being drained.
        """
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
            for key, proof in zip(listed, assigned.proofs, strict=False):
                owning = member.holdings.get(key)
                if owning is not None and owning.owner_epoch == listed[key].owner_epoch:
                    self._prove(owning, proof)
            # Queues share a prefetch bound, so each learns its part once all of them are known.
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
        """Take a queue that is new or was reset."""
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
        """Return the trial of the queue's first message if a process may have died from it."""
        try:
            kept = trying_of(owned.ranges)
        except DamagedBatch:
            kept = 0
        if self._member.tried.get((owned.topic_id, owned.queue)) == (owned.start, kept):
            # It was this process, which was wrongly considered dead, and nobody else has had it
            # since.
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
            # The queue stays after all: resume after the last message handed out.
            holding.state, holding.cancelled, holding.since = "reading", False, self._turn.now
            if holding.handed < 0:  # the position of a seek was not known yet
                holding.place(holding.committed[0])
            holding.arrived = holding.handed
            begun.append(holding)

    @staticmethod
    def _prove(holding: AssignedQueue, proof: bytes) -> None:
        """Take the proof of a queue's owner epoch, which a coordinator of this release gives."""
        holding.owner_proof = proof
        if holding.fetch is not None:
            holding.fetch.owner_proof = proof

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
                self._reads.open(member.new_fetch(holding, start))

        self._finds.want(holding.topic, found, FIND_S)

    def _drain(self, holding: AssignedQueue) -> None:
        """Hand out nothing more of a queue; called under the lock."""
        holding.state, holding.since = "draining", self._turn.now
        stop_reading(self._member, holding, self._reads)

    def _lose(self, holding: AssignedQueue) -> None:
        """Give up a queue that belongs to another member now: results of running handlers no longer
        count."""
        if holding.trial is not None and holding.state == "reading":
            self._member.tried[holding.key] = (holding.trial.offset, holding.trial.trying)
        holding.state, holding.cancelled, holding.since = "lost", True, self._turn.now
        self._member.remove(holding)
        stop_reading(self._member, holding, self._reads)

    def lose_all(self) -> None:
        """Give up all queues: the member is out of the group."""
        member = self._member
        with member.lock:
            for holding in list(member.holdings.values()):
                self._lose(holding)
        member.changed()

    def quiesce(self) -> None:
        """Drain all queues: the member leaves, or joins again."""
        member = self._member
        with member.lock:
            for holding in list(member.holdings.values()):
                if holding.state == "reading":
                    self._drain(holding)
        member.changed()

    def quiet(self) -> bool:
        """True if nothing is handed out any longer."""
        with self._member.lock:
            return all(
                holding.state == "draining" and (holding.running == 0 or holding.cancelled)
                for holding in self._member.holdings.values()
            )

    def watch_drains(self) -> None:
        """Cancel the handlers of queues whose drain time is over.

        Otherwise the coordinator would fence us (see docs/SAFETY.md, G2).
        """
        member = self._member
        limit = member.config.drain_ms / 1000 * DRAIN_SHARE
        with member.lock:
            for holding in member.holdings.values():
                if holding.state == "draining" and self._turn.now - holding.since >= limit:
                    holding.cancelled = True


def stop_reading(member: MemberState, holding: AssignedQueue, reads: QueueReader) -> None:
    """Hand out and fetch nothing more of a queue; the caller holds the member's lock."""
    holding.place_if_known()
    fetch, holding.fetch = holding.fetch, None
    if fetch is not None:
        fetch.generation += 1
        holding.seen_end = max(holding.seen_end, fetch.max_offset)
        reads.close(fetch)
    if member.reader is not None:
        member.reader.drop(holding)
