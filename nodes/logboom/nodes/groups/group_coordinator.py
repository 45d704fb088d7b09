"""The coordinator of consumer groups, between the members and the name servers.

Members join, hold one heartbeat, commit, release and leave here. What must be durable is proposed
under the coordinator's epoch, so a former coordinator cannot change anything (R13). The assignment
of a member is taken from this broker's own copy of the metadata, and its heartbeat is answered when
that changes. A broker without a lease coordinates nothing, since another may coordinate by then
(Q11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.groups import group_answers
from logboom.nodes.groups.coordinator_lookup import CoordinatorLookup
from logboom.nodes.groups.member_access import MemberAccess
from logboom.nodes.groups.member_requests import MOST_WAITING, MemberRequests
from logboom.nodes.groups.member_sessions import MemberSessions
from logboom.nodes.groups.pending_joins import PendingJoins, check_size
from logboom.nodes.groups.retry_topics import RetryTopics
from logboom.nodes.groups.start_offsets import LeaderOffsets, StartOffsets
from logboom.nodes.requests.holds import Hold, Holds
from logboom.nodes.requests.long_requests import LongRequests
from logboom.nodes.turn import BrokerTurn, Figures, Handler, HeldRequest, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress, note
from logboom.wire.commands import CommandResult
from logboom.wire.errors import InvalidRequest
from logboom.wire.group_commands import ExpireMembers
from logboom.wire.group_messages import (
    MAX_STATUSES,
    GroupCommit,
    GroupHeartbeat,
    GroupJoin,
    GroupLeave,
    GroupRelease,
    GroupStatus,
    GroupStatusResult,
    MemberStatus,
)
from logboom.wire.group_view import GroupView, OwnedQueue
from logboom.wire.owner_proofs import OwnerProver

STALL_S: Final = 1.5
"""Seconds between two turns after which no member counts as silent, since the broker's own loop had
stalled (R13). This is less than a lease."""
COMMANDS_AT_ONCE: Final = 16
"""Commands of groups that are in flight to the raft leader."""
AHEAD_S: Final = 1.0
"""Seconds that a heartbeat waits if it knows newer metadata than this broker."""
EXPIRED_AT_ONCE: Final = 200
"""Members in one command: some 30 KiB of names."""

TOPIC_UNITS: Final = 6
"""Units of work (`AccessBook.units`) for each topic of a group to which a member's right is checked."""

_Key = tuple[str, str]


