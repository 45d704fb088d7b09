"""A replicated state with short words for its commands, for the tests of its rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logboom.metadata.duties.queue_placer import QueuePlacer
from logboom.metadata.raft.log_commands import (
    ENTRY_FORMAT,
    AnyLogCommand,
    LogEntry,
    PlaceQueues,
    QueuesCommand,
    decode_result,
    encode_entry,
)
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.state.topic_commands import begin_placement
from logboom.metadata.tables.cluster_state import ClusterState, Queue
from logboom.wire.actor import Note
from logboom.wire.commands import (
    AlterIsr,
    CommandResult,
    CreateTopic,
    FenceBroker,
    IsrChange,
    NewTerm,
    QueueTail,
    RegisterBroker,
    ReportDamage,
    ReportRoom,
    ReportTails,
    StepDown,
)
from logboom.wire.event_table import EVENTS
from logboom.wire.features import FEATURES
from logboom.wire.listeners import ListenerView
from logboom.wire.view import TopicConfig


class Tables:
    """A state, and what each broker was told of its registration."""

    def __init__(self) -> None:
        self.state = StateMachine()
        self.epochs: dict[str, int] = {}
        self.incarnations = 0
        self.notes: list[Note] = []
        """What the log of the Raft leader tells."""
        self.by: str | None = None
        """Who proposes."""

    def apply(
        self, command: AnyLogCommand, proposer: str = "", number: int = 0, time_ms: int = 0
    ) -> CommandResult:
        """Apply a command."""
        entry = LogEntry(ENTRY_FORMAT, proposer, number, time_ms, command)
        return decode_result(self.state.apply(encode_entry(entry), self.notes, self.by))

    def told(self) -> list[Note]:
        """What was told since the last look."""
        told, self.notes = self.notes, []
        for each in told:
            assert each.fields.keys() <= {*EVENTS[each.event].fields}, each
        return told

    def done(self, command: AnyLogCommand) -> CommandResult:
        """Apply a command that must not be refused."""
        result = self.apply(command)
        assert result.code == "", result.text
        return result

    def begin(self, term: int = 1, features: int = FEATURES) -> None:
        """A raft leader's term; the first one founds the cluster."""
        self.done(NewTerm(term, "name-1", "the cluster", 0, features))

    def be_older(self) -> None:
        """Be a cluster that was founded before there were features levels."""
        self.state.cluster.features = 0

    def register(
        self,
        broker: str,
        store: str = "",
        zone: str = "",
        *,
        suspect: bool = False,
        host: str = "",
        listeners: Sequence[ListenerView] = (),
    ) -> int:
        """A broker's process begins; its instance epoch."""
        self.incarnations += 1
        incarnation = f"process {self.incarnations}"
        store = store or f"store of {broker}"
        endpoint = f"{broker}.test:7711"
        value = self.done(
            RegisterBroker(
                broker, store, incarnation, endpoint, zone, suspect, 0, host, [*listeners]
            )
        ).value
        assert isinstance(value, int)
        self.epochs[broker] = value
        return value

    def fence(self, broker: str) -> None:
        """The raft leader fences a broker."""
        term = self.state.cluster.term
        self.done(FenceBroker(broker, self.epochs[broker], term, 0))

    def step_down(self, broker: str) -> None:
        """A broker stops in good order."""
        self.done(StepDown(broker, self.epochs[broker], 0))

    def placed(self, command: QueuesCommand) -> PlaceQueues:
        """What the Raft leader submits for a command of very many queues."""
        state = self.state

        class Leader:
            cluster: ClusterState = state.cluster
            serving = True

        found: list[AnyLogCommand | None] = []
        placer = QueuePlacer(Leader())
        assert placer.take(command, found.append)
        while not found:
            placer.perform()
        (made,) = found
        assert isinstance(made, PlaceQueues)
        return made

    def create(self, name: str = "t", queues: int = 1, replicas: int = 3, **config: Any) -> None:
        """Create a topic."""
        command = CreateTopic(name, queues, replicas, TopicConfig(**config), 0)
        many = begin_placement(self.state.cluster, command) is not None
        self.done(self.placed(command) if many else command)

    def queue(self, index: int = 0, name: str = "t") -> Queue:
        """A queue of a topic."""
        return self.state.cluster.topics[name].queues[index]

    def change_isr(self, *isr: str, name: str = "t", index: int = 0, **wrong: Any) -> str:
        """The leader of a queue asks for another ISR; the code of the answer."""
        queue = self.queue(index, name)
        leader = queue.standing.leader
        assert leader is not None
        values: dict[str, Any] = {
            "topic_id": queue.topic.id,
            "queue": index,
            "leader_epoch": queue.epoch,
            "version": queue.version,
            "isr": [(broker, self.epochs[broker]) for broker in isr],
        }
        change = IsrChange(**{**values, **wrong})
        codes = self.done(AlterIsr(leader, self.epochs[leader], [change], 0)).value
        assert isinstance(codes, list)
        return codes[0]

    def report_tail(self, broker: str, last_epoch: int, end: int, index: int = 0) -> None:
        """A suspect broker says what it holds of a queue."""
        topic_id = self.queue(index).topic.id
        tail = QueueTail(topic_id, index, last_epoch, end, 0)
        self.done(ReportTails(broker, self.epochs[broker], [tail], 0))

    def report_damage(self, broker: str, *, mended: bool = False, index: int = 0) -> None:
        """A broker's replica of a queue is damaged, or whole again."""
        where = [(self.queue(index).topic.id, index)]
        self.done(ReportDamage(broker, self.epochs[broker], where, mended, 0))

    def report_room(self, broker: str, *, full: bool) -> None:
        """A broker's disk takes no writes, or takes them again."""
        self.done(ReportRoom(broker, self.epochs[broker], full, 0))


def three_brokers(**config: Any) -> Tables:
    """Brokers a, b, c and topic t with one queue on all three, led by a."""
    tables = Tables()
    tables.begin()
    for broker in "abc":
        tables.register(broker)
    tables.create(**config)
    return tables
