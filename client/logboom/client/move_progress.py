"""Progress of moves, from what the Raft leader tells again and again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from logboom.client.written_values import bytes_text, counted
from logboom.wire.operation_messages import QueueMoveState

STUCK_NAMED: Final = 3
"""Stuck moves that are named."""


@dataclass(slots=True)
class MoveProgress:
    """Progress of several moves together; moves that are seen no more have ended."""

    expected_bytes: int = 0
    """What is to be copied in all, as planned: moves may begin later."""
    _seen: dict[tuple[str, int], QueueMoveState] = field(default_factory=dict)
    _under_way: list[QueueMoveState] = field(default_factory=list)

    def follow(self, moves: Collection[QueueMoveState]) -> None:
        """Take the moves that are under way now."""
        self._under_way = list(moves)
        for move in moves:
            self._seen[move.topic, move.queue] = move

    @property
    def done_bytes(self) -> int:
        """Bytes copied: all of those that have ended, and what the others have."""
        now = {(move.topic, move.queue) for move in self._under_way}
        return sum(
            max(0, move.done_bytes if key in now else move.total_bytes)
            for key, move in self._seen.items()
        )

    @property
    def total_bytes(self) -> int:
        """Bytes to copy in all, as far as they are known."""
        return max(
            self.expected_bytes, sum(max(0, each.total_bytes) for each in self._seen.values())
        )

    @property
    def bytes_per_s(self) -> int:
        """Bytes per second that are copied now."""
        return sum(max(0, each.bytes_per_s) for each in self._under_way)

    @property
    def stuck(self) -> list[str]:
        """Why moves make no progress: `flights/3: broker-4 is dead`, each reason once."""
        by_reason: dict[str, list[QueueMoveState]] = {}
        for move in self._under_way:
            if move.stuck:
                by_reason.setdefault(move.stuck, []).append(move)
        return [_stuck_text(moves, why) for why, moves in by_reason.items()][:STUCK_NAMED]

    def text(self) -> str:
        """Return the moves and the rate in words: `2 queues move, 12.0 MiB/s`."""
        if not self._under_way:
            return "no queue moves"
        number = len(self._under_way)
        rate = f", {bytes_text(self.bytes_per_s)}/s" if self.bytes_per_s else ""
        return f"{counted(number, 'queue')} {'moves' if number == 1 else 'move'}{rate}"


def _stuck_text(moves: list[QueueMoveState], why: str) -> str:
    first = f"{moves[0].topic}/{moves[0].queue}"
    more = f" and {counted(len(moves) - 1, 'other queue')}" if len(moves) > 1 else ""
    return f"{first}{more}: {why}"


def progress_text(move: QueueMoveState | None) -> str | None:
    """Return how far a move is: `42 %, 12.0 MiB/s (produced: 2.0 MiB/s), 3 min left`; None if it is not
    known."""
    if move is None or move.done_bytes < 0:
        return None
    if move.stuck:
        return f"stuck: {move.stuck}"
    parts: list[str] = []
    if move.total_bytes > 0:
        parts.append(f"{100 * move.done_bytes // move.total_bytes} %")
    if move.bytes_per_s > 0:
        produced = move.produced_bytes_per_s
        beside = f" (produced: {bytes_text(produced)}/s)" if produced > 0 else ""
        parts.append(f"{bytes_text(move.bytes_per_s)}/s{beside}")
    if move.left_s > 0:
        parts.append(f"{left_text(move.left_s)} left")
    return ", ".join(parts) or None


def left_text(seconds: int) -> str:
    """Return a time for people: 40 s, 12 min, 3 h."""
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def moves_of(
    moves: Iterable[QueueMoveState], *, topic: str = "", queue: int = -1, broker: str = ""
) -> list[QueueMoveState]:
    """Return the moves of a topic, of a queue of it, or those that a broker takes part in by getting or
    losing a replica."""
    return [
        move
        for move in moves
        if (not topic or move.topic == topic)
        and (queue < 0 or move.queue == queue)
        and (not broker or broker in move.adding or broker in move.removing)
    ]
