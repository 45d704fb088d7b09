"""A member's commits and releases: in rounds, one of each kind under way (SAFETY G1, G3)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from logboom.client.cluster.coordinator_client import CoordinatorClient, CoordinatorRequest
from logboom.client.groups.assigned_queue import AssignedQueue
from logboom.client.groups.member import MemberState
from logboom.client.promise import Promise
from logboom.wire.errors import GroupError, InternalError, LogboomError, NotLeader
from logboom.wire.group_commands import QueueCommit
from logboom.wire.group_messages import GroupCommit, GroupCommitted, GroupRelease
from logboom.wire.messages import AnyMessage

LOG = logging.getLogger("logboom.client")

COMMIT_S: Final = 30.0
"""Seconds that one round of commits or releases is tried."""
MAX_ROUND_BYTES: Final = 32 * 1024
"""Bytes of one round: the coordinator puts it into one command."""
COMMIT_BYTES: Final = 40
"""What one queue's commit takes, beside its ranges."""

Round = list[tuple[AssignedQueue, QueueCommit]]


class OffsetCommitter:
    """Commits and releases of one member."""

    def __init__(self, member: MemberState, coordinator: CoordinatorClient) -> None:
        self._member = member
        self._coordinator = coordinator
        self._commit: CoordinatorRequest | None = None
        self._release: CoordinatorRequest | None = None
        self._wanted: list[Promise[None]] = []
        """Resolved when all that is finished now is committed."""
        self._failed: LogboomError | None = None
        """Of the rounds that `_wanted` waits for."""
        self._waiting: list[Promise[None]] = []
        """Asked for while a round was under way: the next rounds are theirs."""
        self._unsent: Round = []
        self.released: dict[tuple[int, int], int] = {}
        """Queue → owner epoch in which it was given away: a late answer may still list it."""

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self._commit is None and self._release is None

    # Commits.

    def commit(self, outcome: Promise[None] | None = None) -> None:
        """Commit what is finished now, in one or more rounds."""
        if self._commit is not None:
            if outcome is not None:
                self._waiting.append(outcome)
            return
        member = self._member
        if outcome is not None:
            self._wanted.append(outcome)
        if member.epoch < 0:
            self.stop(GroupError(f"this member is out of group {member.options.group!r}"))
            return
        with member.lock:
            for holding in member.holdings.values():
                holding.place_if_known()
            dirty = [h for h in member.holdings.values() if h.dirty and not h.releasing]
            self._unsent = [(h, h.last_commit()) for h in dirty if h.state != "lost"]
        self._next_round()

    def say_trials(self) -> None:
        """Tell the group which messages are tried, and which of these are done, without waiting for
        the next commit."""
        member = self._member
        if self._commit is not None or member.epoch < 0:
            return
        with member.lock:
            told = [h for h in member.holdings.values() if h.trial is not None]
            told = [
                h for h in told if h.state == "reading" and h.unsaid(early=member.commits_early)
            ]
            self._unsent = [(holding, holding.last_commit()) for holding in told]
        if self._unsent:
            self._next_round()

    def _next_round(self) -> None:
        member = self._member
        if not self._unsent:
            self._settle()
            return
        now, self._unsent = cut(self._unsent)
        commits = [commit for _, commit in now]
        options, epoch = member.options, member.epoch

        def message(left: int) -> GroupCommit:
            return GroupCommit(0, left, options.group, options.member_id, epoch, commits)

        self._commit = self._coordinator.ask(
            message, lambda answer: self._committed(now, answer), COMMIT_S
        )

    def _committed(self, sent: Round, answer: AnyMessage | LogboomError) -> None:
        self._commit = None
        if isinstance(answer, LogboomError):
            self._failed = answer
            self._unsent = []
        elif isinstance(answer, GroupCommitted):
            self._take(sent, answer.codes)
        else:
            self._failed = InternalError(f"unexpected answer {type(answer).__name__}")
        self._next_round()

    def _take(self, sent: Round, codes: Sequence[str]) -> None:
        tried = False
        with self._member.lock:
            for (holding, commit), code in zip(sent, codes, strict=False):
                if not code:
                    holding.took(commit)
                    tried = tried or holding.trial is not None
                elif holding.releasing or self.released.get(holding.key) == holding.owner_epoch:
                    continue  # overtaken by the release, which commits as much or more
                elif self._failed is None:
                    self._failed = refusal(self._member.options.group, holding, commit, code)
                    LOG.warning("%s", self._failed)
        if tried:
            self._member.changed()

    def _settle(self) -> None:
        done, error = self._wanted, self._failed
        self._wanted, self._failed = self._waiting, None
        self._waiting = []
        for outcome in done:
            if error is None:
                outcome.resolve(None)
            else:
                outcome.fail(error)
        if self._wanted:
            self.commit()

    # Releases.

    def release(self) -> None:
        """Give away what is drained, with its last commit."""
        member = self._member
        if self._release is not None or member.epoch < 0:
            return
        with member.lock:
            drained = [h for h in member.holdings.values() if is_drained(h)]
            sent, _ = cut([(h, h.last_commit()) for h in drained])
            for holding, _ in sent:
                holding.releasing = True
        if not sent:
            return
        releases = [commit for _, commit in sent]
        options, epoch = member.options, member.epoch

        def message(left: int) -> GroupRelease:
            return GroupRelease(0, left, options.group, options.member_id, epoch, releases)

        self._release = self._coordinator.ask(
            message, lambda answer: self._released(sent, answer), COMMIT_S
        )

    def _released(self, sent: Round, answer: AnyMessage | LogboomError) -> None:
        self._release = None
        member = self._member
        codes: list[str] = answer.codes if isinstance(answer, GroupCommitted) else []
        with member.lock:
            for place, (holding, _) in enumerate(sent):
                holding.releasing = False
                code = codes[place] if place < len(codes) else "UNAVAILABLE"
                if code in ("", "NOT_OWNER", "STALE_EPOCH"):
                    # Not ours any more: now, or since an answer that was lost.
                    self.released[holding.key] = holding.owner_epoch
                    holding.state = "lost"
                    member.remove(holding)
                    if member.reader is not None:
                        member.reader.drop(holding)
        if isinstance(answer, LogboomError):
            LOG.warning("group %s: queues are not released yet: %s", member.options.group, answer)
        self.release()

    def stop(self, error: LogboomError) -> None:
        """The member is out of the group: nothing of this epoch counts any more."""
        for asked in (self._commit, self._release):
            if asked is not None:
                asked.cancel()
        self._commit = self._release = None
        failed, self._wanted, self._waiting = self._wanted + self._waiting, [], []
        self._unsent, self._failed = [], None
        for outcome in failed:
            outcome.fail(error)


