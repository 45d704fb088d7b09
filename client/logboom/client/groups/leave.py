"""Leaving a group: to join again with a changed subscription, or for good.

A member drains its queues first, so that nothing is delivered twice. A static member whose process
ends keeps its queues for its session, so that its next process continues them and the group has
nothing to allocate (KIP-345, KIP-1092). Members that change their subscription do so one after
another, each after a random delay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from logboom.client.cluster.coordinator_client import CoordinatorClient
from logboom.client.cluster.request_router import RoutedRequest
from logboom.client.core_context import CoreTurn
from logboom.client.groups.member import CloseMember, MemberState
from logboom.client.groups.offset_committer import OffsetCommitter, cut
from logboom.client.groups.reconciler import Reconciler
from logboom.client.promise import Promise
from logboom.wire.errors import LogboomError
from logboom.wire.group_messages import GroupLeave
from logboom.wire.messages import AnyMessage

LOG = logging.getLogger("logboom.client")

LAST_S: Final = 3.0
"""Seconds for the farewell itself, beyond the time for handlers."""
STAY_S: Final = 1e9
"""The same for a member whose process continues: until it is answered, or others have its queues.
"""
NOTHING: Final[dict[str, str]] = {}


class SubscriptionChange:
    """A member's change to a newer subscription of its group."""

    def __init__(self, reconciler: Reconciler, committer: OffsetCommitter, turn: CoreTurn) -> None:
        self._reconciler = reconciler
        self._committer = committer
        self._turn = turn
        self._subscription = NOTHING
        self._at = 0.0
        self._committed = False
        """True while the last commit is under way."""

    @property
    def wanted(self) -> bool:
        """True if the group has a newer subscription."""
        return bool(self._subscription)

    @property
    def quiescing(self) -> bool:
        """True if this member's turn has come: it starts nothing new."""
        return self.wanted and self._turn.now >= self._at

    def begin(self, subscription: dict[str, str], within_s: float) -> None:
        """Adopt a new subscription of the group at some time within `within_s`."""
        if not self.wanted:
            self._subscription = subscription
            self._at = self._turn.now + self._turn.rng.random() * within_s

    def stop(self) -> None:
        """Drop the change: the member joins again for another reason."""
        self._subscription = NOTHING

    def step(self, rejoin: Callable[[dict[str, str]], None]) -> None:
        """Continue as far as possible now, and call `rejoin` at the end."""
        if not self.quiescing:
            return
        self._reconciler.quiesce()
        if self._committed or not self._reconciler.quiet():
            return
        self._committed = True
        done: Promise[None] = Promise()

        def committed() -> None:
            self._committed = False
            if self.wanted:
                subscription, self._subscription = self._subscription, NOTHING
                rejoin(subscription)

        done.add_callback(committed)
        self._committer.commit(done)


class MemberShutdown:
    """The shutdown of one member, whose queues are being drained already."""

    def __init__(
        self,
        member: MemberState,
        coordinator: CoordinatorClient,
        committer: OffsetCommitter,
        turn: CoreTurn,
        call: CloseMember | None,
        gone: Callable[[], None],
    ) -> None:
        self.call = call
        """None: the member comes back once its application polls again."""
        self._member = member
        self._coordinator = coordinator
        self._committer = committer
        self._turn = turn
        self._gone = gone
        self._deadline = turn.now + (0.0 if call is None else call.timeout)
        self._stays = call is not None and bool(member.options.instance) and not call.leave
        self._committed = False
        self._over = False
        self._farewell: RoutedRequest | None = None
        self._uncommitted = False
        """True if the farewell carries what is not known to be committed."""
        self._left_out = 0
        """Queues whose last commits found no room in it."""

    @property
    def said(self) -> bool:
        """True if the farewell is or was under way."""
        return self._farewell is not None

    def stop(self) -> None:
        """End the shutdown: the member is out, whether the farewell is answered or not."""
        self._over = True
        if self._farewell is not None:
            self._farewell.cancel()

    def step(self) -> None:
        """Continue as far as possible now."""
        member = self._member
        late = self._turn.now >= self._deadline
        with member.lock:
            if late:
                for holding in member.holdings.values():
                    holding.cancelled = True
            running = any(h.running and not h.cancelled for h in member.holdings.values())
        if self.said or running:
            return
        if not self._committed and not self._small():
            self._committed = True
            done: Promise[None] = Promise()
            done.add_callback(self._say)
            self._committer.commit(done)
        elif self._committer.idle or (late and not self._committed) or self._overdue():
            self._say()

    def _overdue(self) -> bool:
        """True if commits that do not fit into the farewell are no longer awaited."""
        patience = STAY_S if self.call is None else LAST_S
        return self._turn.now >= self._deadline + patience

    def _small(self) -> bool:
        """True if all last commits fit into the farewell."""
        with self._member.lock:
            commits = [(h, h.last_commit()) for h in self._member.holdings.values() if h.dirty]
        return not cut(commits)[1]

    def _say(self) -> None:
        if self.said or self._over:
            return
        member = self._member
        options, epoch = member.options, member.epoch
        with member.lock:
            dirty = [(h, h.last_commit()) for h in member.holdings.values() if h.dirty]
        sent, left_out = cut(dirty)
        releases = [commit for _, commit in sent]
        self._uncommitted, self._left_out = bool(dirty), len(left_out)

        def message(left: int) -> GroupLeave:
            return GroupLeave(
                0, left, options.group, options.member_id, epoch, releases, self._stays
            )

        # A member that stays has the time: unanswered, its last messages would be handled twice.
        left = STAY_S if self.call is None else max(self._deadline - self._turn.now, LAST_S)
        self._farewell = self._coordinator.ask(message, self._answered, left)

    def _answered(self, answer: AnyMessage | LogboomError) -> None:
        group = self._member.options.group
        if isinstance(answer, LogboomError) and self._uncommitted:
            LOG.warning(
                "group %s: left without farewell: %s: what it finished after its last commit may be "
                "delivered again",
                *(group, answer),
            )
        elif isinstance(answer, LogboomError) and answer.code != "UNKNOWN_MEMBER":
            LOG.warning("group %s: left without farewell: %s", group, answer)
        elif self._left_out:
            LOG.warning(
                "group %s: left when its time was over: what it finished after its last commit in %s "
                "queues may be delivered again",
                *(group, self._left_out),
            )
        self._gone()