class GroupCoordinator(Service):
    """Serves the groups that this broker coordinates, and joins of groups that do not exist yet."""

    def __init__(
        self,
        context: BrokerContext,
        ends: LeaderOffsets,
        prover: OwnerProver,
        long_requests: LongRequests,
    ) -> None:
        lookup = self._lookup = CoordinatorLookup(context)
        self._access = MemberAccess(context)
        self._prover = prover
        self._long_requests = long_requests
        self._session_at = context.acceptor.peer
        # A queue of its own, so that groups never delay leaderships.
        proposals = self._proposals = context.make_proposals("groups", COMMANDS_AT_ONCE)
        stats = self._stats = context.stats
        self.sessions = MemberSessions()
        self.holds: Holds[_Key, GroupHeartbeat] = Holds()
        self._held: dict[str, dict[str, None]] = {}
        """The members of each group whose heartbeat is held."""
        self._ahead: dict[_Key, None] = {}
        """Members with a held heartbeat that this broker's metadata does not contain yet."""
        self._joins = PendingJoins(lookup, proposals, self._access)
        self.requests = MemberRequests(lookup, self._access, self.sessions, proposals, stats)
        self._starts = StartOffsets(lookup, context.links, ends, proposals, stats)
        self._topics = RetryTopics(lookup.routes, proposals)
        self._last_turn = float("inf")
        self._lapsed = True
        """Members could not be heard or answered, so they are granted a full session first."""

    def __len__(self) -> int:
        return len(self.sessions.groups)

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of what members ask."""
        return {
            GroupJoin: self.join,
            GroupHeartbeat: self.heartbeat,
            GroupCommit: self.requests.commit,
            GroupRelease: self.requests.release,
            GroupLeave: self.requests.leave,
            GroupStatus: self.status,
        }

    def figures(self, now: float) -> Figures:
        """Return how many groups and members are coordinated."""
        return {
            "groups_coordinated": len(self),
            "members_coordinated": self.sessions.members,
            "heartbeats_held": len(self.holds),
        }

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    def returned(self, turn: BrokerTurn) -> None:
        """Note a stall of the loop or a lost lease, after which members get a full session (R13).

        Call this first in each turn.
        """
        if turn.mono - self._last_turn > STALL_S:
            self._lapsed = True
        self._last_turn = turn.mono
        if not self._lookup.lease.holds(turn.mono):
            self._lapsed = True
        elif self._lapsed:
            self._lapsed = False
            self.sessions.grant(turn.mono)

    def step(self, turn: BrokerTurn) -> None:
        """Answer held heartbeats that are due, expire members, and continue what was proposed."""
        for key, hold in self.holds.expired(turn.mono):
            self._forget_hold(key)
            self._beat(hold, turn, ripe=True)
        if not self._lapsed and self._lookup.lease.holds(turn.mono):
            for group, members in self.sessions.take_due(turn.mono).items():
                for at in range(0, len(members), EXPIRED_AT_ONCE):
                    self._expire(group, members[at : at + EXPIRED_AT_ONCE], turn)
            self._starts.step(turn)
            self._topics.step(turn)
        self._proposals.step(turn)

    def deadline(self) -> float:
        """Return when a turn is wanted next."""
        wanted = min(self.holds.deadline(), self._proposals.deadline())
        if self._lapsed:
            # The next granted heartbeat causes a turn.
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
                else:
                    later.out.notes.append(note("member_expired", group=group, member=member))

        epoch = self.sessions.groups[group].epoch
        command = ExpireMembers(group, self._lookup.me, epoch, members, turn.now.wall_ms)
        self._proposals.propose(command, decided, turn)

    # ── metadata ────────────────────────────────────────────────────────────────────────────────

    def learned(self, topics: Sequence[str], groups: Sequence[str], turn: BrokerTurn) -> None:
        """Follow changes of the groups, and wake the members that they concern."""
        for name in groups:
            if self._lookup.own(name) is None:
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
        """Follow a group that this broker coordinates."""
        known = self._lookup.groups.groups[name]
        head = known.head
        self._topics.ensure(head, turn)
        self._starts.update(head, turn.mono)
        coordinated = self.sessions.groups.get(name)
        self._say(head, "" if coordinated is None else coordinated.fault, turn)
        if coordinated is None or coordinated.epoch != head.coordinator_epoch:
            self._stats.count("coordinations")
            self.sessions.begin(known, turn.mono)
            self._wake_all(name, turn)
            return
        coordinated.fault = head.fault
        gone = [*head.gone]
        if head.full:
            gone += [member for member in coordinated.sessions if member not in known.members]
        for member in gone:
            self.sessions.remove_member(name, member)
        for view in head.members:
            self.sessions.add_member(name, view, turn.mono)
        if (head.subscription_version, head.config) != (coordinated.subscribed, coordinated.config):
            self.sessions.configure(known, turn.mono)
            self._wake_all(name, turn)
            return
        for member in [*gone, *(view.id for view in head.members)]:
            self._wake((name, member), turn)

    @staticmethod
    def _say(head: GroupView, before: str, turn: BrokerTurn) -> None:
        """Log whether a group's strategy leaves queues unassigned."""
        if head.fault and head.fault != before:
            strategy = head.config.strategy
            turn.out.notes.append(
                note("allocation_failed", group=head.name, strategy=strategy, text=head.fault)
            )
        elif before and not head.fault:
            turn.out.notes.append(note("allocation_complete", group=head.name))

    def fenced(self, turn: BrokerTurn) -> None:
        """Forget all proposals of the instance epoch, whose outcome is unknown."""
        self._lapsed = True
        self._proposals.drop_all()
        self._joins.drop_all(turn)
        self.requests.drop_all(turn)
        self._starts.drop_all(turn.mono)
        self._topics.drop_all(turn)
        self.sessions.drop_all()

    def held(self) -> Iterator[HeldRequest]:
        """Yield the held heartbeats, whose members may not be members any more."""
        for key in self.holds.awaited():
            known = self._lookup.known(key[0])
            units = 0 if known is None else TOPIC_UNITS * len(known.head.subscription)
            for hold in self.holds.peek(key):
                drop, check = partial(self._drop, key), self._access.refusal
                yield HeldRequest(hold.address, hold.message, drop, check, units)

    def _drop(self, key: _Key) -> None:
        """Let a heartbeat wait no longer."""
        self._forget_hold(key)
        self.holds.take(key)

    # ── requests ────────────────────────────────────────────────────────────────────────────────

    def join(self, peer: PeerSession, message: GroupJoin, turn: BrokerTurn) -> None:
        """Serve GROUPJOIN."""
        try:
            size = check_size(message)
        except InvalidRequest as error:
            turn.refuse(peer.address, message.id, error)
            return
        parts = self._joins.join(peer, message, partial(self._join_epoch, message.group))
        self._long_requests.serve(peer, message, parts, size, turn)

    def _join_epoch(self, group: str, turn: BrokerTurn) -> int:
        """Return the epoch of a group under which members join here, 0 if it is not known.

        Raises:
            LogboomError: none joins here.
        """
        lookup = self._lookup
        known = lookup.known(group)
        if known is not None and known.head.coordinator != lookup.me:
            raise lookup.elsewhere(known.head)
        if not lookup.lease.holds(turn.mono):
            raise group_answers.no_lease()
        if len(self._proposals) >= MOST_WAITING:
            raise group_answers.full()
        return 0 if known is None else known.head.coordinator_epoch

    def heartbeat(self, peer: PeerSession, message: GroupHeartbeat, turn: BrokerTurn) -> None:
        """Serve GROUPHEARTBEAT."""
        forbidden = self._access.refusal(peer.address, message)
        if forbidden is not None:
            # It does not count as heard, so its queues go to others.
            turn.refuse(peer.address, message.id, forbidden)
            return
        session = self.sessions.heard(message.group, message.member, message.epoch, turn.mono)
        if session is not None:
            session.status = message.status[:MAX_STATUSES]
        key = (message.group, message.member)
        self._forget_hold(key)
        for older in self.holds.take(key):
            # One held heartbeat is enough. A member that sends another one does not wait for the
            # first.
            if (older.address, older.message.id) != (peer.address, message.id):
                self._beat(older, turn, ripe=True)
        wait = min(message.wait_ms, message.timeout_ms) / 1000
        known = self._lookup.known(message.group)
        if known is not None:
            config = known.head.config
            wait = min(wait, config.heartbeat_ms / 1000, config.session_ms / 2000)
        self._beat(Hold(peer.address, message, turn.mono + wait), turn, ripe=wait <= 0)

    def status(self, peer: PeerSession, message: GroupStatus, turn: BrokerTurn) -> None:
        """Serve GROUPSTATUS."""
        known = self._lookup.known(message.group)
        coordinated = self.sessions.groups.get(message.group)
        if coordinated is not None and self._lookup.lease.holds(turn.mono):
            members = [
                MemberStatus(
                    name,
                    max(0, int((turn.mono - session.heard) * 1000)),
                    self._access.shown_status(peer.address, session.status),
                )
                for name, session in sorted(coordinated.sessions.items())
            ]
            turn.answer(peer.address, GroupStatusResult(message.id, members))
            return
        if known is not None and known.head.coordinator != self._lookup.me:
            error = self._lookup.elsewhere(known.head)
        elif known is None and self._lookup.lease.holds(turn.mono):
            error = group_answers.unknown_group(message.group)
        else:
            error = group_answers.no_lease()
        turn.refuse(peer.address, message.id, error)

    # ── held heartbeats ─────────────────────────────────────────────────────────────────────────

    def _beat(self, hold: Hold[GroupHeartbeat], turn: BrokerTurn, *, ripe: bool) -> None:
        """Answer a heartbeat, or hold it until there is something new."""
        message, lookup = hold.message, self._lookup
        group, member, epoch = message.group, message.member, message.epoch
        error = lookup.refusal(group, member, epoch, turn.mono)
        forbidden = self._access.refusal(hold.address, message) if error is None else None
        if forbidden is not None:
            turn.refuse(hold.address, message.id, forbidden)
            return
        if error is None:
            known = lookup.groups.groups[group]
            view = known.members[member]
            version = max(view.version, self.sessions.groups[group].told)
            if message.seen < version or ripe:
                answer = group_answers.assigned(
                    message.id, version, view, known.head, lookup.routes
                )
                answer.ended = self.sessions.ended(group, view.queues)
                answer.proofs = self._proofs(hold.address, group, answer.queues)
                turn.answer(hold.address, answer)
                return
        elif lookup.lease.holds(turn.mono) and lookup.is_ahead(group, epoch):
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

    def _proofs(self, address: PeerAddress, group: str, queues: list[OwnedQueue]) -> list[bytes]:
        """Return the proofs with which the user at an address reads these queues (G7)."""
        session, prove = self._session_at(address), self._prover.prove
        user = "" if session is None else session.user
        return [prove(user, group, q.topic_id, q.queue, q.owner_epoch) for q in queues]

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
