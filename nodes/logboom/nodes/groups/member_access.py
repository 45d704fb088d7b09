"""What members of a group may do and see, beyond the right to read the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.groups import group_answers
from logboom.wire.acceptor import PeerSession
from logboom.wire.access_requirements import Requirement
from logboom.wire.actor import PeerAddress
from logboom.wire.errors import Forbidden, GroupError, LogboomError
from logboom.wire.features import IDS_OF_USERS
from logboom.wire.group_messages import (
    GroupCommit,
    GroupHeartbeat,
    GroupLeave,
    GroupRelease,
    QueueStatus,
)
from logboom.wire.user_marks import mark_of

MAX_READERS: Final = 10_000
"""Users that are remembered as readers of groups; beyond it their rights are looked up again."""
DIFFERENCES: Final = ("missing", "extra", "different")
"""Fields of SUBSCRIPTION_MISMATCH that name topics, with commas between them."""


class MemberAccess:
    """The rights of members, by the sessions and the copy of the groups at this broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._acceptor = context.acceptor
        self._groups = context.groups
        self._routes = context.routes
        self._readers: dict[tuple[str, int], tuple[int, int]] = {}
        """(user, id of a group) → number of changes of rules and version of the group's subscription, as of
        which it may read all topics."""

    def mark_of(self, peer: PeerSession) -> int:
        """Return the mark of a user whose members count for it alone, else 0 (A6)."""
        return mark_of(peer.user) if self._routes.features >= IDS_OF_USERS else 0

    def foreign(
        self, peer: PeerSession, message: GroupHeartbeat | GroupCommit | GroupRelease | GroupLeave
    ) -> LogboomError | None:
        """Return the error if a request is in the name of another user's member, or None."""
        known = self._groups.groups.get(message.group)
        member = None if known is None else known.members.get(message.member)
        user = mark_of(peer.user)
        if member is None or 0 in (member.user, user) or member.user == user:
            return None
        return group_answers.unknown_member(message.group, message.member)

    def refusal(self, address: PeerAddress, message: GroupHeartbeat) -> LogboomError | None:
        """Return why a member is not served, or None.

        A member that may not read a topic of its group would own queues and get nothing of them.
        """
        peer = self._acceptor.peer(address)
        if peer is None or peer.principal is None:
            return None
        authorizer = self._acceptor.authorizer
        error = self.foreign(peer, message) or authorizer.refusal(peer, message)
        known = self._groups.groups.get(message.group)
        if error is not None or known is None:
            return error
        head = known.head
        reader = (peer.user, head.id)
        as_of = (authorizer.book.changes, head.subscription_version)
        if self._readers.get(reader) == as_of:
            return None
        for topic in head.subscription:
            needed = Requirement("read", "topic", topic)
            error = authorizer.lack(peer, message, needed)
            if isinstance(error, Forbidden):
                return error
            if error is not None:
                # It may not even know the topic's name.
                text = (
                    f"group {message.group!r} subscribes to a topic that user {peer.user!r} may not "
                    "read: an administrator can allow it, or join with another subscription"
                )
                return Forbidden(text, verb="read", kind="group", name=message.group)
        if len(self._readers) >= MAX_READERS:
            self._readers.clear()
        self._readers[reader] = as_of
        return None

    def shown_mismatch(self, address: PeerAddress, error: LogboomError) -> LogboomError:
        """Return an error without names of topics that the one who joins may not describe."""
        sight = self._acceptor.sight(address)
        if sight is None or error.code != "SUBSCRIPTION_MISMATCH":
            return error
        fields, hidden = dict(error.fields), False
        for kind in DIFFERENCES:
            names = [name for name in str(fields.get(kind, "")).split(",") if name]
            seen = [name for name in names if sight.topic(name)]
            hidden |= len(seen) < len(names)
            fields[kind] = ",".join(seen)
        if not hidden:
            return error
        text = (
            f"the subscription is not that of group {fields.get('group')!r}, which has topics that "
            f"user {sight.user!r} may not see: ask whoever manages the group"
        )
        return GroupError(text, error.code, **fields)

    def shown_status(
        self, address: PeerAddress, status: Sequence[QueueStatus]
    ) -> list[QueueStatus]:
        """Return the reports about queues of topics that the one who asks may describe."""
        sight = self._acceptor.sight(address)
        if sight is None:
            return list(status)
        names = self._routes.names
        return [
            each
            for each in status
            if (name := names.get(each.topic_id)) is not None and sight.topic(name)
        ]
