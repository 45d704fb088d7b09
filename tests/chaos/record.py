"""What clients saw, as runs of messages in a row: compact enough for tens of millions.

Workers write one JSON array a line; `load` reads a whole folder of them. Times are monotonic
seconds of this machine, the same in every process.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Final, TypeAlias

import msgspec
from msgspec import Struct

from tests.sim.judges.logs import Stream


class Sent(Struct, tag="s", array_like=True, frozen=True):
    """How many messages of a stream were sent in all; written when its producer ends."""

    producer: str
    queue: int
    count: int


class Acked(Struct, tag="a", array_like=True, frozen=True):
    """Messages of a stream that were acknowledged, and where they lie."""

    producer: str
    queue: int
    first: int
    offset: int
    count: int
    sent_at: float
    at: float


class Failed(Struct, tag="f", array_like=True, frozen=True):
    """Messages whose send was given up: they may be stored or not."""

    producer: str
    queue: int
    first: int
    count: int
    at: float
    error: str


class Read(Struct, tag="r", array_like=True, frozen=True):
    """Messages that a reader was given."""

    reader: str
    queue: int
    offset: int
    producer: str
    sent_to: int
    first: int
    count: int
    at: float

    @property
    def stream(self) -> Stream:
        """What the messages say of themselves."""
        return Stream(self.producer, self.sent_to)


RETRIES: Final = -1
"""Instead of a queue's number: the queue of the group's retries."""


class Consumed(Struct, tag="c", array_like=True, frozen=True):
    """Messages that a member of the group was given; written before it says what came of it."""

    member: str
    queue: int
    """`RETRIES`: of the group's retries, where the messages are copies of those that failed."""
    owner_epoch: int
    """In which it has the queue; -1: it has it no more."""
    offset: int
    producer: str
    sent_to: int
    first: int
    count: int
    failed: bool
    """Whether the member could do nothing with them: they are to come again as copies."""
    at: float
    """When it was given them."""

    @property
    def stream(self) -> Stream:
        """What the messages say of themselves."""
        return Stream(self.producer, self.sent_to)


class Dead(Struct, tag="d", array_like=True, frozen=True):
    """A message among the dead letters of the group."""

    producer: str
    sent_to: int
    number: int
    at: float

    @property
    def name(self) -> tuple[Stream, int]:
        """Which message it is a copy of."""
        return Stream(self.producer, self.sent_to), self.number


class Committed(Struct, tag="o", array_like=True, frozen=True):
    """The group's offset in a queue, as the name servers' log had it by then."""

    queue: int
    offset: int
    at: float


class Fate(Struct, tag="m", array_like=True, frozen=True):
    """What became of a member of the group."""

    member: str
    what: str
    """A constant of `tests.chaos.fates`."""
    at: float


class Handed(Struct, tag="h", array_like=True, frozen=True):
    """Messages that a consumer of a subscription was handed; written before it settles them."""

    member: str
    subscription: str
    queue: int
    offset: int
    producer: str
    sent_to: int
    first: int
    count: int
    failed: bool
    """Whether it gives them back."""
    at: float

    @property
    def stream(self) -> Stream:
        """What the messages say of themselves."""
        return Stream(self.producer, self.sent_to)


class Confirmed(Struct, tag="k", array_like=True, frozen=True):
    """The brokers have confirmed all that a consumer acknowledged before a time."""

    member: str
    before: float
    at: float


class TooLate(Struct, tag="t", array_like=True, frozen=True):
    """Acknowledgements of a consumer that its leader refused: the messages were not its own any
    more."""

    member: str
    queue: int
    spans: list[tuple[int, int]]
    at: float


class Befell(Struct, tag="b", array_like=True, frozen=True):
    """What became of a consumer of a subscription; as `Fate` of members."""

    member: str
    what: str
    at: float


class Wrong(Struct, tag="w", array_like=True, frozen=True):
    """Something that a client must never see, in words."""

    who: str
    property: str
    detail: str
    at: float


Record: TypeAlias = (
    Sent
    | Acked
    | Failed
    | Read
    | Consumed
    | Dead
    | Committed
    | Fate
    | Handed
    | Confirmed
    | TooLate
    | Befell
    | Wrong
)


class Writer:
    """Appends records to a file; one thread."""

    def __init__(self, path: Path, *, at_once: bool = False) -> None:
        """`at_once`: what is written is there, also if the process is killed right after."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("wb", buffering=0 if at_once else -1)
        self._encoder = msgspec.json.Encoder()

    def write(self, record: Record) -> None:
        """Append one."""
        self._file.write(self._encoder.encode(record) + b"\n")

    def close(self) -> None:
        """Write out what is left."""
        self._file.close()


def load(folder: Path) -> list[Record]:
    """All records of all workers."""
    decoder = msgspec.json.Decoder[Record](Record)
    found: list[Record] = []
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as lines:
            # The last line of a worker that died may be torn.
            found += [decoder.decode(line) for line in lines if line.endswith(b"\n")]
    return found
