"""One queue assigned to a group member: what was fetched, handed out and finished.

It is shared by the core, which takes, drains and releases it, and by the reader, which hands out
its messages. Both hold the member's lock while they use it.
"""

from __future__ import annotations

import logging
from itertools import compress
from typing import Final, Literal, TypeAlias

import msgspec

from logboom.client.fetch.fetch_buffer import FetchBuffer, QueueFetch
from logboom.client.fetch.message_filter import match_messages, matcher_of, tags_of, text_of
from logboom.client.fetch.retry_copies import place_of, restore_original
from logboom.client.groups.offset_tracker import OffsetTracker, trying_of
from logboom.client.groups.trials import SAY_S, STEP_S, Trial
from logboom.client.results import Message, messages_of
from logboom.wire.columns import Columns
from logboom.wire.errors import DamagedBatch
from logboom.wire.filters import Filter
from logboom.wire.group_commands import QueueCommit
from logboom.wire.group_messages import QueueStatus
from logboom.wire.group_view import OwnedQueue, QueueKey
from logboom.wire.names import RETRY_PREFIX

LOG = logging.getLogger("logboom.client")

State: TypeAlias = Literal["reading", "draining", "lost"]
STILL_S: Final = 5.0
"""Seconds without progress of the commit point, or without a poll, before this is reported as the
reason for the lag."""
UNPLACED: Final = -1
"""Commit point after a seek to an end or a time, until the first message reveals the offset."""


class GroupFetch(QueueFetch):
    """A fetch of a queue for a group, fenced by its owner epoch."""

    __slots__ = ("holding",)

    def __init__(
        self,
        holding: AssignedQueue,
        start: int,
        inbox: FetchBuffer,
        share_bytes: int,
        matching: TopicFilter,
    ) -> None:
        super().__init__(
            holding.topic, holding.queue, start, inbox, share_bytes, matching.batch_tags
        )
        self.holding = holding
        self.group = holding.group
        self.owner_epoch = holding.owner_epoch
        self.owner_proof = holding.owner_proof
        self.topic_id = holding.key[0]
        self.filter = matching.where


class TopicFilter:
    """The compiled filter of a group for one topic."""

    __slots__ = ("batch_tags", "matcher", "where")

    def __init__(self, wanted: Filter) -> None:
        self.batch_tags = tags_of(wanted)
        """Brokers may skip batches that have none of these tags."""
        self.where = text_of(wanted)
        """The property filter sent to brokers; "" if there is none."""
        self.matcher = matcher_of(wanted)
        """None: every message is wanted."""


class PrefetchShare:
    """All queues of one topic that a member has; the core writes it under the member's lock."""

    __slots__ = ("holdings",)

    def __init__(self) -> None:
        self.holdings: dict[QueueKey, AssignedQueue] = {}


class Turns:
    """The turn to try a queue's first message; only one queue of a member has it at a time.

    Otherwise a crash would be counted against messages that did not cause it.
    """

    __slots__ = ("holding",)

    def __init__(self) -> None:
        self.holding: AssignedQueue | None = None


