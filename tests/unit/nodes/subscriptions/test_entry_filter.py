"""What is delivered of an entry: in Pulsar's order, each decision counted, nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from logboom.nodes.subscriptions.dispatch_events import Entry, SubscriptionConfig
from logboom.nodes.subscriptions.entry_filter import EntryFilter, Said, load
from logboom.wire.actor import Note
from logboom.wire.errors import StartError
from logboom.wire.head import ControlKind
from logboom.wire.stats import Statistics
from tests.unit.nodes.subscriptions.dispatch_bench import Bench


def bench_of(entry_filter: EntryFilter, kind: str = "shared") -> Bench:
    """A bench with a filter."""
    settings = SubscriptionConfig(kind="key_shared" if kind == "key_shared" else "shared")
    bench = Bench(settings, entry_filter)
    bench.attach("one", 1_000)
    return bench


def test_tags_that_are_not_wanted_count_as_acknowledged() -> None:
    stats = Statistics()
    bench = bench_of(EntryFilter("late", (), stats))
    bench.append(b"a", b"b", b"c", tags=["late", "early", None])
    bench.append(b"d", tags=["early"])
    bench.grant("one", 0)
    assert bench.got["one"] == [0]
    assert stats.counters["dispatch_filtered"] == 3
    bench.ack("one", 0)
    assert bench.acked.floor == 4


def test_control_entries_and_what_is_not_due_take_no_permits() -> None:
    stats = Statistics()
    bench = bench_of(EntryFilter("", (), stats))
    bench.log.control(ControlKind.PARKED)
    bench.log.control(ControlKind.CURSOR_DELTA)
    bench.append(b"a")
    assert bench.got["one"] == [0]
    assert stats.counters["dispatch_not_due"] == 1
    assert stats.counters["dispatch_control"] == 1


def test_a_batch_that_nobody_can_open_holds_nothing_up() -> None:
    stats = Statistics()
    bench = bench_of(EntryFilter("", (), stats), "key_shared")
    bench.log.append([b"a", b"b"])
    bench.log.damage()
    bench.append(b"c")
    assert bench.got["one"] == [2]
    assert bench.acked.floor == 2
    assert stats.counters["dispatch_damaged"] == 2


def test_plug_ins_accept_reject_and_reschedule() -> None:
    stats = Statistics()
    answers: list[Said] = ["accept", "reject", "reschedule", "accept"]

    def plug_in(entry: Entry) -> Said:
        return answers.pop(0)

    bench = bench_of(EntryFilter("", [plug_in], stats))
    for key in (b"a", b"b", b"c"):
        bench.append(key)
        bench.grant("one", 0)
    assert bench.got["one"] == [0]
    assert list(bench.acked.spans()) == [(1, 2)]
    bench.wait(1.0)
    assert bench.got["one"] == [0, 2]
    assert (stats.counters["dispatch_rejected"], stats.counters["dispatch_rescheduled"]) == (1, 1)


def test_a_plug_in_that_raises_loses_nothing_and_keeps_keys_in_order() -> None:
    failing = [True]

    def plug_in(entry: Entry) -> Said:
        if failing[0] and entry.base == 1:
            raise ZeroDivisionError
        return "accept"

    for kind in ("shared", "key_shared"):
        failing[0] = True
        stats = Statistics()
        bench = bench_of(EntryFilter("", [plug_in], stats), kind)
        for key in (b"a", b"b", b"b"):
            bench.append(key)
            bench.grant("one", 0)
        assert 1 not in bench.got["one"]
        assert stats.counters["dispatch_plug_in_errors"] == 1
        bench.wait(5.0)
        failing[0] = False
        bench.finish()
        assert sorted(bench.got["one"]) == [0, 1, 2]
        if kind == "key_shared":
            assert bench.got["one"] == [0, 1, 2]


class Untold(BaseException):
    """Whatever one does with it raises it again."""

    def __repr__(self) -> NoReturn:
        raise self

    def __eq__(self, _other: object) -> NoReturn:
        raise self

    def __hash__(self) -> NoReturn:
        raise self


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), SystemExit(1), GeneratorExit(), Untold()])
@pytest.mark.parametrize("returned", [False, True])
def test_whatever_a_plug_in_does_the_broker_goes_on(
    fault: BaseException, *, returned: bool
) -> None:
    notes: list[Note] = []
    stats = Statistics()
    faults = [fault]

    def plug_in(entry: Entry) -> Any:
        if not faults:
            return "accept"
        if returned:
            return faults.pop()
        raise faults.pop()

    bench = bench_of(EntryFilter("", [plug_in], stats, notes))
    bench.append(b"a")
    bench.grant("one", 0)
    assert (bench.got["one"], stats.counters["dispatch_plug_in_errors"]) == ([], 1)
    assert len(notes) == 1
    bench.wait(5.0)
    assert bench.got["one"] == [0]


def test_a_plug_in_whose_module_ends_the_process_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plug_in_that_exits.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StartError, match="cannot be imported"):
        load(["plug_in_that_exits:judge"])


def test_a_plug_in_that_waits_holds_up_an_exclusive_subscription_in_order() -> None:
    waiting = [True]
    bench = Bench(
        SubscriptionConfig(),
        EntryFilter(
            "", [lambda entry: "reschedule" if waiting[0] and entry.base == 1 else "accept"]
        ),
    )
    bench.attach("one", 100)
    for _ in range(3):
        bench.append(b"a")
        bench.grant("one", 0)
    bench.wait(3.0)
    assert bench.got["one"] == [0]
    waiting[0] = False
    bench.wait(1.0)
    assert bench.got["one"] == [0, 1, 2]
