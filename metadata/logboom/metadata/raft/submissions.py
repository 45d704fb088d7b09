"""Commands on their way into the log: gathered during a turn, shipped by the leader only (R13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from logboom.metadata.raft.raft_config import Refusal, SubmitOutcome, SubmitStatus
from logboom.metadata.raft.raft_entries import MembershipChange, pack_commands, split

OnResult = Callable[[SubmitOutcome], None]
"""A callback that is called once, at the end of a turn, with the outcome of a submitted command."""


@dataclass(slots=True)
class CommandBatch:
    """One Raft entry that holds several commands, and their callbacks."""

    entry: bytes
    waiting: list[OnResult]


class Submissions:
    """The commands submitted in this turn, and the outcomes to deliver at its end."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._commands: list[tuple[int, bytes, OnResult]] = []
        self._changes: list[tuple[int, MembershipChange, OnResult]] = []
        self._due: list[tuple[OnResult, SubmitOutcome]] = []

    def __bool__(self) -> bool:
        return bool(self._commands or self._changes)

    def add_command(self, term: int, command: bytes, on_result: OnResult) -> None:
        """Add a command for the leader's current term."""
        if len(command) > self._limit:
            self.refuse(on_result, Refusal.TOO_LARGE)
        else:
            self._commands.append((term, command, on_result))

    def add_change(self, term: int, change: MembershipChange, on_result: OnResult) -> None:
        """Add a membership change for the leader's current term."""
        self._changes.append((term, change, on_result))

    def take_commands(self, term: int | None) -> list[CommandBatch]:
        """Take everything submitted in `term`, packed into entries; refuse the rest."""
        commands, self._commands = self._commands, []
        good = [(body, on_result) for at, body, on_result in commands if at == term]
        for at, _, on_result in commands:
            if at != term:
                self.refuse(on_result, Refusal.NOT_LEADER)
        packed, start = [], 0
        for count in split([len(body) for body, _ in good], self._limit):
            group = good[start : start + count]
            start += count
            packed.append(
                CommandBatch(
                    pack_commands([body for body, _ in group]), [done for _, done in group]
                )
            )
        return packed

    def take_changes(self, term: int | None) -> list[tuple[MembershipChange, OnResult]]:
        """Take the changes requested in `term`; refuse the rest."""
        changes, self._changes = self._changes, []
        for at, _, on_result in changes:
            if at != term:
                self.refuse(on_result, Refusal.NOT_LEADER)
        return [(change, on_result) for at, change, on_result in changes if at == term]

    # -- outcomes ---------------------------------------------------------------------------

    def refuse(self, on_result: OnResult, refusal: Refusal) -> None:
        """Note that a command did not enter the log and never will."""
        self._due.append((on_result, SubmitOutcome(SubmitStatus.REFUSED, refusal=refusal)))

    def unknown(self, waiting: list[OnResult]) -> None:
        """Note that leadership was lost while these waited."""
        outcome = SubmitOutcome(SubmitStatus.UNKNOWN)
        self._due.extend((on_result, outcome) for on_result in waiting)

    def applied(self, waiting: list[OnResult], results: list[bytes], index: int, term: int) -> None:
        """Note that their entry is applied; a membership change has no result of its own."""
        for on_result, result in zip(waiting, results or [b""], strict=True):
            outcome = SubmitOutcome(SubmitStatus.APPLIED, result, index, term)
            self._due.append((on_result, outcome))

    def give_out(self) -> None:
        """Call every callback whose outcome is due."""
        due, self._due = self._due, []
        for on_result, outcome in due:
            on_result(outcome)
