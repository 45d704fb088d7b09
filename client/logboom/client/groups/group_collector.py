"""The reader's side of a member whose application polls and acknowledges.

It is pure: time is a parameter, and the lock comes with the member. A queue that is to be released
waits for the messages that were handed out and neither acknowledged nor given back.
"""

from __future__ import annotations

import heapq
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Final, TypeAlias

from logboom.client.calls import CoreCall, MessageTime, Start
from logboom.client.delays import check_delay
from logboom.client.fetch.fetch_buffer import CompletedFetch, SeekFetch, WakeBuffer, WakeFetch
from logboom.client.fetch.retry_copies import DEAD, place_of
from logboom.client.groups.assigned_queue import UNPLACED, AssignedQueue, GroupFetch
from logboom.client.groups.failed_messages import FailedMessages
from logboom.client.groups.member import MemberState, WakeMember
from logboom.client.results import ColumnBatch, Message
from logboom.wire.columns import Columns
from logboom.wire.errors import GroupError, InvalidRequest, LogboomError, UnknownResource

Given: TypeAlias = Message | ColumnBatch
LOG = logging.getLogger("logboom.client")

BARE_S: Final = 1.0
"""Seconds that an application may poll without having a queue before this is logged."""
HELD_BACK_S: Final = 0.1
"""Seconds after which a due retry of a draining queue is checked again."""


class MemberQueues(ABC):
    """Positions, seeks, pauses and commits by offset of a member's queues."""

    def __init__(self, member: MemberState, call: Callable[[CoreCall], None]) -> None:
        self._member = member
        self._call = call

    @property
    def member(self) -> MemberState:
        """The member that has the queues."""
        return self._member

    @abstractmethod
    def forget(self, holding: AssignedQueue) -> None:
        """Drop what waits here of a queue; called under the lock."""

    def holding(self, topic: str, queue: int) -> AssignedQueue:
        """Return an assigned queue.

        Raises:
            UnknownResource: this member does not have it at the moment.
        """
        found = self._member.holding(topic, queue)
        if found is None:
            text = (
                f"this member of group {self._member.options.group!r} does not have queue {queue} "
                f"of topic {topic!r} at the moment"
            )
            raise UnknownResource(text, "UNKNOWN_QUEUE", topic=topic, queue=queue)
        return found

    def committed(self, topic: str, queue: int) -> int:
        """Return the group's committed offset, as far as this member knows."""
        with self._member.lock:
            return self.holding(topic, queue).committed[0]

    def seek(self, topic: str, queue: int, start: Start) -> None:
        """Continue reading at another position. Commits continue there too, but never go back."""
        if isinstance(start, int) and start < 0:
            raise InvalidRequest(f"an offset must be 0 or more, not {start}")
        with self._member.lock:
            holding = self.holding(topic, queue)
            fetch = holding.fetch
            if fetch is None:
                text = f"queue {queue} of topic {topic!r} is being given away, or not read yet"
                raise GroupError(text, "NOT_OWNER")
            known = isinstance(start, int) and not isinstance(start, MessageTime)
            holding.place(int(start) if known else UNPLACED)
            self.forget(holding)
            fetch.reader_offset = int(start) if known else None
            fetch.generation += 1
            self._call(SeekFetch(fetch, start, fetch.generation))

    def skip_to(self, topic: str, queue: int, offset: int) -> None:
        """Mark everything below `offset` as finished.

        Raises:
            GroupError: BEYOND_END, past what this member has read.
            InvalidRequest: the offset is below the committed one, or no whole number.
        """
        if not isinstance(offset, int):
            raise InvalidRequest(f"an offset must be a whole number, not {offset!r:.80}")
        with self._member.lock:
            holding = self.holding(topic, queue)
            fetch = holding.fetch
            end = max(holding.seen_end, fetch.max_offset if fetch is not None else 0)
            if offset > end:
                text = (
                    f"offset {offset} of {topic}/{queue} cannot be committed: the queue ends at "
                    f"{end}; commit what was read"
                )
                raise GroupError(text, "BEYOND_END", topic=topic, queue=queue, end=end)
            if offset < holding.committed[0]:
                text = (
                    f"offset {offset} of {topic}/{queue} is below {holding.committed[0]}, which is "
                    "committed: commits only go forward; to go back use admin.reset_offsets()"
                )
                raise InvalidRequest(text)
            holding.progress.finish(min(holding.progress.floor, offset), offset)

    def read_again(self, holdings: Sequence[AssignedQueue]) -> None:
        """Read these queues again from the point that the application has finished.

        What it received since then was undone.
        """
        with self._member.lock:
            for holding in holdings:
                if self._member.holdings.get(holding.key) is not holding:
                    continue  # another member reads it now
                start = holding.progress.floor
                holding.place(start)
                self.forget(holding)
                fetch = holding.fetch
                if fetch is None:
                    self._call(WakeMember(self._member))
                    continue
                fetch.reader_offset = start
                fetch.generation += 1
                self._call(SeekFetch(fetch, start, fetch.generation))

    def pause(self, topic: str, queue: int) -> None:
        """Hand out nothing of a queue until `resume`; fetched messages are kept.

        It stays paused if it is revoked and assigned again.
        """
        with self._member.lock:
            self._member.pause(topic, queue)

    def resume(self, topic: str, queue: int) -> None:
        """Hand out the messages of a queue again."""
        with self._member.lock:
            fetch = self._member.resume(topic, queue)
            if fetch is not None:
                self._call(WakeFetch(fetch))


