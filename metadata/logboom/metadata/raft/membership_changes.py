"""Joining and removal of name servers: their replicated endpoints and the Raft membership.

Each takes two log entries. To join, the endpoints come before the membership, so that everybody can
dial a member that counts; to leave, the membership comes first (see docs/SAFETY.md, R9, R12).
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
from logboom.wire.base import WireMessage
from logboom.wire.endpoints import endpoint_fault
from logboom.wire.errors import InvalidRequest, LogboomError, Refused, Unavailable, error_for
from logboom.wire.messages import AddNameServer, Ok, RemoveNameServer

Answer: TypeAlias = Callable[[WireMessage | LogboomError], None]


class MembershipHost(Protocol):
    """The name server, as changes of the Raft group see it."""

    raft: RaftNode

    def submit(self, command: AnyLogCommand, on_result: OnResult) -> None:
        """Submit a command of this node's own to the log."""

    def failure(self, outcome: SubmitOutcome) -> LogboomError:
        """Build the error for a submitted command that was not applied, or not known to be."""

    def not_leader(self) -> LogboomError:
        """Build NOT_LEADER, with a hint where to ask."""

    def reachable(self) -> set[str]:
        """Return the members that this node is connected to, itself included."""

    def ask_newcomer(self, request: AddNameServer, on_end: OnEnd) -> None:
        """Find out whether a name server that is to be added is running."""


class MembershipChanges:
    """Changes of the Raft group, which this node carries out one at a time as its leader.

    Each may be repeated. A change that would leave the reachable members without a majority is
    refused, because nobody could undo it.
    """

    def __init__(self, node: MembershipHost) -> None:
        self._node = node
        self._under_way = ""
        """The current change, in words; "" if there is none."""

    def add(self, request: AddNameServer, answer: Answer) -> None:
        """Add an empty name server under an id never used before, once it has answered."""
        name = request.name_server
        once = self._begin(f"{name} is being added", answer)
        if once is None:
            return
        fault = endpoint_fault(request.endpoint) or endpoint_fault(request.raft_endpoint)
        if fault is not None:
            once(InvalidRequest(fault))
            return
        if name in self._node.raft.members:
            self._note(request, once, None, "")
        else:
            self._node.ask_newcomer(request, partial(self._note, request, once))

    def _begin(self, text: str, answer: Answer) -> Answer | None:
        """Begin a change and return the callback that ends it; None if it may not begin."""
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
        """Return why a group of `members` could not go on; None if a majority of them is reachable."""
        reached = (self._node.reachable() | set(newcomers)) & set(members)
        if 2 * len(reached) > len(members):
            return None
        missing = ", ".join(sorted(set(members) - reached))
        text = (
            f"of the {len(members)} name servers that would remain, only {len(reached)} are "
            f"reachable, no majority: bring back {missing} first, or remove those that are lost"
        )
        return Refused(text, "NO_MAJORITY")

    def _note(
        self, request: AddNameServer, answer: Answer, error: LogboomError | None, journal: str
    ) -> None:
        name = request.name_server
        if error is None:
            members = self._node.raft.members | {name}
            error = self._stranded(members, [name])
        if error is not None:
            answer(error)
            return
        # The note comes before the membership: wherever it counts, its journal is known (R9).
        note = NoteNameServer(name, request.endpoint, request.raft_endpoint, journal)
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
            # The next leader can remove this one; the caller follows NOT_LEADER to it.
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
        """Return the error of one of this node's commands, or None if it was applied without one."""
        if not outcome.applied:
            return self._node.failure(outcome)
        result = decode_result(outcome.result)
        return error_for(result.code, result.text, result.fields) if result.code else None