def is_drained(holding: AssignedQueue) -> bool:
    """Whether a queue that is to be given away can go."""
    ready = holding.running == 0 or holding.cancelled
    return holding.state == "draining" and ready and not holding.releasing


def cut(commits: Round) -> tuple[Round, Round]:
    """What fits into one round, at least one; and the rest."""
    size = 0
    for place, (_, commit) in enumerate(commits):
        size += COMMIT_BYTES + len(commit.ranges)
        if size > MAX_ROUND_BYTES and place:
            return commits[:place], commits[place:]
    return commits, []


def refusal(group: str, holding: AssignedQueue, commit: QueueCommit, code: str) -> LogboomError:
    """Why a commit was refused, for the one who asked."""
    place = f"{holding.topic}/{holding.queue}"
    if code == "BEYOND_END":
        text = (
            f"group {group!r} cannot commit {commit.offset} in {place}: it ends at "
            f"{commit.seen_end}; commit what was read"
        )
        return GroupError(text, code)
    text = (
        f"group {group!r} has given {place} to another member meanwhile: what was not committed "
        "is delivered there again"
    )
    if code in ("NOT_OWNER", "UNKNOWN_MEMBER"):
        return GroupError(text, code)
    if code == "STALE_EPOCH":
        return NotLeader(text, code)
    return GroupError(f"group {group!r} refused the commit of {place}: {code}", code)
