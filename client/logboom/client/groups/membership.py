"""The membership of one member: it joins, keeps one heartbeat held, and adopts the assignment.

Queues that stay are never paused. A queue that is to be released is drained: nothing more of it is
handed out, and once its last message is finished, one request commits and releases it (see
docs/SAFETY.md, G1). If that takes most of the group's drain time, the queue is released unfinished,
before the coordinator fences us (see docs/SAFETY.md, G2). A fenced member drops everything and
joins again. A member whose application no longer polls leaves, and joins again with the next poll.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from logboom.client.cluster.coordinator_client import CoordinatorClient
from logboom.client.cluster.request_router import RequestRouter, RoutedRequest
from logboom.client.core_context import CoreTurn
from logboom.client.groups.leave import LAST_S, MemberShutdown, SubscriptionChange
from logboom.client.groups.member import CloseMember, CommitMember, MemberState, OpenMember
from logboom.client.groups.offset_committer import OffsetCommitter
from logboom.client.groups.poll_timer import PollTimer
from logboom.client.groups.reconciler import Reconciler
from logboom.client.promise import Promise
from logboom.wire.errors import (
    Forbidden,
    GroupError,
    InternalError,
    LogboomError,
    RetryableError,
    Unauthenticated,
)
from logboom.wire.group_messages import (
    MAX_STATUSES,
    GroupAssigned,
    GroupHeartbeat,
    GroupJoin,
    GroupJoined,
)
from logboom.wire.messages import AnyMessage, DescribeGroup, GroupDescribed
from logboom.wire.session import Reply

LOG = logging.getLogger("logboom.client")

SLACK_S: Final = 2.0
"""Seconds beyond the hold before an unanswered heartbeat is sent elsewhere."""
FOREVER_S: Final = 1e9
TICK_S: Final = 0.5
"""Maximum seconds between two checks of the clock; fewer if commits are more frequent."""
LEAST_TICK_S: Final = 0.01
CALM_S: Final = 0.02
"""Minimum seconds between two heartbeats."""
JOIN_S: Final = 5.0
"""Seconds that one broker has to answer a join, which goes through the log."""
FENCED_CODES: Final = ("STALE_EPOCH", "UNKNOWN_MEMBER", "UNKNOWN_GROUP")
"""Codes of answers that mean: this member is out and has to join again."""
LOOK_S: Final = 3.0
"""Seconds that the Raft leader gets to answer."""

Looked: TypeAlias = Callable[[tuple[dict[str, str], int] | LogboomError], None]


class Membership:
    """The core's side of one member."""

    def __init__(
        self,
        member: MemberState,
        coordinator: CoordinatorClient,
        reconciler: Reconciler,
        lookup: GroupLookup,
        turn: CoreTurn,
    ) -> None:
        self.member = member
        self._coordinator = coordinator
        self._committer = OffsetCommitter(member, coordinator)
        self._reconciler = reconciler
        self._lookup = lookup
        self._turn = turn
        self._opening: Promise[None] | None = None
        self._seen = -1
        self._asked: RoutedRequest | None = None
        """The join or the heartbeat under way."""
        self._asked_at = 0.0
        self._commit_at = 0.0
        self._change = SubscriptionChange(reconciler, self._committer, turn)
        self._poll_timer = PollTimer(member, turn.now)
        self._shutdown: MemberShutdown | None = None
        self.ended = False

    # Joining.

    def open(self, call: OpenMember) -> None:
        """Join the group; the outcome of the call reports the result."""
        self._opening = call.outcome
        self._join(call.timeout)

    def _join(self, timeout: float = FOREVER_S) -> None:
        member, options = self.member, self.member.options
        with member.lock:
            member.epoch = -1
        self._cancel()
        text = dict(member.subscription)
        replace = options.replace and not member.joins

        def message(left: int) -> GroupJoin:
            return GroupJoin(
                0,
                left,
                options.group,
                options.member_id,
                options.instance,
                options.room,
                text,
                replace,
                options.config,
                member.joins > 0,
            )

        self._asked = self._coordinator.ask(message, self._joined, timeout, JOIN_S)

    def _joined(self, answer: AnyMessage | LogboomError) -> None:
        self._asked = None
        member = self.member
        if isinstance(answer, GroupJoined):
            with member.lock:
                member.epoch = answer.epoch
                member.config = answer.config
                member.subscription_version = answer.subscription_version
                member.error = None
                member.joins += 1
            self._seen = -1
            if self._opening is not None:
                self._opening.resolve(None)
                self._opening = None
                self._tick()
            self._beat()
            self._look_at_caller()
        elif isinstance(answer, LogboomError):
            self._refused(answer)

    def _refused(self, error: LogboomError) -> None:
        member = self.member
        if self._opening is not None:
            self.ended = True
            self._opening.fail(error)
            return
        if error.code == "SUBSCRIPTION_MISMATCH":
            # The subscription was changed while we were out.
            self._lookup.subscription(member.options.group, self._looked)
            return
        if not isinstance(error, RetryableError):
            LOG.error("group %s does not accept this member again: %s", member.options.group, error)
            with member.lock:
                member.error = error
            member.changed()
        if error.code != "INSTANCE_TAKEN":
            self._turn.after(1.0, self._join_again)

    def _looked(self, found: tuple[dict[str, str], int] | LogboomError) -> None:
        if isinstance(found, tuple):
            with self.member.lock:
                self.member.subscription = found[0]
            self._join_again()
        else:
            self._turn.after(1.0, self._join_again)

    def _join_again(self) -> None:
        wanted = not self.ended and self.member.away is None
        if wanted and self.member.epoch < 0 and self._asked is None:
            self._join()

    def _fenced(self, error: LogboomError) -> None:
        """Leave the group: other members have our queues by now."""
        if self._shutdown is not None and self._shutdown.said:
            return  # the answer to the farewell tells whether it was taken
        group = self.member.options.group
        LOG.warning("group %s: out of the group, joining again: %s", group, error)
        self._change.stop()
        self._committer.stop(GroupError(f"this member is out of group {group!r}: {error}"))
        self._reconciler.lose_all()
        if self._shutdown is not None:
            self._gone()
        else:
            self._join()

    # Heartbeats.

    def _beat(self) -> None:
        if self.ended or self.member.epoch < 0:
            return  # and a join may be under way
        self._cancel()
        member, options = self.member, self.member.options
        epoch, seen, wait_ms = member.epoch, self._seen, member.config.heartbeat_ms

        def message(left: int) -> GroupHeartbeat:
            now = self._turn.now
            with member.lock:
                asked_at = self._poll_timer.look(now)
                told = [h.status(now, asked_at) for h in member.holdings.values()]
            status = [each for each in told if each is not None][:MAX_STATUSES]
            wait = wait_ms if seen >= 0 else 0
            return GroupHeartbeat(
                0, left, options.group, options.member_id, epoch, seen, wait, status
            )

        self._asked_at = self._turn.now
        patience = wait_ms / 1000 + SLACK_S
        self._asked = self._coordinator.ask(message, self._beaten, FOREVER_S, patience)

    def _beaten(self, answer: AnyMessage | LogboomError) -> None:
        self._asked = None
        if isinstance(answer, GroupAssigned):
            self.member.error = None
            news = answer.version > self._seen
            if answer.version >= self._seen:
                self._seen = answer.version
                self._adopt(answer)
            # Do not ask a coordinator that does not hold heartbeats in a tight loop.
            early = self._turn.now - self._asked_at < CALM_S
            if news or not early:
                self._beat()
            else:
                self._turn.after(CALM_S, self._beat)
        elif isinstance(answer, LogboomError) and answer.code in FENCED_CODES:
            self._fenced(answer)
        else:
            LOG.warning("group %s: heartbeat refused: %s", self.member.options.group, answer)
            if isinstance(answer, Unauthenticated | Forbidden):
                # Whoever polls has to know, even if no queue is here to be refused, too.
                with self.member.lock:
                    self.member.error = answer
                self.member.changed()
            self._turn.after(1.0, self._beat)

    def _adopt(self, assigned: GroupAssigned) -> None:
        member = self.member
        with member.lock:
            member.config = assigned.config
        quiet = self._shutdown is not None or self._change.quiescing
        self._reconciler.adopt(assigned, self._committer.released, quiet=quiet)
        if assigned.subscription_version > member.subscription_version:
            self._change.begin(assigned.subscription, member.config.heartbeat_ms / 1000)
        self._step()

    def _rejoin(self, subscription: dict[str, str]) -> None:
        """Join with another subscription, now that nothing is handed out."""
        if self.ended or self.member.epoch < 0 or self._shutdown is not None:
            return
        with self.member.lock:
            self.member.subscription = subscription
        self._reconciler.lose_all()
        self._join()

    # Time, and calls of the reader.

    def rerouted(self) -> None:
        """Follow a metadata change."""
        self._coordinator.rerouted()

    def wake(self) -> None:
        """Continue: a message was finished, or an application that had stopped polling polls again."""
        if self.member.away is not None and self._shutdown is None:
            if not self._poll_timer.wanted:
                return
            with self.member.lock:
                self.member.away = None
            self._join_again()
        self._step()

    def commit(self, call: CommitMember) -> None:
        """Commit now; the outcome of the call reports the result."""
        member = self.member
        if member.epoch < 0 or member.away is not None:
            text = f"not in group {member.options.group!r} at the moment: commit again later"
            call.outcome.fail(member.error or member.away or GroupError(text))
            return
        self._committer.commit(call.outcome)

    def _tick(self) -> None:
        if self.ended:
            return
        every = self.member.options.commit_every_s
        busy = self._shutdown is not None or self._change.wanted
        often = min(every or TICK_S, 0.1 if busy else TICK_S)
        if self._poll_timer.bound_s:
            often = min(often, self._poll_timer.bound_s / 4)
        self._turn.after(max(often, LEAST_TICK_S), self._tick)
        if every and self._turn.now >= self._commit_at and self.member.epoch >= 0:
            self._commit_at = self._turn.now + every
            self._committer.commit()
        if self.member.reader is not None:
            with self.member.lock:
                self.member.reader.tick(self._turn.now)
        self._look_at_caller()
        self._step()

    def _step(self) -> None:
        if self.ended:
            return
        self._reconciler.watch_drains()
        if self._shutdown is not None:
            self._shutdown.step()
            return
        self._change.step(self._rejoin)
        if not self._change.quiescing:
            self._committer.release()
            self._committer.say_trials()

    # Leaving.

    def close(self, call: CloseMember) -> None:
        """Leave in good order within the time given."""
        if self._shutdown is not None and self._shutdown.call is None:
            self._shutdown.call = call  # it is leaving already, and will not come back
            self._turn.after(call.timeout + LAST_S, self._gone)
            return
        if self.ended or self._shutdown is not None:
            call.outcome.resolve(None)
            return
        self._leave(call)

    def _leave(self, call: CloseMember | None) -> None:
        self._shutdown = MemberShutdown(
            self.member, self._coordinator, self._committer, self._turn, call, self._gone
        )
        if self.member.epoch < 0:
            self._gone()
            return
        self._reconciler.quiesce()
        self._step()

    def _look_at_caller(self) -> None:
        """Leave if the application no longer polls, so that other members get the queues."""
        if self.member.epoch < 0 or self._shutdown is not None:
            return
        if not self._poll_timer.over(self._turn.now):
            return
        error = GroupError(self._poll_timer.reason(), "UNKNOWN_MEMBER")
        LOG.warning("%s", error)
        with self.member.lock:
            self._poll_timer.leave()
            self.member.away = error
        self._change.stop()
        self._leave(None)

    def _gone(self) -> None:
        """End the membership, after a farewell or without one."""
        shutdown, self._shutdown = self._shutdown, None
        if shutdown is None:
            return
        shutdown.stop()
        call = shutdown.call
        away = self.member.away if call is None else None
        self._cancel()
        self.ended = away is None
        error = away or GroupError(f"this member has left group {self.member.options.group!r}")
        self._committer.stop(error)
        self._reconciler.lose_all()
        if self._opening is not None:
            self._opening.fail(error)
        if call is not None:
            call.outcome.resolve(None)
        if away is not None:
            with self.member.lock:
                self.member.epoch = -1
            self.wake()  # the application may have polled meanwhile

    def _cancel(self) -> None:
        if self._asked is not None:
            self._asked.cancel()
            self._asked = None


class GroupLookup:
    """Reads groups from the leader of the name servers."""

    def __init__(self, asking: RequestRouter) -> None:
        self._asking = asking

    def subscription(self, group: str, looked: Looked) -> None:
        """Pass the subscription and its version to `looked`, or why they are not known."""

        def answered(reply: Reply) -> None:
            if isinstance(reply.message, GroupDescribed):
                view = reply.message.group
                looked((view.subscription, view.subscription_version))
            else:
                looked(reply.error or InternalError("the reply is empty: please report it"))

        self._asking.ask_raft_leader(
            lambda timeout_ms: DescribeGroup(0, timeout_ms, group), answered, LOOK_S
        )
