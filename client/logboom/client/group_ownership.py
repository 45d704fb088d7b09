"""What the consumers of a group tell of themselves, in threads and in event loops."""

from __future__ import annotations

from logboom.client.groups.member import MemberState


class GroupOwnership:
    """A consumer that owns queues as a member of a group."""

    def __init__(self, member: MemberState) -> None:
        self._member = member

    @property
    def queues(self) -> list[tuple[str, int]]:
        """(topic, queue) of all that this member has now, its group's retries left out."""
        return self._member.queues()

    def owner_epoch(self, topic: str, queue: int) -> int:
        """The epoch in which this member has a queue: every owner's is greater than those of all
        before it, so that others can refuse what an owner of the past writes (a fencing token).

        Raises:
            UnknownResource: this member does not have the queue at the moment.
        """
        return self._member.owner_epoch(topic, queue)

    @property
    def member_id(self) -> str:
        """This member's name in its group."""
        return self._member.options.member_id
