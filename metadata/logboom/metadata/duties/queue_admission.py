"""Admission of new queues: no faster than the brokers open them.

A broker opens each replica that it gets, and the metadata of each queue goes to all of them. Thousands
of queues that appear at once would keep brokers from their heartbeats. So the Raft leader takes
a client's command that makes queues only while few replicas have yet to be opened; the client sends
it again. What was placed on a broker is in the replicated state, what the broker has opened comes
with its heartbeats, and their difference is what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logboom.wire.commands import AlterTopic, AnyCommand, CreateTopic, RestoreTopic
from logboom.wire.errors import Unavailable
from logboom.wire.names import MAX_QUEUES

if TYPE_CHECKING:
    from logboom.metadata.tables.cluster_state import ClusterState
    from logboom.wire.messages import Heartbeat

MAX_UNOPENED: Final = 2_048
"""Replicas that one broker may have yet to open; a topic has at most half as many queues."""


class QueueAdmission:
    """What the brokers have opened, and the queues of commands that are not applied yet."""

    def __init__(self) -> None:
        self._opened: dict[str, int] = {}
        """Broker → replicas that its last heartbeat to this node told."""
        self._submitted: dict[bytes, int] = {}
        """Entry that was submitted → queues that it makes."""

    def heard(self, message: Heartbeat) -> None:
        """Take what a broker has opened; an older one does not tell, and holds nothing up."""
        if message.replicas < 0:
            self._opened.pop(message.broker, None)
        else:
            self._opened[message.broker] = message.replicas

    def admit(self, entry: bytes, command: AnyCommand, cluster: ClusterState) -> Unavailable | None:
        """Take an entry that is about to be submitted, or return why it has to wait."""
        count = _made(command, cluster)
        if not count:
            return None
        for broker in self._opened.keys() & cluster.brokers.keys():
            # What was deleted since its heartbeat makes no room.
            placed = len(cluster.brokers[broker].queues)
            self._opened[broker] = min(self._opened[broker], placed)
        left, broker = max(
            (
                (len(cluster.brokers[broker].queues) - opened, broker)
                for broker, opened in self._opened.items()
                if broker in cluster.alive
            ),
            default=(0, ""),
        )
        waiting = max(0, left) + sum(self._submitted.values())
        if waiting + count > MAX_UNOPENED:
            text = (
                f"{waiting} new queues wait until {broker or 'the brokers'} has opened them, and "
                f"{count} more are too many: ask again in a moment"
            )
            return Unavailable(text, "BUSY")
        self._submitted[entry] = count
        return None

    def ended(self, entry: bytes) -> None:
        """Note that a submitted entry was applied, or will not be."""
        self._submitted.pop(entry, None)


def _made(command: AnyCommand, cluster: ClusterState) -> int:
    """Return how many queues a command makes; 0 if it is refused for that number."""
    match command:
        case CreateTopic(queues=queues):
            before = 0
        case RestoreTopic(epochs=epochs):
            queues, before = len(epochs), 0
        case AlterTopic(name=name, queues=int(queues)) if name in cluster.topics:
            before = len(cluster.topics[name].queues)
        case _:
            return 0
    return queues - before if before < queues <= MAX_QUEUES else 0
