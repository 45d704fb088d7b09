"""A member that reads every queue and keeps its own offsets (broadcasting).

It needs no coordinator, because members share nothing. It saves its offsets to its own store as
often as others commit. Queues that are added later are read from their first message, also if that
was while it did not run: what is saved tells which queues it knew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from logboom.client.calls import MessageTime, Start
from logboom.client.cluster.metadata_updater import MetadataUpdater
from logboom.client.core_context import CoreTurn
from logboom.client.fetch.fetch_buffer import QueueFetch
from logboom.client.groups.assigned_queue import UNPLACED, AssignedQueue
from logboom.client.groups.member import (
    CloseMember,
    CommitMember,
    MemberState,
    OffsetStore,
    OpenMember,
    Saved,
)
from logboom.client.groups.offset_tracker import OffsetTracker
from logboom.client.groups.reconciler import QueueReader, stop_reading
from logboom.wire.errors import LogboomError
from logboom.wire.group_view import OwnedQueue, QueueKey
from logboom.wire.view import TopicView

LOG = logging.getLogger("logboom.client")

TICK_S: Final = 0.2


class BroadcastMember:
    """The core's side of a broadcasting member."""

    def __init__(
        self,
        member: MemberState,
        store: OffsetStore,
        reads: QueueReader,
        watching: MetadataUpdater,
        turn: CoreTurn,
    ) -> None:
        self._member = member
        self._store = store
        self._reads = reads
        self._watching = watching
        self._turn = turn
        self._saved: Saved = {}
        self._valid_from: dict[QueueKey, int] = {}
        """Queue → epoch of its last loss that its position knows (see docs/SAFETY.md, Q15)."""
        self._known: dict[str, int] = {}
        """Topic → number of its queues that are read."""
        self._opening: OpenMember | None = None
        self._closing: CloseMember | None = None
        self._deadline = 0.0
        self._commit_at = 0.0
        self._ended = False

    def open(self, call: OpenMember) -> None:
        """Start reading; the topics are known already."""
        try:
            self._saved = self._store.load()
        except LogboomError as error:
            self._ended = True
            call.outcome.fail(error)
            return
        self._opening = call
        missing = set(self._member.options.subscription)

        def found(name: str) -> Callable[[TopicView | LogboomError], None]:
            def done(topic: TopicView | LogboomError) -> None:
                if isinstance(topic, LogboomError):
                    self._ended = True
                    self._store.close()
                    call.outcome.fail(topic)
                    return
                missing.discard(name)
                if not missing and not self._ended:
                    self._begin()

            return done

        for name in list(missing):
            self._watching.want(name, found(name), call.timeout)

    def _begin(self) -> None:
        if self._opening is None:
            return
        member = self._member
        with member.lock:
            member.epoch, member.joins = 0, 1
        self._read_new()
        self._opening.outcome.resolve(None)
        self._opening = None
        self._tick()

    def rerouted(self) -> None:
        """Follow a metadata change: topics may have grown, gone or been recreated."""
        if self._member.epoch >= 0 and not self._ended and self._closing is None:
            self._read_new()

    def _read_new(self) -> None:
        member, topics = self._member, self._watching.routes.topics
        begun: list[QueueFetch] = []
        with member.lock:
            for holding in list(member.holdings.values()):
                topic = topics.get(holding.topic)
                if topic is None or topic.id != holding.key[0]:
                    self._lose(holding)
                    self._known[holding.topic] = 0
                elif self._has_lost(topic, holding.queue):
                    # It may hold messages that are lost: it begins again with what is left.
                    begun.append(self._read_again(topic, holding))
            for name in member.options.subscription:
                topic = topics.get(name)
                known = self._known.get(name)
                if topic is None:
                    continue
                saved = (queue for topic_id, queue in self._saved if topic_id == topic.id)
                added = known if known is not None else max(saved, default=len(topic.queues)) + 1
                begun += [
                    self._read(topic, queue, later=queue >= added)
                    for queue in range(known or 0, len(topic.queues))
                ]
                self._known[name] = len(topic.queues)
            share = member.share_bytes()
            for holding in member.holdings.values():
                if holding.fetch is not None:
                    holding.fetch.share_bytes = share
                    self._reads.curb(holding.fetch)
            # Queues share a prefetch bound, so each starts once all of them are known.
            for fetch in begun:
                self._reads.open(fetch)
        member.changed()

    def _read(self, topic: TopicView, queue: int, *, later: bool) -> QueueFetch:
        member = self._member
        key = (topic.id, queue)
        start: Start = 0
        offset, ranges = self._cut(topic, queue, self._saved.get(key, (UNPLACED, b"", 0)))
        if offset != UNPLACED:
            start = offset
        elif not later:
            rule = member.config.start
            start = 0 if rule == "first" else ("last" if rule == "last" else MessageTime(rule))
        owned = OwnedQueue(topic.id, queue, 0, max(offset, 0), ranges)
        group, matching = member.options.group, member.matching(topic.name)
        holding = AssignedQueue(group, topic.name, owned, matching, self._turn.now)
        if not isinstance(start, int) or isinstance(start, MessageTime):
            holding.progress = OffsetTracker(UNPLACED)
        member.add(holding)
        fetch = member.new_fetch(holding, 0)
        fetch.start, fetch.group = start, ""
        return fetch

    def _has_lost(self, topic: TopicView, queue: int) -> bool:
        known = self._valid_from.get((topic.id, queue), 0)
        losses = topic.queues[queue].losses
        return bool(losses) and topic.queues[queue].valid_end(known) is not None

    def _read_again(self, topic: TopicView, holding: AssignedQueue) -> QueueFetch:
        """Read a queue from what is left of its position."""
        holding.place_if_known()
        if holding.progress.floor != UNPLACED:
            known = self._valid_from.get(holding.key, 0)
            place = (holding.progress.floor, holding.progress.encode(), known)
            self._saved = {**self._saved, holding.key: place}
        self._lose(holding)
        LOG.warning(
            "group %s: %s/%s has lost messages: going on with what is new",
            self._member.options.group,
            holding.topic,
            holding.queue,
        )
        return self._read(topic, holding.queue, later=False)

    def _cut(
        self, topic: TopicView, queue: int, saved: tuple[int, bytes, int]
    ) -> tuple[int, bytes]:
        """Return a saved position without what the queue has lost since."""
        offset, ranges, known = saved
        view = topic.queues[queue]
        end = view.valid_end(known)
        self._valid_from[topic.id, queue] = view.valid_from()
        return (offset, ranges) if end is None else (min(offset, end), b"")

    # Offsets.

    def commit(self, call: CommitMember) -> None:
        """Save the offsets now."""
        try:
            self._save()
        except LogboomError as error:
            call.outcome.fail(error)
        else:
            call.outcome.resolve(None)

    def _save(self) -> None:
        member = self._member
        now: list[tuple[AssignedQueue, tuple[int, bytes]]] = []
        with member.lock:
            for holding in member.holdings.values():
                holding.place_if_known()
                floor = holding.progress.floor
                known = self._saved.get(holding.key)
                if holding.dirty or known is None or (known[0] == UNPLACED != floor):
                    ranges = b"" if floor == UNPLACED else holding.progress.encode()
                    now.append((holding, (floor, ranges)))
        if not now:
            return
        saved = self._saved | {
            holding.key: (*place, self._valid_from.get(holding.key, 0)) for holding, place in now
        }
        self._store.save(saved)
        self._saved = saved
        with member.lock:
            for holding, place in now:
                holding.committed = place

    def _has_placed(self) -> bool:
        """True if the offset of a queue is known now that was saved without one."""
        holdings, placed = self._member.holdings, False
        with self._member.lock:
            for key, (offset, *_) in self._saved.items():
                if offset == UNPLACED and key in holdings:
                    holdings[key].place_if_known()
                    placed = placed or holdings[key].progress.floor != UNPLACED
        return placed

    def _tick(self) -> None:
        if self._ended:
            return
        self._turn.after(TICK_S, self._tick)
        member = self._member
        every = member.options.commit_every_s
        if every and (self._turn.now >= self._commit_at or self._has_placed()):
            self._commit_at = self._turn.now + every
            try:
                self._save()
            except LogboomError as error:
                LOG.warning("group %s: %s", member.options.group, error)
        if member.reader is not None:
            with member.lock:
                member.reader.tick(self._turn.now)
        self.wake()

    # The end.

    def close(self, call: CloseMember) -> None:
        """Finish what is handed out, save, and end."""
        if self._ended or self._closing is not None:
            call.outcome.resolve(None)
            return
        self._closing, self._deadline = call, self._turn.now + call.timeout
        member = self._member
        with member.lock:
            for holding in list(member.holdings.values()):
                holding.state = "draining"
                stop_reading(member, holding, self._reads)
        member.changed()
        self.wake()

    def wake(self) -> None:
        """Check whether the member can end: a message was finished, or time has passed."""
        if self._closing is None or self._ended:
            return
        member = self._member
        late = self._turn.now >= self._deadline
        with member.lock:
            if not late and any(holding.running for holding in member.holdings.values()):
                return
        self._ended = True
        try:
            self._save()
        except LogboomError as error:
            LOG.warning("group %s: %s", member.options.group, error)
        with member.lock:
            for holding in list(member.holdings.values()):
                self._lose(holding)
            member.epoch = -1
        self._store.close()
        self._closing.outcome.resolve(None)

    def _lose(self, holding: AssignedQueue) -> None:
        holding.state, holding.cancelled = "lost", True
        self._member.remove(holding)
        stop_reading(self._member, holding, self._reads)
