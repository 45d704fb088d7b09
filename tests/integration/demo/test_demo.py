"""The demo's whole job on a few flights: a broker and a consumer die in the middle, nothing is amiss."""

import msgspec

from demo.flights import Flight
from demo.scenario import Steps, run_scenario

FLIGHTS = 20_000
CARRIERS = (b"UA", b"AA", b"B6", b"DL", b"EV")


class Heard(Steps):
    """Keeps what the demo told."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.lines: list[str] = []

    def step(self, text: str, total: int | None) -> None:
        """Keep the step."""
        self.steps.append(text)

    def say(self, text: str) -> None:
        """Keep the line."""
        self.lines.append(text)


def flight(row: int) -> Flight:
    """A flight like those of the data."""
    carrier = CARRIERS[row * 7 % len(CARRIERS)]
    value = msgspec.json.encode({"carrier": carrier.decode(), "dep_delay": row % 60, "row": row})
    return Flight(row, carrier, value, 1_357_000_000_000 + row)


def test_every_flight_survives_a_killed_broker_and_consumer() -> None:
    heard = Heard()
    report = run_scenario([flight(row) for row in range(FLIGHTS)], None, heard, tuple)
    assert report.verdict.clean, report.verdict
    assert sum(line.flights for line in report.carriers) == FLIGHTS
    assert len(report.then) == 3  # endpoints of brokers that are still up
    assert report.killed.startswith("broker-")
    assert report.write_pause_s > 0
    assert report.back_s > 0
    assert report.again >= 0
    assert any("consumers" in line and "kill -9" in line for line in heard.lines)
    assert any(report.killed in line and "kill -9" in line for line in heard.lines)
    assert heard.steps[0].startswith("starting")
    assert heard.steps[-1].startswith("stopping")
