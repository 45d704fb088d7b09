"""Joins of groups.

Any broker accepts the join of a group that it does not know; otherwise only the coordinator does.

A join goes through the log. It is answered once this broker's own copy of the metadata contains it,
so that the first heartbeat finds its member here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.groups import group_answers
from logboom.nodes.groups.coordinator_lookup import CoordinatorLookup
from logboom.nodes.groups.member_access import MemberAccess
from logboom.nodes.requests.long_requests import Parts
from logboom.nodes.turn import BrokerTurn
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.commands import CommandResult
from logboom.wire.errors import InvalidFilter, InvalidRequest, LogboomError
from logboom.wire.filters import Filter
from logboom.wire.group_commands import JoinGroup
from logboom.wire.group_messages import GroupJoin, GroupJoined

MOST_BYTES: Final = 48 * 1024
"""Bytes of the names and filters of one join."""
TOPIC_BYTES: Final = 200
"""What each topic of a join takes of memory besides, while the join waits."""
JOIN_UNITS: Final = 160
"""Units of work (`LongRequests`) of a join, …"""
TOPIC_UNITS: Final = 6
"""… of each topic in it, …"""
CHARACTER_UNITS: Final = 16
"""… and of each character of a filter that is read."""
FIRST_SUBSCRIPTION: Final = 1
"""Version of the subscription with which a group is created."""

Asker: TypeAlias = tuple[PeerAddress, int]
"""(address of the sender, number of the request)."""


class _JoinKey(NamedTuple):
    group: str
    member: str
    instance: str
    room: str
    subscription: tuple[tuple[str, str], ...]
    replace: bool
    user: int


@dataclass(slots=True, eq=False)
class _PendingJoin:
    command: JoinGroup
    askers: list[Asker] = field(default_factory=list)
    result: CommandResult | None = None


class PendingJoins:
    """The joins that are not answered yet."""

    def __init__(
        self, lookup: CoordinatorLookup, proposals: ProposalQueue, access: MemberAccess
    ) -> None:
        self._lookup = lookup
        self._access = access
        self._proposals = proposals
        self._joining: dict[_JoinKey, _PendingJoin] = {}

    def __len__(self) -> int:
        return len(self._joining)

    def join(
        self, peer: PeerSession, message: GroupJoin, epoch_in: Callable[[BrokerTurn], int]
    ) -> Parts:
        """Read the filters of a join in parts, and propose it.

        Args:
            peer: who joins.
            message: its request.
            epoch_in: returns the coordinator's epoch in a turn, 0 if the group is not known; raises
                LogboomError if no join is accepted.
        """
        turn = yield 0
        epoch_in(turn)
        turn = yield JOIN_UNITS + TOPIC_UNITS * len(message.subscription)
        read: dict[str, str] = {}
        subscription: dict[str, str] = {}
        for topic, text in sorted(message.subscription.items()):
            if text not in read:
                # Before it is read, so that one that cannot be read counts, too.
                turn = yield CHARACTER_UNITS * (1 + len(text))
                read[text] = _canonical(topic, text)
            subscription[topic] = read[text]
        epoch = epoch_in(turn)
        asker, user = (peer.address, message.id), self._access.mark_of(peer)
        key = _JoinKey(
            message.group,
            message.member,
            message.instance,
            message.room,
            tuple(subscription.items()),
            message.replace,
            user,
        )
        known = self._joining.get(key)
        if known is not None and known.command.coordinator_epoch == epoch:
            # The same join was sent again: one member epoch is enough.
            if asker not in known.askers:
                known.askers.append(asker)
            return
        command = JoinGroup(
            message.group,
            message.member,
            message.instance,
            peer.client_id[:256],
            message.room,
            subscription,
            message.replace,
            message.config,
            epoch,
            turn.now.wall_ms,
            message.again,
            user,
        )
        self._joining[key] = joining = _PendingJoin(command, [asker])
        self._proposals.propose(
            command, lambda result, later: self._decided(key, joining, result, later), turn
        )

    def _decided(
        self, key: _JoinKey, joining: _PendingJoin, result: CommandResult, turn: BrokerTurn
    ) -> None:
        joining.result = result
        command = joining.command
        if result.code or not isinstance(result.value, int):
            self._end(key, joining)
            self._refuse(joining, group_answers.refusal_of(result, self._lookup.routes), turn)
        elif not command.coordinator_epoch:
            # This join created the group, whoever coordinates it.
            self._end(key, joining)
            self._welcome(
                joining,
                GroupJoined(0, result.value, command.config, FIRST_SUBSCRIPTION),
                turn,
            )
        else:
            self._settle(key, joining, result, turn)

    def moved(self, turn: BrokerTurn) -> None:
        """Follow the metadata, and answer the joins that it contains now."""
        for key, joining in list(self._joining.items()):
            if joining.result is not None:
                self._settle(key, joining, joining.result, turn)

    def _settle(
        self, key: _JoinKey, joining: _PendingJoin, result: CommandResult, turn: BrokerTurn
    ) -> None:
        """Answer if this broker's metadata contains the join, or a later change of the member."""
        lookup = self._lookup
        if lookup.groups.version < result.version:
            return
        self._end(key, joining)
        known = lookup.known(key.group)
        if known is None:
            self._refuse(joining, group_answers.unknown_group(key.group), turn)
            return
        head = known.head
        if head.coordinator != lookup.me:
            self._refuse(joining, lookup.elsewhere(head), turn)
            return
        member = known.members.get(key.member)
        if member is None or member.epoch != result.value:
            # The member left, expired or joined once more. A client that still waits here must join
            # again.
            self._refuse(joining, group_answers.stale_metadata(), turn)
            return
        answer = GroupJoined(0, member.epoch, head.config, member.subscription_version)
        self._welcome(joining, answer, turn)

    def drop_all(self, turn: BrokerTurn) -> None:
        """Forget all joins, since the instance epoch is over."""
        joinings, self._joining = list(self._joining.values()), {}
        for joining in joinings:
            self._refuse(joining, group_answers.outcome_unknown(), turn)

    def _end(self, key: _JoinKey, joining: _PendingJoin) -> None:
        if self._joining.get(key) is joining:
            del self._joining[key]

    @staticmethod
    def _welcome(joining: _PendingJoin, answer: GroupJoined, turn: BrokerTurn) -> None:
        for address, number in joining.askers:
            answer.id = number
            turn.answer(address, answer)

    def _refuse(self, joining: _PendingJoin, error: LogboomError, turn: BrokerTurn) -> None:
        for address, number in joining.askers:
            turn.refuse(address, number, self._access.shown_mismatch(address, error))


def _canonical(topic: str, text: str) -> str:
    """Return the same text for the same filters.

    Raises:
        InvalidFilter: it cannot be parsed; the error names the character and the `topic`.
    """
    try:
        return Filter.read(text).text
    except InvalidFilter as error:
        error.fields["topic"] = topic
        raise


def check_size(message: GroupJoin) -> int:
    """Check that a join fits into one command, and return the bytes that it takes while it waits.

    Raises:
        InvalidRequest: TOO_LARGE.
    """
    size = sum(len(part.encode()) for part in (message.group, message.member, message.instance))
    size += len(message.room.encode())
    size += sum(len(t.encode()) + len(f.encode()) + 8 for t, f in message.subscription.items())
    options = message.config.options
    size += sum(len(room.encode()) + 4 for room in options.rooms)
    for name, queues in options.config.items():
        size += len(name.encode()) + 8 + sum(len(topic.encode()) + 12 for topic, _ in queues)
    if size > MOST_BYTES:
        text = f"the subscription and settings take {size} bytes: use at most {MOST_BYTES}"
        raise InvalidRequest(text, "TOO_LARGE")
    return size + TOPIC_BYTES * len(message.subscription)
