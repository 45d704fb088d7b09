"""The part of a group's consumers that reports the queues they own, in threads and in event
loops."""

from __future__ import annotations

from logboom.client.groups.member import MemberState


class GroupOwnership:
    """The base of consumers that own queues as members of a group."""

    def __init__(self, member: MemberState) -> None:
        self._member = member

    @property
    def queues(self) -> list[tuple[str, int]]:
        """The queues that this member owns now, as (topic, queue), without its group's retries."""
        return self._member.queues()

    def owner_epoch(self, topic: str, queue: int) -> int:
        """Return the epoch in which this member owns a queue. Every owner has a greater epoch than
        all before it, so other systems can use it as a fencing token and refuse writes of past
        owners.

        Raises:
            UnknownResource: this member does not own the queue at the moment.
        """
        return self._member.owner_epoch(topic, queue)

    @property
    def member_id(self) -> str:
        """The name of this member in its group."""
        return self._member.options.member_id
