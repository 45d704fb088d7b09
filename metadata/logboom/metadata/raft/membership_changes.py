"""Name servers join and leave: the replicated note of where they listen, and the raft membership.

Two entries of the log, in this order: to join, the note and then the membership, so that everybody
can dial who counts; to leave, the membership and then the note (R9, R12).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol, TypeAlias

from logboom.metadata.raft.log_commands import (
    AnyLogCommand,
    ForgetNameServer,
    NoteNameServer,
    decode_result,
)
from logboom.metadata.raft.newcomers import OnEnd
from logboom.metadata.raft.raft_config import Refusal, SubmitOutcome
from logboom.metadata.raft.raft_node import RaftNode
from logboom.metadata.raft.submissions import OnResult
from logboom.wire.errors import LogboomError, Refused, Unavailable, error_for
from logboom.wire.messages import AddNameServer, Ok, RemoveNameServer, WireMessage

Answer: TypeAlias = Callable[[WireMessage | LogboomError], None]


class MembershipHost(Protocol):
    """The name server, as far as changes of the raft group know it."""

    raft: RaftNode

    def submit(self, command: AnyLogCommand, on_result: OnResult) -> None:
        """Put a command of this node's own into the log."""

    def failure(self, outcome: SubmitOutcome) -> LogboomError:
        """Why a submitted command was not applied, or is not known to be."""

    def not_leader(self) -> LogboomError:
        """NOT_LEADER with a hint where to ask."""

    def reachable(self) -> set[str]:
        """The members that this one reaches, itself included."""

    def ask_newcomer(self, request: AddNameServer, on_end: OnEnd) -> None:
        """Find out whether a name server that is to be added is there."""


class MembershipChanges:
    """Changes of the raft group that this node, as raft leader, carries out, one at a time.

    Each may be repeated. One that would leave the members that are reachable without a majority is
    refused: nobody could undo it.
    """

    def __init__(self, node: MembershipHost) -> None:
        self._node = node
        self._under_way = ""
        """What is being done, in words; "": nothing."""

    def add(self, request: AddNameServer, answer: Answer) -> None:
        """Add an empty name server under an id never used before, once it has answered."""
        name = request.name_server
        once = self._begin(f"{name} is being added", answer)
        if once is None:
            return
        if name in self._node.raft.members:
            self._note(request, once, None)
        else:
            self._node.ask_newcomer(request, partial(self._note, request, once))

    def _begin(self, text: str, answer: Answer) -> Answer | None:
        """The answer that also ends the change; None if it may not begin."""
        if not self._node.raft.is_leader:
            answer(self._node.not_leader())
            return None
        if self._under_way:
            answer(Unavailable(f"{self._under_way}: one change at a time, ask again", "BUSY"))
            return None
        self._under_way = text

        def once(result: WireMessage | LogboomError) -> None:
            self._under_way = ""
            answer(result)

        return once

    def _stranded(
        self, members: Collection[str], newcomers: Collection[str]
    ) -> LogboomError | None:
        """Why a group of `members` could not go on; None: a majority of them is reachable."""
        reached = (self._node.reachable() | set(newcomers)) & set(members)
        if 2 * len(reached) > len(members):
            return None
        missing = ", ".join(sorted(set(members) - reached))
        text = (
            f"of the {len(members)} name servers that would remain, only {len(reached)} are "
            f"reachable, no majority: bring back {missing} first, or remove those that are lost"
        )
        return Refused(text, "NO_MAJORITY")

    def _note(self, request: AddNameServer, answer: Answer, error: LogboomError | None) -> None:
        name = request.name_server
        if error is None:
            members = self._node.raft.members | {name}
            error = self._stranded(members, [name])
        if error is not None:
            answer(error)
            return
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
        once = self._begin(f"{name} is being removed", answer)
        if once is None:
            return
        members = self._node.raft.members
        error = self._stranded(members - {name}, ()) if name in members else None
        if error is not None:
            once(error)
        else:
            self._node.raft.remove_member(name, partial(self._removed, name, once))

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
        answer(Ok(0) if error is None else error)

    def _ended(self, answer: Answer, outcome: SubmitOutcome) -> None:
        if outcome.applied or outcome.refusal is Refusal.NOTHING_TO_CHANGE:
            answer(Ok(0))
        else:
            answer(self._node.failure(outcome))

    def _error(self, outcome: SubmitOutcome) -> LogboomError | None:
        """The error of a command of ours, or None if it was applied and done."""
        if not outcome.applied:
            return self._node.failure(outcome)
        result = decode_result(outcome.result)
        return error_for(result.code, result.text, result.fields) if result.code else None
