"""Clients of the wire that park, decide and wait, one transaction after the other.

They keep no windows: a send that is repeated parks again. Only one place of each is listed, so that
every lost answer leaves a zombie behind, which nobody may ever read (T1).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, TypeAlias

from logboom.wire.base import WireMessage
from logboom.wire.batch import encode_batch
from logboom.wire.commands import CommandResult
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.messages import AnyMessage, Ok, Produce, Produced
from logboom.wire.transactions import (
    HALF,
    AwaitDecided,
    ConsumedOffset,
    Decide,
    EndHalf,
    EntryPosition,
    HalfEnded,
    ListUndecided,
    OpenApplication,
    ParkedBatches,
    TransactionId,
    TransactionOffsetCommit,
    UndecidedListed,
)
from tests.sim.cast.wire_client import WireClient
from tests.sim.judges.history import History, Queue
from tests.sim.world.trace import BrokenProperty

Plan: TypeAlias = Literal["commit", "abort", "abandon", "race", "rivals", "leave", "fence"]
"""What becomes of a transaction: it is committed; aborted; left alone; committed and aborted at
once; two attempts are committed at once; a part of what is parked is not listed; its producer is
replaced before it commits."""
PLANS: Final[dict[Plan, float]] = {
    "commit": 6,
    "abort": 1.5,
    "abandon": 1,
    "race": 1.5,
    "rivals": 1.5,
    "leave": 1.5,
    "fence": 0.7,
}
RETRY_S: Final = 0.15
ANSWER_S: Final = 2.0
GROUP: Final = "exactly"
REFUSED: Final = ("TRANSACTION_ABORTED", "TRANSACTION_CLOSED")
SHOP: Final = "shop"


class AskingClient(WireClient):
    """Asks the leader of a queue, until it answers."""

    def ask_leader(
        self,
        queue: Queue,
        make: Callable[[], WireMessage],
        answered: Callable[[AnyMessage | None, LogboomError | None, str], None],
        batches: Sequence[Frame] = (),
    ) -> None:
        """`answered` is called once, with an answer or a final error, and who gave it."""
        leader = self.routes.leader(*queue) if queue.topic in self.routes.topics else None
        again = partial(self.ask_leader, queue, make, answered, batches)
        if leader is None:
            self.later(RETRY_S, again)
            return

        def done(
            message: AnyMessage | None, _batches: Sequence[Frame], error: LogboomError | None
        ) -> None:
            if error is not None and error.retryable:
                self.later(RETRY_S * self.rng.uniform(0.5, 2), again)
            else:
                answered(message, error, leader[0])

        self.request(leader[1], make(), done, ANSWER_S, batches)


@dataclass(slots=True, eq=False)
class Attempt:
    """One try of a sequence."""

    transaction: TransactionId
    values: dict[Queue, list[bytes]]
    places: dict[bytes, EntryPosition] = field(default_factory=dict)
    waiting: int = 0
    """Batches without an outcome."""
    refused: bool = False
    """It was aborted before all was parked."""


@dataclass(slots=True, eq=False)
class Committed:
    """What a commit has made true for ever."""

    number: int
    app_id: str
    sequence: int
    values: dict[Queue, list[bytes]]
    """What each queue releases, in this order."""
    consumed: int
    """The offset that was committed with it."""


class TransactionClient(AskingClient):
    """Works under one application id."""

    def __init__(
        self,
        name: str,
        endpoints: Sequence[str],
        rng: random.Random,
        history: History,
        count: Callable[[str], None],
        released: Callable[[str, Queue, list[bytes]], None],
        place: int,
        fenced: bool,
    ) -> None:
        """`count` adds to the totals; `released` is told what a leader says it has released.
        `place`: the queue of "safe" that it consumes. `fenced`: it goes by producer epochs."""
        super().__init__(name, endpoints, rng)
        self._kept = history
        self._count = count
        self._released = released
        self._place = place
        self._epoch = -1
        self._fenced = fenced
        self._opened = False
        self._attempts = 0
        self._values = 0
        self._sequence = 0
        self._consumed = 0
        self.unsettled = 0
        """Decisions and waits without an answer."""
        self.busy = False
        self.committed: list[Committed] = []

    # -- one transaction ---------------------------------------------------------------------

    def work(self, queues: Sequence[Queue]) -> None:
        """Begin a transaction in some of these queues, if none is under way."""
        if self.busy or not queues[0].topic in self.routes.topics:
            return
        self.busy = True
        if self._fenced and not self._opened:
            self._open(partial(self._begin, queues))
        else:
            self._begin(queues)

    def _open(self, then: Callable[[], None]) -> None:
        def opened(result: CommandResult) -> None:
            assert isinstance(result.value, list), result
            self._opened = True
            self._epoch = int(result.value[0])
            then()

        self.propose(OpenApplication(self.name, 0), opened)

    def _begin(self, queues: Sequence[Queue]) -> None:
        (plan,) = self.rng.choices(list(PLANS), list(PLANS.values()))
        if plan == "fence" and not self._fenced:
            plan = "commit"
        attempts = [self._attempt(queues) for _ in range(1 + (plan == "rivals"))]
        if plan == "leave":
            self._attempt_parks(self._attempt(queues), lambda: None)
        left = [len(attempts)]

        def parked() -> None:
            left[0] -= 1
            if not left[0]:
                self._decide(plan, attempts)

        for attempt in attempts:
            self._attempt_parks(attempt, parked)

    def _attempt(self, queues: Sequence[Queue]) -> Attempt:
        self._attempts += 1
        chosen = self.rng.sample(list(queues), self.rng.randint(1, 3))
        values: dict[Queue, list[bytes]] = {}
        for queue in chosen:
            values[queue] = []
            for _ in range(self.rng.choice((1, 2, 3, 7))):
                values[queue].append(f"{self.name}/{self._values}".encode())
                self._values += 1
        return Attempt(TransactionId(self.name, self._sequence, self._attempts), values)

    def _attempt_parks(self, attempt: Attempt, parked: Callable[[], None]) -> None:
        attempt.waiting = sum(map(len, attempt.values.values()))
        for queue, values in attempt.values.items():
            for value in values:
                self._kept.promise_nothing(queue, value)
                self._park(attempt, queue, value, parked)

    def _park(
        self, attempt: Attempt, queue: Queue, value: bytes, parked: Callable[[], None]
    ) -> None:
        def answered(message: AnyMessage | None, error: LogboomError | None, _who: str) -> None:
            if isinstance(message, Produced):
                attempt.places[value] = (message.base_offset, message.side)
            elif error is not None and error.code in REFUSED:
                self._count("parks refused")
                attempt.refused = True
            else:
                raise BrokenProperty("what is sent is parked", f"{queue} {value!r}: {error}")
            attempt.waiting -= 1
            if not attempt.waiting:
                parked()

        wait_ms = int(ANSWER_S * 1000)
        make = partial(Produce, 0, wait_ms, *queue, "all", transaction=attempt.transaction)
        self.ask_leader(queue, make, answered, [encode_batch([value], now_ms=self.now.wall_ms)])

    # -- decisions ---------------------------------------------------------------------------

    def _decide(self, plan: Plan, attempts: list[Attempt]) -> None:
        first = attempts[0]
        self._count(f"plan: {plan}")
        self.unsettled += 1
        match plan:
            case "abandon":
                pass
            case "abort":
                self._abort(first)
            case "race":
                for decide in self.rng.sample([self._commit, self._abort], 2):
                    decide(first)
            case "fence":
                before = self._epoch
                self.unsettled += 1
                self._open(partial(self._too_late, first, before))
            case _:
                for attempt in attempts:
                    self._commit(attempt)
        self._settled()

    def _settled(self) -> None:
        self.unsettled -= 1
        if not self.unsettled:
            self.busy = False

    def _command(self, attempt: Attempt, *, commit: bool) -> Decide:
        transaction = attempt.transaction
        parked = []
        for queue, values in attempt.values.items():
            topic = self.routes.topics[queue.topic]
            places = [attempt.places[value] for value in values if commit]
            parked.append(ParkedBatches(topic.id, queue.number, places))
        offset = self._consumed = self._consumed + 1
        safe = self.routes.topics["safe"].id
        consumed = [
            TransactionOffsetCommit(
                GROUP, "", 0, [ConsumedOffset(safe, self._place, 0, offset, offset)]
            )
        ]
        return Decide(
            self.name,
            self._epoch,
            transaction.sequence,
            transaction.attempt,
            commit,
            parked,
            consumed if commit else [],
            self.now.wall_ms,
        )

    def _commit(self, attempt: Attempt) -> None:
        if attempt.refused:
            self._abort(attempt)
            return
        self.unsettled += 1
        command = self._command(attempt, commit=True)

        def decided(result: CommandResult) -> None:
            value = result.value
            if result.code == "TRANSACTION_ABORTED":
                self._count("commits refused")
            elif isinstance(value, list) and value[0] == "commit" and value[2] == "first":
                self._committed(attempt, command, int(value[1]))
            elif isinstance(value, list) and value[:1] == ["commit"]:
                self._count("commits come second")
            else:
                raise BrokenProperty("commits are decided", f"{command}: {result}")
            self._settled()

        self.propose(command, decided)

    def _committed(self, attempt: Attempt, command: Decide, number: int) -> None:
        self._count("transactions committed")
        transaction = attempt.transaction
        offset = command.consumed[0].offsets[0].offset
        self.committed.append(
            Committed(number, self.name, transaction.sequence, attempt.values, offset)
        )
        self._sequence = max(self._sequence, transaction.sequence + 1)
        for queue in attempt.values:
            self._await(queue, number, attempt.values[queue])

    def _abort(self, attempt: Attempt) -> None:
        self.unsettled += 1
        command = self._command(attempt, commit=False)

        def decided(result: CommandResult) -> None:
            value = result.value
            if not isinstance(value, list):
                raise BrokenProperty("aborts are decided", f"{command}: {result}")
            self._count(f"aborts: {value[0]}")
            for queue in attempt.values:
                self._await(queue, int(value[1]), [])
            self._settled()

        self.propose(command, decided)

    def _too_late(self, attempt: Attempt, epoch: int) -> None:
        """Another producer was opened: the commit of the one before must come to nothing."""
        if attempt.refused:
            self._settled()
            return
        current, self._epoch = self._epoch, epoch
        command = self._command(attempt, commit=True)
        self._epoch = current

        def decided(result: CommandResult) -> None:
            if "FENCED" not in result.code:
                raise BrokenProperty("who was replaced is fenced", f"{command}: {result}")
            self._count("producers fenced")
            self._settled()

        self.propose(command, decided)

    def _await(self, queue: Queue, number: int, values: list[bytes]) -> None:
        self.unsettled += 1

        def answered(message: AnyMessage | None, error: LogboomError | None, who: str) -> None:
            if not isinstance(message, Ok):
                raise BrokenProperty("decisions are carried out", f"{queue} {number}: {error}")
            self._count("decisions awaited")
            self._released(who, queue, values)
            self._settled()

        wait_ms = int(ANSWER_S * 1000)
        self.ask_leader(queue, partial(AwaitDecided, 0, wait_ms, *queue, number), answered)


class HalfClient(AskingClient):
    """Sends half messages, and decides on them at their leader, at times twice and differently."""

    def __init__(
        self,
        name: str,
        endpoints: Sequence[str],
        rng: random.Random,
        history: History,
        count: Callable[[str], None],
    ) -> None:
        super().__init__(name, endpoints, rng)
        self._kept = history
        self._count = count
        self._values = 0
        self.unsettled = 0
        self.outcomes: dict[bytes, set[str]] = {}
        """Half message → what its decisions were answered with."""
        self.queues: dict[bytes, Queue] = {}

    def work(self, queue: Queue) -> None:
        """Send one more."""
        if queue.topic not in self.routes.topics:
            return
        value = f"{self.name}/{self._values}".encode()
        self._values += 1
        self.queues[value] = queue
        self.outcomes[value] = set()
        self._kept.promise_nothing(queue, value)
        self.unsettled += 1

        def answered(message: AnyMessage | None, error: LogboomError | None, _who: str) -> None:
            if not isinstance(message, Produced):
                raise BrokenProperty("half messages are parked", f"{queue}: {error}")
            plans: list[list[bool]] = [[True], [True], [False], [True, False], [True, True], []]
            for commit in self.rng.choice(plans):
                self._end_half(queue, value, (message.base_offset, message.side), commit)
            self.unsettled -= 1

        wait_ms = int(ANSWER_S * 1000)
        whose = TransactionId(SHOP, HALF, 0)
        make = partial(Produce, 0, wait_ms, *queue, "all", transaction=whose)
        self.ask_leader(queue, make, answered, [encode_batch([value], now_ms=self.now.wall_ms)])

    def _end_half(self, queue: Queue, value: bytes, place: EntryPosition, commit: bool) -> None:
        self.unsettled += 1

        def answered(message: AnyMessage | None, error: LogboomError | None, _who: str) -> None:
            if not isinstance(message, HalfEnded):
                raise BrokenProperty("half messages end", f"{queue} {place}: {error}")
            if value:
                self._count(f"half {message.outcome}")
                self.outcomes[value].add(message.outcome)
            self.unsettled -= 1

        make = partial(EndHalf, 0, int(ANSWER_S * 1000), *queue, *place, commit)
        self.ask_leader(queue, make, answered)

    def clean(self) -> None:
        """A person looks for half messages that nobody has decided, and aborts them."""
        for broker in self.routes.brokers.values():
            self.request(broker.endpoint, ListUndecided(0, 1_000, SHOP), self._listed, ANSWER_S)

    def _listed(
        self, message: AnyMessage | None, _batches: Sequence[Frame], _error: LogboomError | None
    ) -> None:
        if isinstance(message, UndecidedListed):
            for half in message.parked:
                self._count("half messages found")
                queue = Queue(half.topic, half.queue)
                self._end_half(queue, b"", (half.offset, half.side), commit=False)
