"""Name servers join and leave: the replicated note of where they listen, and the raft membership.

Two entries of the log, in this order: to join, the note and then the membership, so that everybody
can dial who counts; to leave, the membership and then the note (R9, R12).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from logboom.metadata.raft.config import Refusal, SubmitOutcome
from logboom.metadata.raft.log_commands import (
    AnyLogCommand,
    ForgetNameServer,
    NoteNameServer,
    decode_result,
)
from logboom.metadata.raft.raft import RaftNode
from logboom.metadata.raft.submissions import OnResult
from logboom.wire.errors import LogboomError, error_for
from logboom.wire.messages import AddNameServer, Done, Message, RemoveNameServer

Answer: TypeAlias = Callable[[Message | LogboomError], None]


class Submitter(Protocol):
    """The name server, as far as changes of the raft group know it."""

    raft: RaftNode

    def submit(self, command: AnyLogCommand, on_result: OnResult) -> None:
        """Put a command of this node's own into the log."""

    def failure(self, outcome: SubmitOutcome) -> LogboomError:
        """Why a submitted command was not applied, or is not known to be."""


class RaftChanges:
    """Changes of the raft group that this node, as raft leader, carries out. Each may be repeated."""

    def __init__(self, node: Submitter) -> None:
        self._node = node

    def add(self, request: AddNameServer, answer: Answer) -> None:
        """Add an empty name server under an id never used before."""
        name = request.name_server
        note = NoteNameServer(name, request.endpoint, request.raft_endpoint)
        self._node.submit(note, partial(self._noted, name, answer))

    def _noted(self, name: str, answer: Answer, outcome: SubmitOutcome) -> None:
        error = self._error(outcome)
        if error is not None:
            answer(error)
        else:
            self._node.raft.add_member(name, partial(self._ended, answer))

    def remove(self, request: RemoveNameServer, answer: Answer) -> None:
        """Remove a name server other than this one."""
        name = request.name_server
        self._node.raft.remove_member(name, partial(self._removed, name, answer))

    def _removed(self, name: str, answer: Answer, outcome: SubmitOutcome) -> None:
        if outcome.refusal is Refusal.IS_LEADER:
            # The next leader can remove this one; the asker follows NOT_LEADER there.
            self._node.raft.transfer_leadership()
            answer(self._node.failure(SubmitOutcome(outcome.status, refusal=Refusal.NOT_LEADER)))
        elif outcome.applied or outcome.refusal is Refusal.NOTHING_TO_CHANGE:
            self._node.submit(ForgetNameServer(name), partial(self._forgotten, answer))
        else:
            answer(self._node.failure(outcome))

    def _forgotten(self, answer: Answer, outcome: SubmitOutcome) -> None:
        error = self._error(outcome)
        answer(Done(0) if error is None else error)

    def _ended(self, answer: Answer, outcome: SubmitOutcome) -> None:
        if outcome.applied or outcome.refusal is Refusal.NOTHING_TO_CHANGE:
            answer(Done(0))
        else:
            answer(self._node.failure(outcome))

    def _error(self, outcome: SubmitOutcome) -> LogboomError | None:
        """The error of a command of ours, or None if it was applied and done."""
        if not outcome.applied:
            return self._node.failure(outcome)
        result = decode_result(outcome.result)
        return error_for(result.code, result.text, result.fields) if result.code else None
