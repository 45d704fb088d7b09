"""Requests of members that must be durable: commits, releases and leaving (G1).

Each request is answered with its own codes once the log contains it, never before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.groups import group_answers
from logboom.nodes.groups.commit_batcher import CommitBatcher, check_size, split_commits
from logboom.nodes.groups.coordinator_lookup import CoordinatorLookup
from logboom.nodes.groups.member_access import MemberAccess
from logboom.nodes.groups.member_sessions import MemberSessions
from logboom.nodes.groups.pending_joins import Asker
from logboom.nodes.turn import BrokerTurn
from logboom.wire.acceptor import PeerSession
from logboom.wire.commands import CommandResult
from logboom.wire.group_commands import LeaveGroup, QueueCommit, ReleaseQueues
from logboom.wire.group_messages import GroupCommit, GroupCommitted, GroupLeave, GroupRelease
from logboom.wire.stats import Statistics

MOST_WAITING: Final = 10_000
"""Commands and commits that may wait for the raft group. More are rejected with BUSY."""

Part: TypeAlias = Sequence[QueueCommit]


class MemberRequests:
    """The commits, releases and departures in progress."""

    def __init__(
        self,
        lookup: CoordinatorLookup,
        access: MemberAccess,
        sessions: MemberSessions,
        proposals: ProposalQueue,
        stats: Statistics,
    ) -> None:
        self._lookup = lookup
        self._access = access
        self._sessions = sessions
        self._proposals = proposals
        self._stats = stats
        self._commits = CommitBatcher(lookup.me, proposals)
        self._open: dict[Asker, None] = {}

    def commit(self, peer: PeerSession, message: GroupCommit, turn: BrokerTurn) -> None:
        """Commit with the next command that can be proposed."""
        asker = (peer.address, message.id)
        if self._admit(peer, message, message.queues, turn):
            self._stats.count("group_commits")
            self._gather(message, message.queues, asker, turn)

    def release(self, peer: PeerSession, message: GroupRelease, turn: BrokerTurn) -> None:
        """Propose the last commits and the release in one command."""
        asker = (peer.address, message.id)
        if self._admit(peer, message, message.releases, turn):
            self._stats.count("group_releases")
            given = [(each.topic_id, each.queue) for each in message.releases]
            self._sessions.released(message.group, given)
            self._release(message, split_commits(message.releases), [], asker, turn)

    def leave(self, peer: PeerSession, message: GroupLeave, turn: BrokerTurn) -> None:
        """Propose the last commits and the departure in one command.

        Commits that do not fit go into commands before it. A member that stays only commits.
        """
        asker = (peer.address, message.id)
        if not self._admit(peer, message, message.releases, turn):
            return
        self._stats.count("group_leaves")
        self._sessions.left(message.group, message.member, message.epoch)
        if message.stays:
            self._gather(message, message.releases, asker, turn)
            return
        parts = split_commits(message.releases) or [[]]
        if len(parts) == 1:
            self._leave(message, [], parts[0], asker, turn)
            return
        first = message.releases[: -len(parts[-1])]
        self._gather(message, first, asker, turn, parts[-1])

    def flush(self, turn: BrokerTurn) -> None:
        """Propose the commits that the turn has gathered."""
        self._commits.flush(turn)

    def drop_all(self, turn: BrokerTurn) -> None:
        """Refuse all requests in progress, whose outcome the end of the epoch leaves unknown."""
        askers, self._open = list(self._open), {}
        self._commits.drop_all()
        for address, number in askers:
            turn.refuse(address, number, group_answers.outcome_unknown())

    def _admit(
        self,
        peer: PeerSession,
        message: GroupCommit | GroupRelease | GroupLeave,
        of: Part,
        turn: BrokerTurn,
    ) -> bool:
        """Refuse what cannot be proposed.

        A member that sends a request in a valid epoch is alive.
        """
        group, member, epoch = message.group, message.member, message.epoch
        error = self._access.foreign(peer, message)
        if error is None:
            self._sessions.heard(group, member, epoch, turn.mono)
            error = self._lookup.refusal(group, member, epoch, turn.mono)
        if error is None and len(self._proposals) + len(self._commits) >= MOST_WAITING:
            error = group_answers.full()
        if error is None:
            error = check_size(of)
        if error is not None:
            turn.refuse(peer.address, message.id, error)
            return False
        self._open[peer.address, message.id] = None
        return True

    def _gather(
        self,
        message: GroupCommit | GroupLeave,
        queues: Part,
        asker: Asker,
        turn: BrokerTurn,
        farewell: Part | None = None,
    ) -> None:
        def decided(codes: list[str] | CommandResult, later: BrokerTurn) -> None:
            if isinstance(message, GroupLeave) and farewell is not None and isinstance(codes, list):
                self._leave(message, codes, farewell, asker, later)
            else:
                self._told(asker, codes, later)

        self._commits.add(
            message.group,
            self._sessions.groups[message.group].epoch,
            message.member,
            message.epoch,
            queues,
            decided,
            turn,
        )

    def _release(
        self,
        message: GroupRelease,
        parts: list[Part],
        codes: list[str],
        asker: Asker,
        turn: BrokerTurn,
    ) -> None:
        """Propose one part after the other, and answer with the codes of all."""
        if not parts:
            self._told(asker, codes, turn)
            return

        def decided(result: CommandResult, later: BrokerTurn) -> None:
            if result.code or not isinstance(result.value, list):
                self._told(asker, result, later)
            else:
                self._release(message, parts[1:], codes + result.value, asker, later)

        command = ReleaseQueues(
            message.group, message.member, message.epoch, list(parts[0]), turn.now.wall_ms
        )
        self._proposals.propose(command, decided, turn)

    def _leave(
        self, message: GroupLeave, codes: list[str], last: Part, asker: Asker, turn: BrokerTurn
    ) -> None:
        def decided(result: CommandResult, later: BrokerTurn) -> None:
            if result.code or not isinstance(result.value, list):
                self._told(asker, result, later)
            else:
                self._told(asker, codes + result.value, later)

        command = LeaveGroup(
            message.group, message.member, message.epoch, list(last), turn.now.wall_ms
        )
        self._proposals.propose(command, decided, turn)

    def _told(self, asker: Asker, codes: list[str] | CommandResult, turn: BrokerTurn) -> None:
        """Answer with the codes of the log, or with the reason why there are none."""
        self._open.pop(asker, None)
        address, number = asker
        if isinstance(codes, CommandResult):
            turn.refuse(address, number, group_answers.refusal_of(codes, self._lookup.routes))
        elif "NOT_COORDINATOR" in codes:
            # This is not the member's fault: it finds the new coordinator and sends the request
            # there.
            turn.refuse(address, number, group_answers.moved())
        else:
            turn.answer(address, GroupCommitted(number, codes))
