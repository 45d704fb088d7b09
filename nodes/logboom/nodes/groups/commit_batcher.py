"""The commits of all members and groups of one turn, gathered into one command (G1, G3).

One command is in flight at a time. Commits that arrive meanwhile form the next one. Each request is
answered with its own codes from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.turn import BrokerTurn
from logboom.wire.commands import CommandResult
from logboom.wire.errors import InvalidRequest, LogboomError
from logboom.wire.group_commands import CommitOffsets, GroupCommits, MemberCommits, QueueCommit

MOST_BYTES: Final = 54 * 1024
"""Estimated bytes of the commits in one command. The name servers accept 60 KiB."""
COMMIT_BYTES: Final = 48
"""Upper bound of the bytes of a commit without its ranges, and of a name without its characters."""

Codes: TypeAlias = Callable[[list[str] | CommandResult, BrokerTurn], None]
"""Receives one code per queue, or the result of a command that was rejected."""


@dataclass(slots=True, eq=False)
class _CommitRequest:
    codes: list[str]
    left: int
    """Queues whose code is not known yet."""
    decided: Codes
    refusal: CommandResult | None = None


class _CommitPart(NamedTuple):
    asked: _CommitRequest
    group: str
    coordinator_epoch: int
    member: str
    epoch: int
    first: int
    """Index of the first of these queues in the request."""
    queues: Sequence[QueueCommit]
    size: int


class CommitBatcher:
    """The commits that wait for a command."""

    def __init__(self, me: str, proposals: ProposalQueue) -> None:
        self._me = me
        self._proposals = proposals
        self._pieces: deque[_CommitPart] = deque()
        self._under_way: list[_CommitPart] = []

    def __len__(self) -> int:
        return len(self._pieces)

    def add(
        self,
        group: str,
        coordinator_epoch: int,
        member: str,
        epoch: int,
        queues: Sequence[QueueCommit],
        decided: Codes,
        turn: BrokerTurn,
    ) -> None:
        """Commit with the next command. `decided` is called once."""
        if not queues:
            decided([], turn)
            return
        asked = _CommitRequest([""] * len(queues), len(queues), decided)
        overhead = 2 * COMMIT_BYTES + _bytes(group) + _bytes(member)
        first = 0
        for part in split_commits(queues):
            size = overhead + sum(COMMIT_BYTES + len(each.ranges) for each in part)
            piece = _CommitPart(asked, group, coordinator_epoch, member, epoch, first, part, size)
            self._pieces.append(piece)
            first += len(part)

    def flush(self, turn: BrokerTurn) -> None:
        """Propose what was gathered, unless a command is in flight."""
        if self._under_way or not self._pieces:
            return
        size = 0
        by_group: dict[tuple[str, int], list[_CommitPart]] = {}
        while self._pieces and (not size or size + self._pieces[0].size <= MOST_BYTES):
            piece = self._pieces.popleft()
            size += piece.size
            by_group.setdefault((piece.group, piece.coordinator_epoch), []).append(piece)
        self._under_way = under_way = [piece for of in by_group.values() for piece in of]
        groups = [
            GroupCommits(
                name, epoch, [MemberCommits(p.member, p.epoch, list(p.queues)) for p in pieces]
            )
            for (name, epoch), pieces in by_group.items()
        ]
        self._proposals.propose(
            CommitOffsets(self._me, groups, turn.now.wall_ms),
            lambda result, later: self._decided(under_way, result, later),
            turn,
        )

    def _decided(self, pieces: list[_CommitPart], result: CommandResult, turn: BrokerTurn) -> None:
        self._under_way = []
        codes = result.value if isinstance(result.value, list) else []
        at = 0
        for piece in pieces:
            asked, count = piece.asked, len(piece.queues)
            if result.code:
                asked.refusal = result
            asked.codes[piece.first : piece.first + count] = codes[at : at + count]
            at += count
            asked.left -= count
            if not asked.left:
                asked.decided(asked.codes if asked.refusal is None else asked.refusal, turn)
        self.flush(turn)

    def drop_all(self) -> None:
        """Forget all waiting commits, since the instance epoch is over."""
        self._pieces.clear()
        self._under_way = []


def check_size(queues: Sequence[QueueCommit]) -> LogboomError | None:
    """Return the error for commits that no command could hold, or None."""
    longest = max((len(each.ranges) for each in queues), default=0)
    if longest <= MOST_BYTES // 4:
        return None
    text = f"{longest} bytes of finished ranges of one queue: commit earlier, at most {MOST_BYTES // 4} "
    return InvalidRequest(text + "are possible", "TOO_LARGE")


def split_commits(queues: Sequence[QueueCommit]) -> list[Sequence[QueueCommit]]:
    """Split commits into parts that fit into one command each."""
    parts: list[Sequence[QueueCommit]] = []
    first = size = 0
    for place, each in enumerate(queues):
        step = COMMIT_BYTES + len(each.ranges)
        if place > first and size + step > MOST_BYTES - 8 * COMMIT_BYTES - 1024:
            parts.append(queues[first:place])
            first, size = place, 0
        size += step
    if first < len(queues):
        parts.append(queues[first:])
    return parts


def _bytes(name: str) -> int:
    return len(name.encode())
