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

from logboom.nodes.cluster.links import Links
from logboom.nodes.cluster.proposals import Proposals
from logboom.nodes.groups import answers
from logboom.nodes.groups.joins import Joins, check_size
from logboom.nodes.groups.requests import MOST_WAITING, MemberRequests
from logboom.nodes.groups.sessions import MOST_STATUSES, Sessions
from logboom.nodes.groups.standing import Standing
from logboom.nodes.groups.starts import Ends, Starts
from logboom.nodes.groups.topics import GroupTopics
from logboom.nodes.requests.holds import Hold, Holds
from logboom.nodes.stats import Statistics
from logboom.nodes.turn import Turn
from logboom.wire.commands import Result
from logboom.wire.errors import LogboomError
from logboom.wire.gate import Peer
from logboom.wire.group_commands import ExpireMembers
from logboom.wire.group_messages import (
    GroupHeartbeat,
    GroupJoin,
    GroupStatus,
    GroupStatusTold,
    MemberStatus,
)
from logboom.wire.group_view import GroupView

LOG = logging.getLogger("logboom.nodes")

AWAY: Final = 1.5
"""Seconds between two turns after which nobody counts as silent (R13): less than a lease."""
AHEAD_S: Final = 1.0
"""Seconds that a heartbeat waits for our copy of the metadata, if that is older than its member."""
EXPIRED_AT_ONCE: Final = 200
"""Members in one command: some 30 KiB of names."""

_Key = tuple[str, str]


class Coordinator:
    """Serves the groups that this broker coordinates, and joins of those that do not exist yet."""

    def __init__(
        self,
        standing: Standing,
        links: Links,
        ends: Ends,
        proposals: Proposals,
        stats: Statistics,
    ) -> None:
        """`proposals` is the coordinator's own, so that groups never delay leaderships."""
        self._standing = standing
        self._proposals = proposals
        self._stats = stats
        self.sessions = Sessions()
        self.holds: Holds[_Key, GroupHeartbeat] = Holds()
        self._held: dict[str, dict[str, None]] = {}
        """Group → members whose heartbeat is held."""
        self._ahead: dict[_Key, None] = {}
        """Held for members that our copy does not know yet."""
        self._joins = Joins(standing, proposals)
        self.requests = MemberRequests(standing, self.sessions, proposals, stats)
        self._starts = Starts(standing, links, ends, proposals, stats)
        self._topics = GroupTopics(standing.routes, proposals)
        self._last_turn = float("inf")
        self._lapsed = True
        """Members could not be heard, or not answered: they have a full session first."""

    def __len__(self) -> int:
        return len(self.sessions.circles)

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    def returned(self, turn: Turn) -> None:
        """Called first in each turn: after an absence everybody gets a full session (R13)."""
        if turn.mono - self._last_turn > AWAY:
            self._lapsed = True
        self._last_turn = turn.mono
        if not self._standing.lease.holds(turn.mono):
            self._lapsed = True
        elif self._lapsed:
            self._lapsed = False
            self.sessions.grant(turn.mono)

    def step(self, turn: Turn) -> None:
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

    def _expire(self, group: str, members: list[tuple[str, int]], turn: Turn) -> None:
        self._stats.count("members_expired", len(members))

        def decided(result: Result, later: Turn) -> None:
            codes = result.value if isinstance(result.value, list) else []
            for place, (member, epoch) in enumerate(members):
                if result.code or place >= len(codes) or codes[place]:
                    self.sessions.spare(group, member, epoch, later.mono)

        epoch = self.sessions.circles[group].epoch
        command = ExpireMembers(group, self._standing.me, epoch, members, turn.now.wall_ms)
        self._proposals.propose(command, decided, turn)

    # ── metadata ────────────────────────────────────────────────────────────────────────────────

    def changed(self, names: Sequence[str], turn: Turn) -> None:
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

    def _take(self, name: str, turn: Turn) -> None:
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

    def fenced(self, turn: Turn) -> None:
        """This broker's instance epoch is over: what it proposed may or may not be done."""
        self._lapsed = True
        self._proposals.drop_all()
        self._joins.drop_all(turn)
        self.requests.drop_all(turn)
        self._starts.drop_all(turn.mono)
        self._topics.drop_all(turn)
        self.sessions.drop_all()

    # ── requests ────────────────────────────────────────────────────────────────────────────────

    def join(self, peer: Peer, message: GroupJoin, turn: Turn) -> None:
        """GroupJoin."""
        standing = self._standing
        try:
            known = standing.known(message.group)
            if known is not None and known.head.coordinator != standing.me:
                raise standing.elsewhere(known.head)
            if not standing.lease.holds(turn.mono):
                raise answers.no_lease()
            if len(self._proposals) >= MOST_WAITING:
                raise answers.full()
            check_size(message)
            epoch = 0 if known is None else known.head.coordinator_epoch
            self._joins.join((peer.address, message.id), message, peer.client_id, epoch, turn)
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)

    def heartbeat(self, peer: Peer, message: GroupHeartbeat, turn: Turn) -> None:
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

    def status(self, peer: Peer, message: GroupStatus, turn: Turn) -> None:
        """GroupStatus."""
        known = self._standing.known(message.group)
        circle = self.sessions.circles.get(message.group)
        if circle is not None and self._standing.lease.holds(turn.mono):
            members = [
                MemberStatus(name, max(0, int((turn.mono - seat.heard) * 1000)), seat.status)
                for name, seat in sorted(circle.seats.items())
            ]
            turn.answer(peer.address, GroupStatusTold(message.id, members))
            return
        if known is not None and known.head.coordinator != self._standing.me:
            error = self._standing.elsewhere(known.head)
        elif known is None and self._standing.lease.holds(turn.mono):
            error = answers.unknown_group(message.group)
        else:
            error = answers.no_lease()
        turn.refuse(peer.address, message.id, error)

    # ── held heartbeats ─────────────────────────────────────────────────────────────────────────

    def _beat(self, hold: Hold[GroupHeartbeat], turn: Turn, *, ripe: bool) -> None:
        """Answer a heartbeat, or hold it (on) until there is something to say."""
        message, standing = hold.message, self._standing
        group, member, epoch = message.group, message.member, message.epoch
        error = standing.refusal(group, member, epoch, turn.mono)
        if error is None:
            known = standing.groups.groups[group]
            view = known.members[member]
            version = max(view.version, self.sessions.circles[group].told)
            if message.seen < version or ripe:
                answer = answers.assigned(message.id, version, view, known.head, standing.routes)
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

    def _wake_all(self, group: str, turn: Turn) -> None:
        for member in list(self._held.get(group, ())):
            self._wake((group, member), turn)

    def _wake(self, key: _Key, turn: Turn) -> None:
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
