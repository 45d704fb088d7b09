"""A check that every flight sent was read once, unchanged, and in order per key.

A flight is identified by the bytes of its value (every row of the data differs), so a changed byte
is detected too, as an unknown message and a lost flight. The order is that of the rows within each
key, because a key stays in one queue and a queue keeps the order in which it was sent.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from demo.flights import Flight


class ReadMessage(Protocol):
    """The part of a consumer's message that the verifier needs."""

    @property
    def queue(self) -> int:
        """The queue it was read from."""

    @property
    def offset(self) -> int:
        """Its offset there."""

    @property
    def key(self) -> bytes | None:
        """The carrier."""

    @property
    def value(self) -> bytes | None:
        """The flight as JSON."""

    @property
    def timestamp_ms(self) -> int:
        """The scheduled hour."""


class MessagePosition(NamedTuple):
    """The position of a message that was read."""

    queue: int
    offset: int


class CarrierDelay(NamedTuple):
    """One line of the demo's table."""

    carrier: str
    flights: int
    """Flights read, including cancelled ones."""
    mean_delay_minutes: float | None
    """The mean departure delay of flights that were not cancelled; None if there are none."""


class VerifierReport(NamedTuple):
    """The errors among the messages read. All lists are empty if there were none."""

    lost: list[Flight]
    """Sent and never read."""
    doubled: list[Flight]
    """Read again, listed once per repetition."""
    out_of_order: list[Flight]
    """Read after a later flight of the same key."""
    strangers: list[MessagePosition]
    """Read, but never sent with that key, value and timestamp."""
    gaps: list[MessagePosition]
    """Not read at the offset after that of the previous message of its queue."""

    @property
    def clean(self) -> bool:
        """True if there was no error."""
        return not any(self)


class Verifier:
    """A comparison of the messages read with the flights sent."""

    def __init__(self, sent: Sequence[Flight]) -> None:
        """Expect the flights of `sent`, whose rows grow in the order in which they were sent.

        Raises:
            ValueError: two of them have the same value, so they cannot be told apart.
        """
        self._sent = {flight.value: flight for flight in sent}
        if len(self._sent) != len(sent):
            raise ValueError(f"{len(sent) - len(self._sent)} flights have the value of another")
        self._unread = dict(self._sent)
        self._last_row: dict[bytes, int] = {}
        self._next_offset: dict[int, int] = {}
        self._delays: dict[str, list[int]] = {}
        self._cancelled: dict[str, int] = {}
        self._doubled: list[Flight] = []
        self._out_of_order: list[Flight] = []
        self._strangers: list[MessagePosition] = []
        self._gaps: list[MessagePosition] = []

    @property
    def complete(self) -> bool:
        """True if every flight has been read at least once, so that the reader may stop."""
        return not self._unread

    @property
    def read_count(self) -> int:
        """The number of different flights that have been read."""
        return len(self._sent) - len(self._unread)

    def see(self, messages: Iterable[ReadMessage]) -> None:
        """Check messages in the order in which they were read, each queue from its offset 0."""
        for message in messages:
            queue, offset = message.queue, message.offset
            if offset != self._next_offset.get(queue, 0):
                self._gaps.append(MessagePosition(queue, offset))
            self._next_offset[queue] = offset + 1
            flight = self._sent.get(message.value or b"")
            if (
                flight is None
                or message.key != flight.key
                or message.timestamp_ms != flight.timestamp_ms
            ):
                self._strangers.append(MessagePosition(queue, offset))
            elif self._unread.pop(flight.value, None) is None:
                self._doubled.append(flight)
            else:
                self._see_first(flight)

    def _see_first(self, flight: Flight) -> None:
        if flight.row < self._last_row.get(flight.key, -1):
            self._out_of_order.append(flight)
        else:
            self._last_row[flight.key] = flight.row
        record = _decode(flight.value)
        if record.dep_delay is None:
            self._cancelled[record.carrier] = self._cancelled.get(record.carrier, 0) + 1
        else:
            self._delays.setdefault(record.carrier, []).append(record.dep_delay)

    def verdict(self) -> VerifierReport:
        """Return the errors among all messages seen so far."""
        return VerifierReport(
            lost=list(self._unread.values()),
            doubled=self._doubled,
            out_of_order=self._out_of_order,
            strangers=self._strangers,
            gaps=self._gaps,
        )

    def carriers(self) -> list[CarrierDelay]:
        """Return the flights read and their mean delay per carrier, most flights first."""
        lines = []
        for carrier in self._delays.keys() | self._cancelled.keys():
            delays = self._delays.get(carrier, [])
            lines.append(
                CarrierDelay(
                    carrier,
                    len(delays) + self._cancelled.get(carrier, 0),
                    sum(delays) / len(delays) if delays else None,
                )
            )
        return sorted(lines, key=lambda line: (-line.flights, line.carrier))


class _Record(msgspec.Struct):
    """The two columns of a flight that the table needs."""

    carrier: str
    dep_delay: int | None


_decode = msgspec.json.Decoder(_Record).decode
