"""Distribution of a push consumer's messages to workers; pure, for threads and tasks alike.

A worker takes some messages of one queue, runs the listener, and reports the results, all under the
member's lock. The number of messages depends on how long the listener has taken so far: they are
worth about a millisecond, so that a fast listener is not slowed down by locks and a slow one shares
the work. If one worker hangs, the others take what it has left.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from logboom.client.calls import CoreCall
from logboom.client.fetch.fetch_buffer import WakeFetch
from logboom.client.fetch.retry_copies import DEAD
from logboom.client.groups.assigned_queue import AssignedQueue, GroupFetch
from logboom.client.groups.failed_messages import FailedMessages
from logboom.client.groups.member import MemberState, WakeMember
from logboom.client.push.listener_task import ListenerTask
from logboom.client.push.process_queue import ProcessQueue
from logboom.client.push_options import PushOptions
from logboom.client.results import Message

LOG = logging.getLogger("logboom.client")

PORTION_S: Final = 0.001
"""Seconds of work that a worker takes at once."""
MAX_PORTION: Final = 512
"""Maximum number of messages that a worker takes at once."""
STEAL_AFTER_S: Final = 0.01
"""Seconds after which other workers help one whose listener does not return."""
OPEN_AT_ONCE: Final = 8
"""Batches opened per look into the inbox."""
MAX_REASON: Final = 120
"""Maximum characters of the reason why an orderly queue waits, as reported to the coordinator."""
WAIT_S: Final = 1.0
"""Longest sleep of a worker."""


class PushDispatcher:
    """All messages of one push consumer between the inbox and the listener."""

    def __init__(
        self,
        member: MemberState,
        options: PushOptions,
        call: Callable[[CoreCall], None],
        failures: FailedMessages,
    ) -> None:
        self._member = member
        self._options = options
        self._call = call
        self._failures = failures
        self._lanes: dict[int, ProcessQueue] = {}
        self._turns: deque[ProcessQueue] = deque()
        """Queues in the order in which they are served."""
        self._lent: dict[int, ListenerTask] = {}
        self._each_s = PORTION_S
        """Average time per message in seconds."""
        self.handled = 0
        """Number of messages that the listener has handled."""
        member.reader = self

    # Taking messages.

    def next(self, now: float) -> ListenerTask | None:
        """Return a task, or None; `sleep` tells how long to wait then."""
        self._open_arrivals()
        for _ in range(len(self._turns)):
            lane = self._turns[0]
            self._turns.rotate(-1)
            if lane.later:
                lane.ripen(now)
            if lane.count and self._free_to_go(lane, now):
                if not lane.holding.tries:
                    allowed = lane.holding.allowed(lane.next, self._portion(lane), now)
                    return self._lend(lane, lane.take(allowed), now)
                work = self._try(lane, now)
                if work is not None:
                    return work
        return self._help(now)

    def _try(self, lane: ProcessQueue, now: float) -> ListenerTask | None:
        """Hand out one message that may crash this process, or bury it."""
        messages, holding = lane.take(1), lane.holding
        cause = holding.give_trial(messages[0], now)
        if not cause:
            return self._lend(lane, messages, now)
        holding.running += 1
        self._failures.bury(self, holding, messages[0], cause)
        return None

    def _free_to_go(self, lane: ProcessQueue, now: float) -> bool:
        if lane.holding.state != "reading" or lane.paused:
            return False
        if self._options.orderly and (lane.busy or lane.suspended > now):
            return False
        if lane.holding.trial is None or not lane.holding.held_back(lane.next, now):
            return True
        if lane.holding.asks_to_tell(early=self._member.commits_early):
            self._call(WakeMember(self._member))
        return False

    def _portion(self, lane: ProcessQueue) -> int:
        if self._options.batch > 1:
            return self._options.batch
        portion = int(PORTION_S / max(self._each_s, 1e-7))
        shared = (
            lane.count // self._options.threads + 1 if self._each_s > PORTION_S / 20 else portion
        )
        return max(1, min(portion, shared, MAX_PORTION))

    def _lend(self, lane: ProcessQueue, messages: list[Message], now: float) -> ListenerTask:
        work = ListenerTask(lane, messages, now)
        lane.busy = True
        lane.holding.running += len(messages)
        self._lent[id(work)] = work
        return work

    def _help(self, now: float) -> ListenerTask | None:
        """Take what is left of a worker's task whose listener does not return."""
        if self._options.orderly or self._options.batch > 1:
            return None
        for work in self._lent.values():
            if work.stopped or work.lane.paused:
                continue
            if work.rest and now - work.began > STEAL_AFTER_S:
                stolen = work.give_up(max(1, len(work.rest) // 2))
                if stolen:
                    work.lane.holding.running -= len(stolen)
                    return self._lend(work.lane, stolen, now)
        return None

    def sleep(self, now: float) -> float:
        """Return the seconds after which `next` may have a task even if nothing arrives."""
        soonest = WAIT_S
        for lane in self._turns:
            if lane.later:
                soonest = min(soonest, lane.later[0][0] - now)
            if lane.count and lane.suspended > now:
                soonest = min(soonest, lane.suspended - now)
            trial = lane.holding.trial
            if lane.count and trial is not None and trial.until is not None and trial.until > now:
                soonest = min(soonest, trial.until - now)
        if any(work.rest for work in self._lent.values()):
            soonest = min(soonest, STEAL_AFTER_S)
        return max(soonest, 0.0005)

    @property
    def worth_sharing(self) -> bool:
        """True if another worker would shorten the waiting work."""
        if self._options.orderly:
            return sum(1 for lane in self._turns if lane.count and not lane.busy) > 0
        waiting = sum(lane.count for lane in self._turns if not lane.paused)
        return waiting * self._each_s > 2 * PORTION_S

    def _open_arrivals(self) -> None:
        arrivals = self._member.inbox.arrivals
        for _ in range(min(len(arrivals), OPEN_AT_ONCE)):
            arrival = arrivals.popleft()
            fetch = arrival.fetch
            if arrival.generation != fetch.generation or not isinstance(fetch, GroupFetch):
                continue
            if arrival.error is not None:
                LOG.warning("%s/%s: %s", fetch.topic, fetch.queue, arrival.error)
                continue
            self._lane(fetch.holding).open(arrival)

    def _lane(self, holding: AssignedQueue) -> ProcessQueue:
        lane = self._lanes.get(id(holding))
        if lane is None:
            lane = self._lanes[id(holding)] = ProcessQueue(holding)
            self._turns.append(lane)
        return lane

    # Results.

    def done(self, work: ListenerTask, now: float) -> None:
        """Take back a task that a worker has finished; the task tells what failed."""
        self._lent.pop(id(work), None)
        lane, holding = work.lane, work.lane.holding
        lane.busy = False
        handled = work.handled()
        holding.running -= len(work.messages)
        if holding.state == "lost":
            return
        if handled:
            self.handled += len(handled)
            spent = (now - work.taken_at) / len(handled)
            self._each_s += (spent - self._each_s) * (0.5 if spent > self._each_s else 0.2)
        left = list(work.rest)
        if self._options.orderly and work.failed:
            left = self._suspend(work, handled, left, now)
        else:
            self._settle(work, handled, now)
        lane.put_back(left)
        self._look(lane)

    def _settle(self, work: ListenerTask, handled: list[Message], now: float) -> None:
        """Finish messages that succeeded, and schedule those that failed again."""
        lane = work.lane
        if handled:
            lane.holding.failing = ""
        if not (work.failed or work.given_up):
            lane.finish(handled)
            return
        run: list[Message] = []
        for message in handled:
            given_up = id(message) in work.given_up
            failure = work.failed.get(id(message))
            if failure is None and not given_up:
                run.append(message)
            elif failure is not None and not given_up:
                self._fail(lane.holding, message, failure, now)
        lane.finish(run)

    def _fail(
        self,
        holding: AssignedQueue,
        message: Message,
        failure: tuple[float | None, str],
        now: float,
    ) -> None:
        # The message counts as running until its copy is safe or it waits here.
        holding.running += 1
        self._failures.fail(self, holding, message, failure[0], failure[1], now)

    def _suspend(
        self, work: ListenerTask, handled: list[Message], left: list[Message], now: float
    ) -> list[Message]:
        """Suspend an orderly queue, which continues with the message that failed."""
        lane = work.lane
        failed = next(n for n, message in enumerate(handled) if id(message) in work.failed)
        lane.finish(handled[:failed])
        message = handled[failed]
        delay_s, cause = work.failed[id(message)]
        most = self._options.orderly_max_attempts
        if delay_s == DEAD or (most and message.attempt >= most):
            lane.holding.running += 1
            self._failures.bury(self, lane.holding, message, cause)
            return handled[failed + 1 :] + left
        lane.holding.failing = f"attempt {message.attempt} failed: {cause}"[:MAX_REASON]
        wait = self._options.suspend_current_queue_ms / 1000 if delay_s is None else delay_s
        lane.suspended = now + min(max(wait, 0.01), 30.0)
        return [self._failures.tried(message), *handled[failed + 1 :], *left]

    def retry(self, holding: AssignedQueue, message: Message, when: float) -> None:
        """Hand a failed message out again from here."""
        holding.running -= 1
        if holding.state != "lost":
            lane = self._lane(holding)
            lane.wait(message, when)
            self._look(lane)

    def sent_on(self, holding: AssignedQueue, message: Message) -> None:
        """Finish a message whose copy is safe."""
        holding.running -= 1
        if holding.state != "lost":
            lane = self._lane(holding)
            lane.finish([message])
            self._look(lane)

    def _look(self, lane: ProcessQueue) -> None:
        """Wake the core if it waits for this queue."""
        holding = lane.holding
        self._wake(holding)
        if self._options.has_topic_bound:
            for other in holding.share.holdings.values():
                self._wake(other)
        if holding.state == "draining" and holding.running == 0:
            self._call(WakeMember(self._member))

    def _wake(self, holding: AssignedQueue) -> None:
        fetch = holding.fetch
        if fetch is not None and fetch.stalled and not fetch.full:
            fetch.stalled = False
            self._call(WakeFetch(fetch))

    # Called by the core.

    def drop(self, holding: AssignedQueue) -> None:
        """Hand out nothing more of a queue; waiting messages are kept only while it may still stay."""
        lane = self._lanes.get(id(holding))
        if lane is not None and holding.state == "lost":
            del self._lanes[id(holding)]
            self._turns.remove(lane)
            lane.clear()

    def tick(self, now: float) -> None:
        """Fail messages whose listeners take too long, and share the room of queues that are gone."""
        if self._options.has_topic_bound:
            for holding in self._member.holdings.values():
                self._wake(holding)
        limit = self._member.config.consume_timeout_ms / 1000
        for work in list(self._lent.values()):
            message = work.current
            if self._options.orderly or message is None or now - work.began < limit:
                continue
            if id(message) in work.given_up or work.lane.holding.state == "lost":
                continue
            cause = f"the listener did not return within {limit:g} s"
            LOG.warning("%s/%s at %s: %s", message.topic, message.queue, message.offset, cause)
            for late in work.handled() if self._options.batch > 1 else [message]:
                work.given_up.add(id(late))
                self._fail(work.lane.holding, late, (None, cause), now)
