"""What the scripted nodes know of transactions: who parked what where, and what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from logboom.client.send.producer_batch import NOBODY
from logboom.wire.base import WireMessage
from logboom.wire.batch import set_producer
from logboom.wire.commands import CommandResult
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.head import peek
from logboom.wire.messages import Failure, Ok, Produce, Produced
from logboom.wire.transactions import (
    HALF,
    AwaitDecided,
    CheckHalves,
    CheckParked,
    Decide,
    EndHalf,
    EntryPosition,
    HalfEnded,
    HalvesToCheck,
    OpenApplication,
    ParkedBatches,
    ParkedChecked,
    TransactionId,
    TransactionOffsetCommit,
    UndecidedBatch,
)

if TYPE_CHECKING:
    from tests.unit.client.scripted import Cluster

Queue = tuple[int, int]


class Decisions:
    """A name server's table, and the parked batches of all queues; decisions are carried out at
    once."""

    def __init__(self) -> None:
        self.parked: dict[tuple[Queue, EntryPosition], tuple[TransactionId, bytes, str]] = {}
        """Where → whose, the batch, its topic's name."""
        self.closed: set[tuple[Queue, int, int, int]] = set()
        """(queue, producer id, epoch, sequence) of parked batches, against duplicates."""
        self.committed: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.aborted: set[tuple[str, int, int]] = set()
        self.decided: list[Decide] = []
        """All that were taken, in order."""
        self.consumed: list[TransactionOffsetCommit] = []
        self.refusal: LogboomError | None = None
        """Refuses every commit."""
        self.older = False
        """Whether brokers do not know yet how to send what is parked."""
        self.at_once = 1_000
        """Parked batches that one answer brings."""
        self.late = False
        """Whether no queue carries anything out in time."""
        self.ended: list[tuple[EndHalf, bool]] = []
        self.in_doubt: list[tuple[UndecidedBatch, bytes]] = []
        """To be handed to whoever asks for checks."""
        self._places = count()
        self._numbers = count(100)
        self._known: dict[tuple[Queue, int, int, int], EntryPosition] = {}

    # Parking.

    def park(self, cluster: Cluster, message: Produce, batch: Frame) -> WireMessage:
        """Park a batch, or answer the first time's place."""
        whose = message.transaction
        assert whose is not None
        assert message.acks == "all"
        if (whose.app_id, whose.sequence, whose.attempt) in self.aborted:
            return Failure(0, "TRANSACTION_ABORTED", "it was aborted", retryable=False)
        if 0 <= whose.sequence <= self.committed.get(whose.app_id, -1):
            return Failure(0, "TRANSACTION_CLOSED", "it is committed", retryable=False)
        queue = (cluster.topic_ids[message.topic], message.queue)
        head = peek(batch)
        key = (queue, head.producer_id, head.producer_epoch, head.base_sequence)
        place = self._known.get(key)
        if place is None:
            place = self._known[key] = (cluster.log(message.topic, message.queue).end, self._side())
            self.parked[queue, place] = (whose, bytes(batch), message.topic)
        return Produced(0, place[0], 0, place[1])

    def _side(self) -> int:
        return next(self._places)

    # The name server.

    def apply(self, cluster: Cluster, command: OpenApplication | Decide) -> CommandResult:
        """What the name server says, and what the queues then do."""
        app_id = command.app_id
        if isinstance(command, OpenApplication):
            epoch = self.epochs[app_id] = self.epochs.get(app_id, 0) + 1
            return CommandResult(1, value=[str(epoch), str(self.committed.get(app_id, -1))])
        if 0 <= command.epoch != self.epochs.get(app_id, 0):
            return CommandResult(1, "FENCED", "another producer has opened it since")
        attempt = (app_id, command.sequence, command.attempt)
        if command.commit and self.refusal is not None:
            return CommandResult(1, self.refusal.code, self.refusal.text)
        if command.sequence <= self.committed.get(app_id, -1):
            self._drop(command)
            return CommandResult(1, value=["commit", str(next(self._numbers)), "again"])
        if command.commit and attempt in self.aborted:
            return CommandResult(1, "TRANSACTION_ABORTED", "it was aborted")
        self.decided.append(command)
        if command.commit:
            self.committed[app_id] = command.sequence
            self.consumed += command.consumed
            self._release(cluster, command.parked)
        else:
            self.aborted.add(attempt)
        self._drop(command)
        word = "commit" if command.commit else "abort"
        return CommandResult(1, value=[word, str(next(self._numbers)), "first"])

    def _release(self, cluster: Cluster, parked: list[ParkedBatches]) -> None:
        for each in parked:
            for place in each.places:
                _, batch, topic = self.parked.pop(((each.topic_id, each.queue), place))
                publish(cluster, topic, each.queue, batch)

    def _drop(self, command: Decide) -> None:
        """What the decision leaves behind."""
        gone = [
            at
            for at, (whose, _, _) in self.parked.items()
            if (whose.app_id, whose.sequence) == (command.app_id, command.sequence)
            and (command.commit or whose.attempt == command.attempt)
        ]
        for at in gone:
            del self.parked[at]

    # Brokers.

    def answer(
        self, cluster: Cluster, message: AwaitDecided | CheckParked | EndHalf
    ) -> WireMessage | None:
        """What a queue's leader says; None: nothing, in time."""
        queue = (cluster.topic_ids[message.topic], message.queue)
        match message:
            case AwaitDecided():
                return None if self.late else Ok(0)
            case CheckParked(transaction=whose, places=places):
                known = {place for at, place in self.parked if at == queue}
                mine = {p for p in known if self.parked[queue, p][0] == whose}
                return ParkedChecked(0, [p for p in map(_tuple, places) if p not in mine])
            case EndHalf():
                return self._end_half(cluster, message, queue)

    def wanted(
        self, cluster: Cluster, message: AwaitDecided | CheckParked | EndHalf
    ) -> Sequence[Frame]:
        """The batches that go with the answer."""
        if not isinstance(message, CheckParked) or not message.read_bytes or self.older:
            return ()
        queue = (cluster.topic_ids[message.topic], message.queue)
        found: list[Frame] = []
        for place in map(_tuple, message.places):
            if (queue, place) not in self.parked or len(found) == self.at_once:
                break
            found.append(self.parked[queue, place][1])
        return found

    def _end_half(self, cluster: Cluster, message: EndHalf, queue: Queue) -> WireMessage:
        self.ended.append((message, message.commit))
        found = self.parked.pop((queue, (message.offset, message.side)), None)
        if found is None:
            return HalfEnded(0, "unknown")
        if message.commit:
            publish(cluster, message.topic, message.queue, found[1])
        return HalfEnded(0, "committed" if message.commit else "aborted")

    def halves(
        self, cluster: Cluster, endpoint: str, message: CheckHalves
    ) -> tuple[WireMessage | None, Sequence[Frame]]:
        """The first broker hands out all that is in doubt; others have nothing to say."""
        mine = [h for h in self.in_doubt if h[0].transaction.app_id == message.producer_group]
        if not mine:
            return None, ()
        self.in_doubt = [h for h in self.in_doubt if h not in mine]
        return HalvesToCheck(0, [half for half, _ in mine]), [batch for _, batch in mine]

    def doubt(self, cluster: Cluster) -> None:
        """Every half message that is parked is in doubt now."""
        for (queue, place), (whose, batch, topic) in self.parked.items():
            if whose.sequence == HALF:
                half = UndecidedBatch(topic, *queue, *place, whose, 0, 1, 1, len(batch))
                self.in_doubt.append((half, batch))


def publish(cluster: Cluster, topic: str, queue: int, batch: bytes) -> None:
    """A leader releases: its producer's window has known the batch since it was parked."""
    unnumbered = set_producer(batch, *NOBODY)
    cluster.log(topic, queue).append(unnumbered, peek(unnumbered))


def _tuple(place: EntryPosition) -> EntryPosition:
    return (place[0], place[1])
