"""Events on their way to the log: what repeats is counted, and what is too much for a second."""

from __future__ import annotations

import logging
import threading

import pytest

from logboom.wire.actor import Instant, Note, note
from logboom.wire.event_log import EventWriter, log_event, logger_name, work_for
from logboom.wire.event_table import EVENTS
from logboom.wire.log_format import EventLine
from logboom.wire.log_levels import LogLevels


class Log:
    """A writer at a clock of its own, and what it wrote."""

    def __init__(self, caplog: pytest.LogCaptureFixture, kind: str = "name-server") -> None:
        caplog.set_level(logging.INFO, "logboom")
        self.writer = EventWriter("node-1", kind)
        self._caplog = caplog

    def at(self, seconds: float, *notes: Note) -> list[str]:
        """What is written of these notes at that time."""
        self.writer.write(notes, Instant(seconds, int(1000 * seconds)))
        return self.take()

    def take(self) -> list[str]:
        lines = self._caplog.messages
        found = list(lines)
        self._caplog.clear()
        return found


@pytest.fixture(name="log")
def _log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


def fenced(broker: str, epoch: int = 1) -> Note:
    return note("broker_fenced", broker=broker, instance_epoch=epoch)


def test_the_first_is_written_at_once_and_repetitions_as_a_number(log: Log) -> None:
    assert log.at(1.0, fenced("a")) == ["broker_fenced broker=a instance_epoch=1"]
    assert log.at(1.2, fenced("a", 2), fenced("a", 3)) == []
    assert log.at(1.9) == []
    # With the details of the last.
    assert log.at(2.1) == ["broker_fenced broker=a instance_epoch=3 repeated=2"]
    assert log.at(10.0) == []
    assert log.at(11.0, fenced("a", 4)) == ["broker_fenced broker=a instance_epoch=4"]


def test_another_broker_is_no_repetition(log: Log) -> None:
    assert len(log.at(1.0, fenced("a"), fenced("b"))) == 2
    assert log.at(2.5, fenced("a", 2)) == ["broker_fenced broker=a instance_epoch=2"]


def test_one_that_was_held_back_has_its_own_time(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.at(1.0, fenced("a"))
    log.at(1.25, fenced("a", 2))
    log.writer.write([], Instant(2.5, 2_500))
    (record,) = caplog.records
    assert isinstance(record.msg, EventLine)
    assert (record.msg.wall_ms, record.msg.times) == (1_250, 1)


def test_what_is_rare_and_lasts_is_written_seldom(log: Log) -> None:
    stuck = note("move_stuck", topic="t", queue=0, seconds=30)
    lines = [line for second in range(1, 1_202) for line in log.at(second, stuck)]
    assert [line.rpartition(" ")[2] for line in lines] == [
        "seconds=30",
        "repeated=599",
        "repeated=600",
    ]


def test_a_second_has_a_bounded_number_of_lines_and_nothing_is_lost(log: Log) -> None:
    many = [note("election", topic="t", queue=number, epoch=1) for number in range(5_000)]
    assert len(log.at(1.0, *many)) == EVENTS["election"].most_per_s
    assert log.at(2.1) == [f"election repeated={5_000 - EVENTS['election'].most_per_s}"]


def test_what_stands_for_many_already_is_written_as_it_is(log: Log) -> None:
    assert log.at(1.0, Note("election", {}, 70)) == ["election repeated=70"]


def test_what_waits_is_written_when_the_node_ends(log: Log) -> None:
    log.at(1.0, fenced("a"))
    log.at(1.1, fenced("a", 2), fenced("a", 3))
    log.writer.flush()
    assert log.take() == ["broker_fenced broker=a instance_epoch=3 repeated=2"]


def test_strangers_are_written_once_a_second_per_address(log: Log) -> None:
    lines = []
    for at in range(1_000):
        lines += log.at(1 + at / 200, note("key_refused", address=f"10.0.0.{at % 2}", text="no"))
    # Five seconds, two addresses.
    assert 8 <= len(lines) <= 12


def test_fields_are_in_the_order_of_the_table_and_none_is_left_out(log: Log) -> None:
    made = note("election", epoch=7, queue=1, was=None, topic="t", leader="b")
    assert log.at(1.0, made) == ["election topic=t queue=1 leader=b epoch=7"]


def test_levels_follow_the_settings_at_once(log: Log) -> None:
    levels = LogLevels()
    try:
        levels.follow({"logboom.metadata.state": "error"})
        assert log.at(1.0, fenced("a")) == []
        levels.follow({"logboom.metadata.state": "warning"})
        assert len(log.at(5.0, fenced("a"))) == 1
        assert log.at(9.0, note("broker_registered", broker="a")) == []
    finally:
        levels.follow({})
    assert len(log.at(12.0, note("broker_registered", broker="a"))) == 1


def test_events_of_any_node_are_below_its_own_portion() -> None:
    started = EVENTS["node_started"]
    assert logger_name(started, "broker") == "logboom.nodes.server"
    assert logger_name(started, "name-server") == "logboom.metadata.server"


def test_what_happens_in_skins_names_the_node_of_its_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "logboom")

    def run(node: str) -> None:
        work_for(node, "broker")
        log_event("store_reopened", folder=node)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("b-1", "b-2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [record.msg for record in caplog.records]
    told = [(line.node, line.fields["folder"]) for line in lines if isinstance(line, EventLine)]
    assert sorted(told) == [("b-1", "b-1"), ("b-2", "b-2")]


def test_an_error_brings_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise KeyError(7)
    except KeyError as error:
        log_event("command_failed", raised=error, command="X", error=repr(error))
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError
