"""The demo's verifier objects to each thing that can go wrong, and to nothing else."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from demo.flights import Flight
from demo.verifier import CarrierDelay, MessagePosition, Verifier, VerifierReport


class Read(NamedTuple):
    """A message as a consumer gives it."""

    queue: int
    offset: int
    key: bytes
    value: bytes
    timestamp_ms: int


CLEAN = VerifierReport(lost=[], doubled=[], out_of_order=[], strangers=[], gaps=[])
QUEUES = {b"AA": 0, b"UA": 1}
DELAYS = [2, 4, None, -1, 6, 11, None, 0]


def flights_sent() -> list[Flight]:
    """Eight flights, of two carriers in turn."""
    sent = []
    for row, delay in enumerate(DELAYS):
        key = (b"AA", b"UA")[row % 2]
        value = b'{"carrier":"%s","flight":%d,"dep_delay":%s}' % (
            key,
            row,
            b"null" if delay is None else b"%d" % delay,
        )
        sent.append(Flight(row, key, value, 1_000 * row))
    return sent


def stored(flights: Sequence[Flight]) -> list[Read]:
    """The messages of a consumer when the queues hold these flights in this order."""
    ends = dict.fromkeys(QUEUES.values(), 0)
    messages = []
    for flight in flights:
        queue = QUEUES[flight.key]
        messages.append(Read(queue, ends[queue], flight.key, flight.value, flight.timestamp_ms))
        ends[queue] += 1
    return messages


def verdict(sent: Sequence[Flight], messages: Sequence[Read]) -> VerifierReport:
    """What a verifier says of these messages."""
    verifier = Verifier(sent)
    verifier.see(messages)
    return verifier.verdict()


def test_every_flight_once_and_in_order_is_clean() -> None:
    sent = flights_sent()
    verifier = Verifier(sent)
    assert not verifier.complete
    verifier.see(stored(sent))
    assert verifier.verdict() == CLEAN
    assert verifier.verdict().clean
    assert verifier.complete
    assert verifier.read_count == len(sent)


def test_queues_may_be_read_in_any_order_and_in_parts() -> None:
    sent = flights_sent()
    verifier = Verifier(sent)
    messages = sorted(stored(sent), key=lambda message: -message.queue)
    for message in messages:
        verifier.see([message])
    assert verifier.verdict() == CLEAN


@pytest.mark.parametrize("row", range(len(DELAYS)))
def test_a_flight_missing_from_the_log_is_lost(row: int) -> None:
    sent = flights_sent()
    found = verdict(sent, stored([flight for flight in sent if flight.row != row]))
    assert found == CLEAN._replace(lost=[sent[row]])
    assert not found.clean


@pytest.mark.parametrize("row", range(len(DELAYS)))
def test_a_flight_stored_twice_is_doubled(row: int) -> None:
    sent = flights_sent()
    found = verdict(sent, stored([*sent[: row + 1], sent[row], *sent[row + 1 :]]))
    assert found == CLEAN._replace(doubled=[sent[row]])
    assert not found.clean


@pytest.mark.parametrize("row", range(len(DELAYS) - 2))
def test_two_flights_of_a_key_swapped_are_out_of_order(row: int) -> None:
    sent = flights_sent()
    swapped = list(sent)
    swapped[row], swapped[row + 2] = swapped[row + 2], swapped[row]
    found = verdict(sent, stored(swapped))
    assert found == CLEAN._replace(out_of_order=[sent[row]])
    assert not found.clean


def test_flights_of_different_keys_have_no_order() -> None:
    sent = flights_sent()
    assert verdict(sent, stored([sent[1], sent[0], *sent[2:]])) == CLEAN


def test_a_message_delivered_twice_is_doubled_and_its_offset_is_wrong() -> None:
    sent = flights_sent()
    messages = stored(sent)
    found = verdict(sent, [*messages, messages[-1]])
    assert found == CLEAN._replace(doubled=[sent[7]], gaps=[MessagePosition(1, 3)])


def test_a_message_skipped_by_the_reader_is_lost_and_leaves_a_gap() -> None:
    sent = flights_sent()
    messages = stored(sent)
    found = verdict(sent, [*messages[:2], *messages[3:]])
    assert found == CLEAN._replace(lost=[sent[2]], gaps=[MessagePosition(0, 2)])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"value": b'{"carrier":"AA"}'}, id="value"),
        pytest.param({"key": b"UA"}, id="key"),
        pytest.param({"timestamp_ms": 1}, id="timestamp"),
    ],
)
def test_a_changed_message_is_a_stranger_and_its_flight_lost(change: dict[str, object]) -> None:
    sent = flights_sent()
    messages = stored(sent)
    altered = Read(**{**messages[0]._asdict(), **change})
    found = verdict(sent, [altered, *messages[1:]])
    assert found == CLEAN._replace(lost=[sent[0]], strangers=[MessagePosition(0, 0)])
    assert not found.clean


def test_flights_that_cannot_be_told_apart_are_refused() -> None:
    sent = flights_sent()
    with pytest.raises(ValueError, match="1 flights have the value of another"):
        Verifier([*sent, sent[3]])


def test_the_table_counts_cancelled_flights_but_not_their_delay() -> None:
    sent = flights_sent()
    verifier = Verifier(sent)
    verifier.see(stored(sent[:-1]))
    assert verifier.carriers() == [
        CarrierDelay("AA", flights=4, mean_delay_minutes=4.0),
        CarrierDelay("UA", flights=3, mean_delay_minutes=14 / 3),
    ]


def test_a_carrier_whose_flights_were_all_cancelled_has_no_mean() -> None:
    sent = flights_sent()[2:3]
    verifier = Verifier(sent)
    verifier.see(stored(sent))
    assert verifier.carriers() == [CarrierDelay("AA", flights=1, mean_delay_minutes=None)]