class AssignedQueue:
    """One assigned queue of a member, in one owner epoch."""

    __slots__ = (
        "arrived",
        "cancelled",
        "committed",
        "failing",
        "fetch",
        "group",
        "handed",
        "key",
        "matching",
        "moved",
        "owner_epoch",
        "owner_proof",
        "progress",
        "queue",
        "reached",
        "releasing",
        "running",
        "seen_end",
        "share",
        "since",
        "state",
        "topic",
        "trial",
        "turns",
    )

    def __init__(
        self,
        group: str,
        topic: str,
        owned: OwnedQueue,
        matching: TopicFilter,
        now: float,
        trial: Trial | None = None,
    ) -> None:
        self.group = group
        self.topic = topic
        self.key: QueueKey = (owned.topic_id, owned.queue)
        self.queue = owned.queue
        self.owner_epoch = owned.owner_epoch
        self.owner_proof = b""
        """The coordinator's proof of that epoch, for pulls; empty if it gave none."""
        self.matching = matching
        try:
            self.progress = OffsetTracker(owned.start, owned.ranges)
        except DamagedBatch as error:
            LOG.warning("%s/%s of group %s: %s", topic, owned.queue, group, error)
            self.progress = OffsetTracker(owned.start)
        self.committed = (self.progress.floor, owned.ranges)
        """(offset, ranges) that the group is known to have committed."""
        self.arrived = owned.start
        """The offset after the last message that the reader has opened."""
        self.handed = owned.start
        """The offset after the last message handed out, where reading resumes after a drain."""
        self.reached = 0
        """The offset after the last message that the member was ever given of this queue, as far as that
        is beyond `handed`: before a seek, or before it lost the queue."""
        self.seen_end = owned.start
        """The greatest log end that pulls have shown (see docs/SAFETY.md, G3)."""
        self.running = 0
        """Number of messages handed out that are neither finished nor given back."""
        self.fetch: QueueFetch | None = None
        self.state: State = "reading"
        self.since = now
        """Time at which the state began."""
        self.moved = (self.progress.floor, now)
        """The commit point as last seen, and the time at which it was first seen there."""
        self.releasing = False
        self.failing = ""
        """The reason why an orderly queue waits for a message that failed; "" if it does not."""
        self.share = PrefetchShare()
        """The member's queues of the same topic, including this one."""
        self.turns = Turns()
        """Shared by all queues of the member."""
        self.cancelled = False
        """Handlers should stop: their results no longer count, or soon will not."""
        self.trial = trial
        """None: the last owner left in good order, or the first message is done."""

    @property
    def is_retry(self) -> bool:
        """True for the group's retry queue, whose messages carry the position that they come from."""
        return self.topic == RETRY_PREFIX + self.group

    def open(self, columns: Columns, matches: bytes | None = None) -> list[Message]:
        """Return the messages of a batch to hand out; all others count as finished."""
        first, stop = columns.base_offset, columns.next_offset
        self.pass_to(first)
        self.arrived = max(self.arrived, stop)
        self.seen_end = max(self.seen_end, stop)
        matcher = None if self.is_retry else self.matching.matcher
        picked = match_messages(matcher, columns, matches)
        messages = messages_of(self.topic, self.queue, columns)
        if picked is not None:
            messages = list(compress(messages, picked))
        if self.progress.sparse or first < self.progress.floor:
            messages = [m for m in messages if not self.progress.is_finished(m.offset)]
        if len(messages) < stop - first:
            self._finish_others(messages, first, stop)
        if self.is_retry:
            messages = [restore_original(message) for message in messages]
        if self.trial is not None and messages:
            self._try(self.trial, messages)
        return messages

    @staticmethod
    def _try(trial: Trial, messages: list[Message]) -> None:
        first = messages[0]
        if place_of(first)[2] == trial.offset and not trial.given:
            attempt = trial.found(first.attempt)
            messages[0] = msgspec.structs.replace(first, attempt=attempt)

    def look_at_trial(self, columns: Columns) -> Message:
        """Return the message at the commit point from a batch that is not opened."""
        at = max(0, self.progress.floor - columns.base_offset)
        messages = messages_of(self.topic, self.queue, columns.slice(at, at + 1))
        if self.is_retry:
            messages = [restore_original(messages[0])]
        if self.trial is not None:
            self._try(self.trial, messages)
        return messages[0]

    def held_back(self, offset: int, now: float) -> bool:
        """True if the next message, at `offset`, has to wait.

        It waits for a message that is being tried, in this queue or another one of the member, or
        until the group knows of a trial. If it need not wait and has to be tried itself (`tries`),
        it is handed out alone; otherwise at most `allowed` messages are.
        """
        trial = self.trial
        if trial is None:
            return False
        if trial.until is None:
            trial.until = now + SAY_S
            trial.end = -1 if self.fetch is None else self.fetch.max_offset
        floor = self.progress.floor
        if floor == trial.offset and not trial.given:
            if trial.over:
                trial.wanted = False
                return False
            if not trial.wanted:
                other = self.turns.holding
                until = 0.0 if other is None or other is self else other.tried_until()
                if now < until:
                    trial.until = until
                    return True
                self.turns.holding, trial.wanted, trial.until = self, True, now + SAY_S
            return not trial.is_said and now < trial.until
        if offset < trial.limit:
            return False
        if now >= trial.until:
            if floor != trial.offset:
                self.trial = None
            return False
        if min(floor, self.committed[0]) < trial.limit:
            return True
        if not trial.step(offset, now):
            self.trial = None
        return False

    def tried_until(self) -> float:
        """The time until which the queue waits for the message being tried.

        It is 0.0 if no message is being tried, or if the trial's end is committed.
        """
        trial = self.trial
        if trial is None or self.state != "reading" or self.committed[0] > trial.offset:
            return 0.0
        return trial.until if trial.wanted and trial.until is not None else 0.0

    def allowed(self, offset: int, wanted: int, now: float) -> int:
        """Number of messages from `offset` on, up to `wanted`, that may be handed out now."""
        trial = self.trial
        if trial is None or trial.until is None or now >= trial.until:
            return wanted
        return max(1, min(wanted, trial.limit - offset))

    @property
    def tries(self) -> bool:
        """True if the next message to hand out is the one to be tried."""
        trial = self.trial
        return trial is not None and not trial.given and self.progress.floor == trial.offset

    def give_trial(self, message: Message, now: float) -> str:
        """Hand out the message to be tried; return why it is a dead letter instead, or ""."""
        trial = self.trial
        if trial is None:
            return ""
        trial.given, trial.until = True, now + STEP_S
        if trial.over:
            return trial.cause(self.group)
        # The first time may be chance. From the second time on, this message is the likely cause.
        LOG.log(
            logging.WARNING if trial.kept else logging.INFO,
            "group %s: whoever had %s/%s ended without leaving; message %d is handed out alone, "
            "as attempt %d",
            *(self.group, message.topic, message.queue, message.offset, message.attempt),
        )
        return ""

    def unsaid(self, *, early: bool) -> bool:
        """True if the group has to be told now that a message is being tried.

        With `early`, also if it has to be told that everything handed out is done.
        """
        trial = self.trial
        if trial is None or self.progress.floor == UNPLACED:
            return False
        if self.progress.floor == trial.offset:
            return trial.wanted and not trial.is_said
        return early and self.committed[0] < trial.limit <= self.progress.floor

    def asks_to_tell(self, *, early: bool) -> bool:
        """True if the core has to be woken, once for each reason.

        It has to tell the group of a trial, or it is the turn of another queue.
        """
        other = self.turns.holding
        if other is not None and other is not self and other.tried_until():
            return other.asks_to_tell(early=early)
        trial = self.trial
        if trial is None or trial.woken == self.progress.floor or not self.unsaid(early=early):
            return False
        trial.woken = self.progress.floor
        return True

    def sends(self, commit: QueueCommit) -> None:
        """Note a commit that the group may store, though its answer may never arrive."""
        trial = self.trial
        if trial is not None and commit.offset == trial.offset:
            trial.in_doubt = trial.in_doubt or trying_of(commit.ranges) != trial.said

    def took(self, commit: QueueCommit) -> None:
        """Note a commit that the group has stored."""
        self.committed = (commit.offset, commit.ranges)
        if self.trial is not None and commit.offset == self.trial.offset:
            self.trial.said = trying_of(commit.ranges)
            self.trial.in_doubt = False

    def encoded(self) -> bytes:
        """Encode what is finished above the commit point, and the trial at it."""
        trial = self.trial
        if trial is None or self.progress.floor != trial.offset:
            return self.progress.encode()
        # A member that releases a queue did not crash on its message.
        return self.progress.encode(trial.kept if self.state == "draining" else trial.trying)

    def _finish_others(self, wanted: list[Message], first: int, stop: int) -> None:
        at = first
        for message in wanted:
            if message.offset > at:
                self.progress.finish(at, message.offset)
            at = message.offset + 1
        self.progress.finish(at, stop)

    def pass_to(self, offset: int) -> None:
        """Count everything before `offset` that did not arrive as finished.

        It was filtered out or removed.
        """
        if self.progress.floor == UNPLACED:
            self.progress = OffsetTracker(offset)
            self._hand_from(offset)
        if offset > self.arrived:
            self.progress.finish(self.arrived, offset)
            self.arrived = offset
        self.seen_end = max(self.seen_end, offset)

    def place(self, offset: int) -> None:
        """Start again from another offset after a seek; what was finished before no longer matters."""
        self.progress = OffsetTracker(offset)
        self._hand_from(offset)
        self.running = 0
        self.trial = None

    def _hand_from(self, offset: int) -> None:
        self.reached = max(self.reached, self.handed)
        self.arrived = self.handed = offset

    def place_if_known(self) -> None:
        """Set the commit point after a seek to an end or a time, if the offset is known by now."""
        fetch = self.fetch
        if (
            self.progress.floor == UNPLACED
            and fetch is not None
            and fetch.reader_offset is not None
        ):
            self.pass_to(fetch.reader_offset)

    def last_commit(self) -> QueueCommit:
        """Return the commit to send now."""
        fetch = self.fetch
        seen = self.seen_end if fetch is None else max(self.seen_end, fetch.max_offset)
        self.seen_end = seen
        offset, ranges = self.committed
        if self.progress.floor != UNPLACED:
            offset, ranges = self.progress.floor, self.encoded()
        return QueueCommit(*self.key, self.owner_epoch, offset, max(seen, offset), ranges)

    @property
    def dirty(self) -> bool:
        """True if there is something to commit."""
        progress = self.progress
        if progress.floor == UNPLACED:
            return False
        offset, ranges = self.committed
        if progress.floor != offset:
            return True
        trial = self.trial
        if trial is not None and self.state == "draining" and trial.in_doubt:
            # What was told of the trial may be stored: it is taken back in any case.
            return True
        return (progress.sparse or ranges != b"" or trial is not None) and self.encoded() != ranges

    def status(self, now: float, asked_at: float) -> QueueStatus | None:
        """Return why the queue makes no progress, for the coordinator; None if it is being read.

        Args:
            now: monotonic seconds.
            asked_at: when the application last asked for messages.
        """
        fetch, state = self.fetch, ""
        if self.progress.floor != self.moved[0]:
            self.moved = (self.progress.floor, now)
        since = max(self.since, self.moved[1])
        if self.state == "draining":
            since = self.since
            state = f"draining: {self.running} handed out" if self.running else "draining"
        elif fetch is not None and fetch.paused:
            state = "paused"
        elif self.failing:
            state = f"suspended, {self.failing}"
        elif fetch is not None and fetch.trouble:
            # The leader has seen a newer owner; other brokers report this as a refused lock.
            refused = fetch.trouble == "STALE_EPOCH"
            state = "lock refused" if refused else f"pulls fail: {fetch.trouble}"
        elif now - asked_at >= STILL_S:
            state, since = "not polled", asked_at
        elif fetch is not None and fetch.full:
            state = "handler running, full cache" if self.running else "full cache"
        elif self.running and now - since >= STILL_S:
            state = "handler running"
        if not state:
            return None
        size = 0 if fetch is None else fetch.fetched - fetch.consumed
        count = max(0, self.arrived - max(self.progress.floor, 0))
        return QueueStatus(*self.key, state, int((now - since) * 1000), count, size)
