"""A member's commits and releases, sent in rounds.

At most one round of each kind is under way, so that commits only go forward (see docs/SAFETY.md,
G3). The last commit of a queue and its release are one request (see docs/SAFETY.md, G1).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from logboom.client.cluster.coordinator_client import CoordinatorClient
from logboom.client.cluster.request_router import RoutedRequest
from logboom.client.groups.assigned_queue import AssignedQueue
from logboom.client.groups.member import MemberState
from logboom.client.promise import Promise
from logboom.wire.errors import GroupError, InternalError, LogboomError, NotLeader
from logboom.wire.group_commands import QueueCommit
from logboom.wire.group_messages import GroupCommit, GroupCommitted, GroupRelease
from logboom.wire.messages import AnyMessage

LOG = logging.getLogger("logboom.client")

COMMIT_S: Final = 30.0
"""Seconds for which one round of commits or releases is retried."""
MAX_ROUND_BYTES: Final = 32 * 1024
"""Maximum bytes of one round: the coordinator writes a round as a single command."""
COMMIT_BYTES: Final = 40
"""Bytes that the commit of one queue takes, without its ranges."""

Round = list[tuple[AssignedQueue, QueueCommit]]


class OffsetCommitter:
    """The commits and releases of one member."""

    def __init__(self, member: MemberState, coordinator: CoordinatorClient) -> None:
        self._member = member
        self._coordinator = coordinator
        self._commit: RoutedRequest | None = None
        self._release: RoutedRequest | None = None
        self._wanted: list[Promise[None]] = []
        """Resolved once everything finished so far is committed."""
        self._failed: LogboomError | None = None
        """The first error of the rounds that `_wanted` waits for."""
        self._waiting: list[Promise[None]] = []
        """Requested while a round was under way, and served by the rounds after it."""
        self._unsent: Round = []
        self.released: dict[tuple[int, int], int] = {}
        """Queue → owner epoch in which it was released. A late answer may still list it."""

    @property
    def idle(self) -> bool:
        """True if no round is under way."""
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
        """Report trials and their ends to the group, without waiting for the next commit."""
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
        with member.lock:
            for holding, commit in now:
                holding.sends(commit)
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
                    continue  # overtaken by the release, which commits at least as much
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
        """Release the drained queues, each with its last commit."""
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
                    # No longer ours: as of now, or since an answer that was lost.
                    self.released[holding.key] = holding.owner_epoch
                    holding.state = "lost"
                    member.remove(holding)
                    if member.reader is not None:
                        member.reader.drop(holding)
        if isinstance(answer, LogboomError):
            LOG.warning("group %s: queues are not released yet: %s", member.options.group, answer)
        self.release()

    def stop(self, error: LogboomError) -> None:
        """Drop everything that belongs to this member epoch: the member has left the group."""
        for asked in (self._commit, self._release):
            if asked is not None:
                asked.cancel()
        self._commit = self._release = None
        failed, self._wanted, self._waiting = self._wanted + self._waiting, [], []
        self._unsent, self._failed = [], None
        for outcome in failed:
            outcome.fail(error)


def is_drained(holding: AssignedQueue) -> bool:
    """True if a draining queue has nothing handed out and may be released."""
    ready = holding.running == 0 or holding.cancelled
    return holding.state == "draining" and ready and not holding.releasing


def cut(commits: Round) -> tuple[Round, Round]:
    """Split off the commits that fit into one round, at least one."""
    size = 0
    for place, (_, commit) in enumerate(commits):
        size += COMMIT_BYTES + len(commit.ranges)
        if size > MAX_ROUND_BYTES and place:
            return commits[:place], commits[place:]
    return commits, []


def refusal(group: str, holding: AssignedQueue, commit: QueueCommit, code: str) -> LogboomError:
    """Return the error for a commit that the coordinator refused."""
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