class _CollectedBatch:
    """Messages of one batch that are not handed out yet."""

    __slots__ = ("holding", "messages", "place")

    def __init__(self, holding: AssignedQueue, messages: list[Message]) -> None:
        self.holding = holding
        self.messages = messages
        self.place = 0


class GroupFetchCollector(MemberQueues):
    """Messages that have arrived for a member, and those that its application has."""

    def __init__(
        self, member: MemberState, call: Callable[[CoreCall], None], failures: FailedMessages
    ) -> None:
        super().__init__(member, call)
        self._failures = failures
        self._batches: deque[_CollectedBatch] = deque()
        self._later: list[tuple[float, int, AssignedQueue, Message]] = []
        """A heap of messages to hand out again from here, by time."""
        self._order = count()
        self._bare_since: float | None = None
        """Time since which the application polls and there is no queue; None: there is one."""
        self._said_bare = False
        self._woken_from: LogboomError | None = None
        """Why the member was away when its core was last told of a poll."""
        member.reader = self

    # Handing out.

    def take(self, limit: int, now: float) -> list[Message]:
        """Return up to `limit` messages without waiting; raise the error of a queue or the group."""
        taken: list[Message] = []
        with self._member.lock:
            self._member.asked += 1
            if self._member.away is not self._woken_from:
                self._wake()
            self._take_due(taken, limit, now)
            while len(taken) < limit:
                batch = self._ready(now) or self._open_next(now, calm=bool(taken))
                if batch is None:
                    break
                stop = batch.place + limit - len(taken)
                if batch.holding.trial is not None:
                    if batch.holding.tries:
                        self._try(batch, taken, now)
                        continue
                    at = place_of(batch.messages[batch.place])[2]
                    stop = batch.place + batch.holding.allowed(at, limit - len(taken), now)
                some = batch.messages[batch.place : stop]
                batch.place += len(some)
                taken += some
                batch.holding.handed = place_of(some[-1])[2] + 1
            if not taken or self._bare_since is not None:
                self._look_for_queues(bool(taken), now)
        return taken

    def _try(self, batch: _CollectedBatch, taken: list[Message], now: float) -> None:
        """Hand out one message that may crash this process, or bury it."""
        message, holding = batch.messages[batch.place], batch.holding
        batch.place += 1
        holding.handed = place_of(message)[2] + 1
        cause = holding.give_trial(message, now)
        if cause:
            self._failures.bury(self, holding, message, cause)
        else:
            taken.append(message)

    def _waits(self, now: float) -> bool:
        """True if the first arrival belongs to a queue that waits; opening it would fetch even
        more."""
        arrival = self._member.inbox.arrivals[0] if self._member.inbox.arrivals else None
        fetch = None if arrival is None else arrival.fetch
        if arrival is None or arrival.columns is None or not isinstance(fetch, GroupFetch):
            return False
        trial = fetch.holding.trial
        if trial is None or trial.until is None or arrival.generation != fetch.generation:
            return False
        return self._held_back(fetch.holding, arrival.columns.base_offset, now)

    def _columns_wait(self, now: float) -> bool:
        """True if the first arrival has to be handed out later."""
        arrival = self._member.inbox.arrivals[0] if self._member.inbox.arrivals else None
        fetch = None if arrival is None else arrival.fetch
        if arrival is None or not isinstance(fetch, GroupFetch) or fetch.holding.trial is None:
            return False
        holding, columns = fetch.holding, arrival.columns
        if arrival.generation != fetch.generation or columns is None:
            return False
        holding.pass_to(columns.base_offset)
        matcher = holding.matching.matcher
        if matcher is not None and not matcher.may_match(columns.head):
            return False
        if holding.tries:
            holding.look_at_trial(columns)
        return self._held_back(holding, max(columns.base_offset, holding.progress.floor), now)

    def _cut(
        self, arrival: CompletedFetch, columns: Columns, holding: AssignedQueue, now: float
    ) -> Columns:
        """Split off the part of a batch that may be handed out now; the rest stays."""
        wanted = len(columns)
        count = holding.allowed(columns.base_offset, wanted, now)
        if count < wanted:
            self._stays(arrival, columns.slice(count, wanted))
            columns = columns.slice(0, count)
        return columns

    def _stays(self, arrival: CompletedFetch, rest: Columns) -> None:
        rest_of = CompletedFetch(arrival.fetch, arrival.generation, rest, 0)
        self._member.inbox.arrivals.appendleft(rest_of)

    def _try_columns(
        self, arrival: CompletedFetch, columns: Columns, found: list[ColumnBatch], now: float
    ) -> None:
        """Hand out one message of a batch that may crash this process, or bury it; the rest stays."""
        fetch = arrival.fetch
        assert isinstance(fetch, GroupFetch)
        holding, first = fetch.holding, columns.base_offset
        message = holding.look_at_trial(columns)
        at = holding.progress.floor
        holding.arrived = holding.handed = at + 1
        cause = holding.give_trial(message, now)
        if cause:
            self._failures.bury(self, holding, message, cause)
        else:
            part = columns.slice(at - first, at + 1 - first)
            found.append(ColumnBatch(holding.topic, holding.queue, part))
        if at + 1 < columns.next_offset:
            self._stays(arrival, columns.slice(at + 1 - first, columns.next_offset - first))

    def _held_back(self, holding: AssignedQueue, offset: int, now: float) -> bool:
        if holding.trial is None or not holding.held_back(offset, now):
            return False
        if holding.asks_to_tell(early=self._member.commits_early):
            self._call(WakeMember(self._member))
        return True

    def take_columns(self, now: float) -> list[ColumnBatch]:
        """Return all batches that have arrived, as columns, without messages finished before."""
        found: list[ColumnBatch] = []
        with self._member.lock:
            self._member.asked += 1
            self._wake()
            while (
                not self._columns_wait(now)
                and (arrival := self._next(calm=bool(found))) is not None
            ):
                fetch, columns = arrival.fetch, arrival.columns
                if columns is None or not isinstance(fetch, GroupFetch):
                    continue
                holding = fetch.holding
                if holding.tries:
                    self._try_columns(arrival, columns, found, now)
                    continue
                matcher = holding.matching.matcher
                holding.pass_to(columns.base_offset)
                columns = self._cut(arrival, columns, holding, now)
                holding.arrived = holding.handed = columns.next_offset
                if matcher is not None and not matcher.may_match(columns.head):
                    self._finish(holding, columns.base_offset, columns.next_offset)
                    continue
                first = columns.base_offset
                for start, stop in list(holding.progress.gaps(first, columns.next_offset)):
                    part = columns.slice(start - first, stop - first)
                    found.append(ColumnBatch(holding.topic, holding.queue, part))
            self._look_for_queues(bool(found), now)
        return found

    def _wake(self) -> None:
        """Let a member that left for want of polls join again."""
        away = self._member.away
        if away is not None and away is not self._woken_from:
            self._call(WakeMember(self._member))
        self._woken_from = away

    def _look_for_queues(self, found: bool, now: float) -> None:
        if found or self._member.assigned:
            self._bare_since, self._said_bare = None, False
        elif self._bare_since is None:
            self._bare_since = now

    def has_queue(self) -> bool:
        """True if the member has a queue; otherwise its inbox rings with the next change.

        Raises:
            LogboomError: why the group does not accept the member.
        """
        with self._member.lock:
            self._member.asked += 1
            self._wake()
            if self._member.error is not None:
                raise self._member.error
            return self._member.assigned

    def found_nothing(self, now: float) -> None:
        """Log once that a poll returns nothing because the member has no queue."""
        with self._member.lock:
            bare = self._bare_since is not None and now - self._bare_since >= BARE_S
            if not bare or self._said_bare:
                return
            self._said_bare = True
            session_s = self._member.config.session_ms / 1000
        LOG.warning(
            "group %s: nothing to read, for this member has no queue (yet): all are other members', "
            "and one that died keeps its own for %g s; consumer.wait_assigned() waits for one",
            self._member.options.group,
            session_s,
        )

    def due(self) -> float | None:
        """Return the time at which the next message is handed out again from here."""
        with self._member.lock:
            times = self._trials_over()
            if self._later:
                times.append(self._later[0][0])
            return min(times, default=None)

    def _trials_over(self) -> list[float]:
        """Return the times at which queues stop waiting for a message being tried."""
        waiting = [each.holding for each in self._batches if each.place < len(each.messages)]
        first = self._member.inbox.arrivals[0].fetch if self._member.inbox.arrivals else None
        if isinstance(first, GroupFetch):
            waiting.append(first.holding)
        trials = [holding.trial for holding in waiting if not _paused(holding)]
        return [trial.until for trial in trials if trial is not None and trial.until is not None]

    def _take_due(self, taken: list[Message], limit: int, now: float) -> None:
        while self._later and self._later[0][0] <= now and len(taken) < limit:
            _, order, holding, message = heapq.heappop(self._later)
            if holding.state == "draining" or _paused(holding):
                heapq.heappush(self._later, (now + HELD_BACK_S, order, holding, message))
            elif holding.state == "reading":
                taken.append(message)

    def _ready(self, now: float) -> _CollectedBatch | None:
        batches = self._batches
        while batches and batches[0].place >= len(batches[0].messages):
            batches.popleft()
        for batch in batches:
            if batch.place < len(batch.messages) and not _paused(batch.holding):
                if batch.holding.trial is not None:
                    at = place_of(batch.messages[batch.place])[2]
                    if self._held_back(batch.holding, at, now):
                        continue
                return batch
        return None

    def _open_next(self, now: float, *, calm: bool) -> _CollectedBatch | None:
        while not self._waits(now) and (arrival := self._next(calm=calm)) is not None:
            fetch, columns = arrival.fetch, arrival.columns
            if columns is None or not isinstance(fetch, GroupFetch):
                continue
            messages = fetch.holding.open(columns, arrival.matches)
            if messages:
                batch = _CollectedBatch(fetch.holding, messages)
                self._batches.append(batch)
                at = place_of(messages[0])[2]
                if not fetch.paused and not self._held_back(fetch.holding, at, now):
                    return batch
            else:
                fetch.holding.handed = fetch.holding.arrived
        return None

    def _next(self, *, calm: bool) -> CompletedFetch | None:
        """Take the next valid arrival; raise its error, or the group's."""
        if self._member.error is not None and not calm:
            raise self._member.error
        arrivals = self._member.inbox.arrivals
        while arrivals:
            arrival = arrivals[0]
            fetch = arrival.fetch
            if arrival.generation != fetch.generation or not isinstance(fetch, GroupFetch):
                arrivals.popleft()
            elif arrival.error is not None:
                if calm:
                    return None
                arrivals.popleft()
                raise arrival.error
            else:
                arrivals.popleft()
                if arrival.columns is None:
                    fetch.holding.pass_to(arrival.passed)
                    continue
                self._use(arrival)
                return arrival
        if self._member.inbox.wants_wake():
            self._call(WakeBuffer(self._member.inbox))
        return None

    def _use(self, arrival: CompletedFetch) -> None:
        fetch = arrival.fetch
        fetch.gave(arrival.size)
        if fetch.stalled and fetch.fetched - fetch.consumed <= fetch.share_bytes // 2:
            fetch.stalled = False
            self._call(WakeFetch(fetch))
        if fetch.inbox.wants_wake():
            self._call(WakeBuffer(fetch.inbox))

    # Acknowledgements.

    def ack(self, given: Given | Iterable[Given]) -> None:
        """Finish a message, a batch of columns, or several of them.

        Raises:
            InvalidRequest: one was not given to this member; what came before it is finished.
        """
        with self._member.lock:
            self._member.asked += 1
            topic, queue, start, stop = "", -1, 0, 0  # messages of one queue that follow each other
            try:
                for each in (given,) if isinstance(given, (Message, ColumnBatch)) else given:
                    if isinstance(each, ColumnBatch):
                        at = (each.topic, each.queue, each.columns.base_offset)
                        count = len(each.columns)
                    else:
                        at, count = place_of(each), 1
                    if at[2] != stop or at[1] != queue or at[0] != topic:
                        before = (topic, queue, start, stop)
                        topic, queue, start = at
                        stop = start
                        self._ack_range(*before)
                    stop += count
            finally:
                self._ack_range(topic, queue, start, stop)

    def _ack_range(self, topic: str, queue: int, start: int, stop: int) -> None:
        """Finish the messages from `start` to before `stop` that this member was given.

        Raises:
            InvalidRequest: it was not given all of them.
        """
        if start == stop:
            return
        if not isinstance(start, int):
            raise InvalidRequest(f"an offset must be a whole number, not {start!r:.80}")
        holding = self._member.holding(topic, queue)
        if holding is not None:
            self._finish(holding, start, stop)
        if holding is None or stop > holding.handed:
            self._check_given(topic, queue, start, stop)

    def nack(self, message: Message, delay_s: float | None, cause: str, now: float) -> None:
        """Schedule a failed message again, after `delay_s` or the group's retry delay.

        Raises:
            InvalidRequest: the delay is invalid, or the message was not given to this member.
        """
        if delay_s is not None:
            check_delay(delay_s)
        self._fail(message, delay_s, cause, now)

    def reject(self, message: Message, cause: str, now: float) -> None:
        """Send a message that will never be handled to the dead letters.

        Raises:
            InvalidRequest: it was not given to this member.
        """
        self._fail(message, DEAD, cause, now)

    def _fail(self, message: Message, delay_s: float | None, cause: str, now: float) -> None:
        topic, queue, offset = place_of(message)
        with self._member.lock:
            self._member.asked += 1
            holding = self._member.holding(topic, queue)
            if holding is None or offset >= holding.handed:
                self._check_given(topic, queue, offset, offset + 1)
                return  # another member has it now, or it will be given again
            if holding.progress.is_finished(offset):
                return
            self._failures.fail(self, holding, message, delay_s, cause, now)

    def _check_given(self, topic: str, queue: int, start: int, stop: int) -> None:
        """Check that this member was given these messages once.

        It may have lost their queue since, or read it again from before them.

        Raises:
            InvalidRequest: it was not.
        """
        reached = self._member.reached(topic, queue)
        if stop <= reached:
            return
        start = max(start, reached)
        what = f"message {start} of {topic}/{queue} was"
        if stop > start + 1:
            what = f"messages {start} to {stop - 1} of {topic}/{queue} were"
        raise InvalidRequest(
            f"{what} not given to this consumer (group {self._member.options.group!r}): settle a "
            "message with the consumer that read it"
        )

    def retry(self, holding: AssignedQueue, message: Message, when: float) -> None:
        """Hand a message out again from here; called under the lock."""
        if holding.state != "lost":
            heapq.heappush(self._later, (when, next(self._order), holding, message))
            self._count(holding)

    def sent_on(self, holding: AssignedQueue, message: Message) -> None:
        """Finish a message whose copy is safe; called under the lock."""
        offset = place_of(message)[2]
        self._finish(holding, offset, offset + 1)

    def committed_with(self, queues: Sequence[tuple[AssignedQueue, int]]) -> None:
        """Finish everything below these offsets, which a transaction has committed for the group."""
        with self._member.lock:
            for holding, offset in queues:
                if self._member.holdings.get(holding.key) is holding:
                    holding.committed = (offset, b"")
                    self._finish(holding, holding.progress.floor, offset)

    def _finish(self, holding: AssignedQueue, start: int, stop: int) -> None:
        # What was not handed out in this epoch does not count for the application.
        holding.progress.finish(start, min(stop, holding.handed))
        self._count(holding)

    def _count(self, holding: AssignedQueue) -> None:
        """Count the messages of a queue to be released that are still out."""
        if holding.state == "draining":
            waiting = sum(1 for each in self._later if each[2] is holding)
            holding.running = max(0, holding.progress.unfinished(holding.handed) - waiting)
            if holding.running == 0:
                self._call(WakeMember(self._member))

    # Called by the core.

    def drop(self, holding: AssignedQueue) -> None:
        """Hand out nothing more of a queue; if it stays, the rest is read again."""
        if holding.state == "lost":
            self.forget(holding)
        else:
            self._batches = deque(each for each in self._batches if each.holding is not holding)
        self._count(holding)

    def tick(self, now: float) -> None:
        """Do nothing: the application checks `due`."""

    def forget(self, holding: AssignedQueue) -> None:
        """Drop what waits here of a queue."""
        self._batches = deque(each for each in self._batches if each.holding is not holding)
        self._later = [each for each in self._later if each[2] is not holding]
        heapq.heapify(self._later)

    def position(self, topic: str, queue: int) -> int | None:
        """Return the offset of the next message for the application; None if not known yet."""
        with self._member.lock:
            holding = self.holding(topic, queue)
            for batch in self._batches:
                if batch.holding is holding and batch.place < len(batch.messages):
                    return place_of(batch.messages[batch.place])[2]
            return None if holding.progress.floor == UNPLACED else holding.arrived


def _paused(holding: AssignedQueue) -> bool:
    return holding.fetch is not None and holding.fetch.paused
