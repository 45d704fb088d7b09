"""The coordinator of consumer groups: a broker's part between members and the name servers.

Members join, keep one heartbeat held, commit, release and leave here; what has to be remembered is
proposed under the coordinator's epoch, so that a former coordinator changes nothing (SAFETY R13).
What a member has stands in this broker's own copy of the metadata: a heartbeat is answered when
that changes. Without its lease a broker coordinates nothing (Q11).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from logboom.nodes.cluster.peer_connections import PeerConnections
from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.groups import group_answers
from logboom.nodes.groups.coordinator_lookup import CoordinatorLookup
from logboom.nodes.groups.member_requests import MOST_WAITING, MemberRequests
from logboom.nodes.groups.member_sessions import MOST_STATUSES, MemberSessions
from logboom.nodes.groups.pending_joins import PendingJoins, check_size
from logboom.nodes.groups.retry_topics import RetryTopics
from logboom.nodes.groups.start_offsets import LeaderOffsets, StartOffsets
from logboom.nodes.requests.holds import Hold, Holds
from logboom.nodes.stats import Statistics
from logboom.nodes.turn import BrokerTurn
from logboom.wire.acceptor import PeerSession
from logboom.wire.commands import CommandResult
from logboom.wire.errors import LogboomError
from logboom.wire.group_commands import ExpireMembers
from logboom.wire.group_messages import (
    GroupHeartbeat,
    GroupJoin,
    GroupStatus,
    GroupStatusResult,
    MemberStatus,
)
from logboom.wire.group_view import GroupView

LOG = logging.getLogger("logboom.nodes")

STALL_S: Final = 1.5
"""Seconds between two turns after which nobody counts as silent (R13): less than a lease."""
AHEAD_S: Final = 1.0
"""Seconds that a heartbeat waits for our copy of the metadata, if that is older than its member."""
EXPIRED_AT_ONCE: Final = 200
"""Members in one command: some 30 KiB of names."""

_Key = tuple[str, str]


class GroupCoordinator:
    """Serves the groups that this broker coordinates, and joins of those that do not exist yet."""

    def __init__(
        self,
        standing: CoordinatorLookup,
        links: PeerConnections,
        ends: LeaderOffsets,
        proposals: ProposalQueue,
        stats: Statistics,
    ) -> None:
        """`proposals` is the coordinator's own, so that groups never delay leaderships."""
        self._standing = standing
        self._proposals = proposals
        self._stats = stats
        self.sessions = MemberSessions()
        self.holds: Holds[_Key, GroupHeartbeat] = Holds()
        self._held: dict[str, dict[str, None]] = {}
        """Group → members whose heartbeat is held."""
        self._ahead: dict[_Key, None] = {}
        """Held for members that our copy does not know yet."""
        self._joins = PendingJoins(standing, proposals)
        self.requests = MemberRequests(standing, self.sessions, proposals, stats)
        self._starts = StartOffsets(standing, links, ends, proposals, stats)
        self._topics = RetryTopics(standing.routes, proposals)
        self._last_turn = float("inf")
        self._lapsed = True
        """Members could not be heard, or not answered: they have a full session first."""

    def __len__(self) -> int:
        return len(self.sessions.circles)

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    def returned(self, turn: BrokerTurn) -> None:
        """Called first in each turn: after an absence everybody gets a full session (R13)."""
        if turn.mono - self._last_turn > STALL_S:
            self._lapsed = True
        self._last_turn = turn.mono
        if not self._standing.lease.holds(turn.mono):
            self._lapsed = True
        elif self._lapsed:
            self._lapsed = False
            self.sessions.grant(turn.mono)

    def step(self, turn: BrokerTurn) -> None:
        """Everything that goes by the clock."""
        for key, hold in self.holds.expired(turn.mono):
            self._forget_hold(key)
            self._beat(hold, turn, ripe=True)
        if not self._lapsed and self._standing.lease.holds(turn.mono):
            for group, members in self.sessions.take_due(turn.mono).items():
                for at in range(0, len(members), EXPIRED_AT_ONCE):
                    self._expire(group, members[at : at + EXPIRED_AT_ONCE], turn)
            self._starts.step(turn)
            self._topics.step(turn)
        self._proposals.step(turn)

    def deadline(self) -> float:
        """When a turn is wanted next."""
        wanted = min(self.holds.deadline(), self._proposals.deadline())
        if self._lapsed:
            # The next granted heartbeat makes a turn.
            return wanted
        return min(
            wanted, self.sessions.deadline(), self._starts.deadline(), self._topics.deadline()
        )

    def _expire(self, group: str, members: list[tuple[str, int]], turn: BrokerTurn) -> None:
        self._stats.count("members_expired", len(members))

        def decided(result: CommandResult, later: BrokerTurn) -> None:
            codes = result.value if isinstance(result.value, list) else []
            for place, (member, epoch) in enumerate(members):
                if result.code or place >= len(codes) or codes[place]:
                    self.sessions.spare(group, member, epoch, later.mono)

        epoch = self.sessions.circles[group].epoch
        command = ExpireMembers(group, self._standing.me, epoch, members, turn.now.wall_ms)
        self._proposals.propose(command, decided, turn)

    # ── metadata ────────────────────────────────────────────────────────────────────────────────

    def changed(self, names: Sequence[str], turn: BrokerTurn) -> None:
        """Our copy of the metadata went forward; these groups changed or went."""
        for name in names:
            if self._standing.own(name) is None:
                self.sessions.end(name)
                self._starts.end(name)
                self._topics.end(name)
                self._wake_all(name, turn)
            else:
                self._take(name, turn)
        self._joins.moved(turn)
        for key in list(self._ahead):
            self._wake(key, turn)

    def _take(self, name: str, turn: BrokerTurn) -> None:
        """A group that this broker coordinates came or changed."""
        known = self._standing.groups.groups[name]
        head = known.head
        self._topics.ensure(head, turn)
        self._starts.update(head, turn.mono)
        circle = self.sessions.circles.get(name)
        self._say(head, "" if circle is None else circle.fault)
        if circle is None or circle.epoch != head.coordinator_epoch:
            self._stats.count("coordinations")
            self.sessions.begin(known, turn.mono)
            self._wake_all(name, turn)
            return
        circle.fault = head.fault
        gone = [*head.gone]
        if head.full:
            gone += [member for member in circle.seats if member not in known.members]
        for member in gone:
            self.sessions.unseat(name, member)
        for view in head.members:
            self.sessions.seat(name, view, turn.mono)
        if (head.subscription_version, head.config) != (circle.subscribed, circle.config):
            self.sessions.configure(known, turn.mono)
            self._wake_all(name, turn)
            return
        for member in [*gone, *(view.id for view in head.members)]:
            self._wake((name, member), turn)

    @staticmethod
    def _say(head: GroupView, before: str) -> None:
        """Whether a group's strategy leaves queues alone, to the log."""
        if head.fault and head.fault != before:
            LOG.warning("group %s, strategy %s: %s", head.name, head.config.strategy, head.fault)
        elif before and not head.fault:
            LOG.info("group %s: every queue has a member again", head.name)

    def fenced(self, turn: BrokerTurn) -> None:
        """This broker's instance epoch is over: what it proposed may or may not be done."""
        self._lapsed = True
        self._proposals.drop_all()
        self._joins.drop_all(turn)
        self.requests.drop_all(turn)
        self._starts.drop_all(turn.mono)
        self._topics.drop_all(turn)
        self.sessions.drop_all()

    # ── requests ────────────────────────────────────────────────────────────────────────────────

    def join(self, peer: PeerSession, message: GroupJoin, turn: BrokerTurn) -> None:
        """GroupJoin."""
        standing = self._standing
        try:
            known = standing.known(message.group)
            if known is not None and known.head.coordinator != standing.me:
                raise standing.elsewhere(known.head)
            if not standing.lease.holds(turn.mono):
                raise group_answers.no_lease()
            if len(self._proposals) >= MOST_WAITING:
                raise group_answers.full()
            check_size(message)
            epoch = 0 if known is None else known.head.coordinator_epoch
            self._joins.join((peer.address, message.id), message, peer.client_id, epoch, turn)
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)

    def heartbeat(self, peer: PeerSession, message: GroupHeartbeat, turn: BrokerTurn) -> None:
        """GroupHeartbeat."""
        seat = self.sessions.heard(message.group, message.member, message.epoch, turn.mono)
        if seat is not None:
            seat.status = message.status[:MOST_STATUSES]
        key = (message.group, message.member)
        self._forget_hold(key)
        for older in self.holds.take(key):
            # One is enough; who asks again does not await the other.
            if (older.address, older.message.id) != (peer.address, message.id):
                self._beat(older, turn, ripe=True)
        wait = min(message.wait_ms, message.timeout_ms) / 1000
        known = self._standing.known(message.group)
        if known is not None:
            config = known.head.config
            wait = min(wait, config.heartbeat_ms / 1000, config.session_ms / 2000)
        self._beat(Hold(peer.address, message, turn.mono + wait), turn, ripe=wait <= 0)

    def status(self, peer: PeerSession, message: GroupStatus, turn: BrokerTurn) -> None:
        """GroupStatus."""
        known = self._standing.known(message.group)
        circle = self.sessions.circles.get(message.group)
        if circle is not None and self._standing.lease.holds(turn.mono):
            members = [
                MemberStatus(name, max(0, int((turn.mono - seat.heard) * 1000)), seat.status)
                for name, seat in sorted(circle.seats.items())
            ]
            turn.answer(peer.address, GroupStatusResult(message.id, members))
            return
        if known is not None and known.head.coordinator != self._standing.me:
            error = self._standing.elsewhere(known.head)
        elif known is None and self._standing.lease.holds(turn.mono):
            error = group_answers.unknown_group(message.group)
        else:
            error = group_answers.no_lease()
        turn.refuse(peer.address, message.id, error)

    # ── held heartbeats ─────────────────────────────────────────────────────────────────────────

    def _beat(self, hold: Hold[GroupHeartbeat], turn: BrokerTurn, *, ripe: bool) -> None:
        """Answer a heartbeat, or hold it (on) until there is something to say."""
        message, standing = hold.message, self._standing
        group, member, epoch = message.group, message.member, message.epoch
        error = standing.refusal(group, member, epoch, turn.mono)
        if error is None:
            known = standing.groups.groups[group]
            view = known.members[member]
            version = max(view.version, self.sessions.circles[group].told)
            if message.seen < version or ripe:
                answer = group_answers.assigned(
                    message.id, version, view, known.head, standing.routes
                )
                answer.ended = self.sessions.ended(group, view.queues)
                turn.answer(hold.address, answer)
                return
        elif standing.lease.holds(turn.mono) and standing.is_ahead(group, epoch):
            if hold.moved and ripe:
                turn.refuse(hold.address, message.id, error)
                return
            if not hold.moved:
                deadline = max(hold.deadline, turn.mono + AHEAD_S)
                hold = hold._replace(deadline=deadline, moved=True)
            self._ahead[group, member] = None
        else:
            turn.refuse(hold.address, message.id, error)
            return
        self._held.setdefault(group, {})[member] = None
        self.holds.add((group, member), message.id, hold)

    def _wake_all(self, group: str, turn: BrokerTurn) -> None:
        for member in list(self._held.get(group, ())):
            self._wake((group, member), turn)

    def _wake(self, key: _Key, turn: BrokerTurn) -> None:
        self._forget_hold(key)
        for hold in self.holds.take(key):
            self._beat(hold, turn, ripe=False)

    def _forget_hold(self, key: _Key) -> None:
        self._ahead.pop(key, None)
        members = self._held.get(key[0])
        if members is not None:
            members.pop(key[1], None)
            if not members:
                del self._held[key[0]]
