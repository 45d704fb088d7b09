"""The checker tells good histories from bad ones, and says where they break."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from tests.sim.judges.linearizability import judge, main
from tests.sim.judges.operations import BadHistory, Event, EventType, Operations, pair, read

Line: TypeAlias = tuple[str, EventType, str, str, dict[str, Any]]
ASKED: Final[dict[str, Any]] = {"queues": 1, "setting": 5}


def history(*lines: Line) -> list[Event]:
    """Events a millisecond apart."""
    return [Event(*line, time=1_000_000 * n) for n, line in enumerate(lines)]


def asks(process: str, f: str, key: str = "t", **value: Any) -> Line:
    """An invoke."""
    return (process, "invoke", f, key, value)


def told(
    process: str, f: str, key: str = "t", *, version: int, code: str = "", **more: Any
) -> Line:
    """An ok."""
    return (process, "ok", f, key, {"code": code, "version": version, **more})


def create(process: str, version: int, number: int) -> tuple[Line, Line]:
    """A topic is created, and that is answered."""
    return asks(process, "create", **ASKED), told(process, "create", version=version, id=number)


def sees(process: str, version: int, number: int | None, setting: int = 5) -> tuple[Line, Line]:
    """A read of the topic."""
    shown: dict[str, Any] = {}
    if number is not None:
        shown = {"queues": 1, "setting": setting, "isr": [[1, 1, ["a"]]]}
    return asks(process, "read"), told(process, "read", version=version, id=number, **shown)


def sets(process: str, expected: int, *isr: str) -> Line:
    """A compare-and-set of queue 3/0, which was in sync at a, b and c."""
    value = {"expected": expected, "epoch": 1, "before": ["a", "b", "c"], "isr": list(isr)}
    return asks(process, "cas", "3/0", **value)


def answers(process: str, version: int, code: str = "") -> Line:
    """The answer to `sets`."""
    return told(process, "cas", "3/0", version=version, code=code)


# -- histories that are what they are -------------------------------------------------------------

A_CREATES: Final = create("a", 4, 3)
GOOD: Final[dict[str, tuple[Line, ...]]] = {
    "nothing at all": (),
    "one after the other": (
        *A_CREATES,
        *sees("b", 4, 3),
        asks("a", "delete"),
        told("a", "delete", version=5),
        *sees("b", 5, None),
    ),
    "two creates at once, the later asked wins": (
        asks("a", "create", **ASKED),
        asks("b", "create", **ASKED),
        told("b", "create", version=4, id=3),
        told("a", "create", version=4, code="TOPIC_EXISTS"),
    ),
    "a read while it is created sees it or not": (
        A_CREATES[0],
        *sees("b", 4, 3),
        *sees("c", 4, 3),
        A_CREATES[1],
    ),
    "an unknown outcome comes true later": (
        A_CREATES[0],
        ("a", "info", "create", "t", {}),
        *sees("b", 3, None),
        *sees("b", 4, 3),
    ),
    "an unknown outcome never comes true": (
        A_CREATES[0],
        ("a", "info", "create", "t", {}),
        *create("b", 4, 3),
    ),
    "what failed had no effect": (
        A_CREATES[0],
        ("a", "fail", "create", "t", {}),
        *sees("b", 3, None),
    ),
    "no broker lives": (
        A_CREATES[0],
        told("a", "create", version=3, code="TOO_FEW_BROKERS"),
        *sees("b", 3, None),
    ),
    "one of two compare-and-sets wins": (
        sets("a", 7, "a", "b"),
        sets("b", 7, "a", "c"),
        answers("a", 9, "CONFLICT"),
        answers("b", 9),
    ),
    "who is fenced changes nothing": (
        sets("a", 7, "a", "b"),
        answers("a", 9, "FENCED"),
        sets("b", 7, "a"),
        answers("b", 10),
    ),
    "what changes nothing wins with the same version twice": (
        sets("a", 7, "a", "b", "c"),
        answers("a", 9),
        sets("b", 7, "a"),
        answers("b", 10),
    ),
}
BAD: Final[dict[str, tuple[str, tuple[Line, ...]]]] = {
    "a stale read": ("topic t", (*A_CREATES, *sees("b", 4, None))),
    "a read of an old version": (
        "metadata version",
        (*A_CREATES, *sees("b", 4, 3), *sees("b", 3, 3)),
    ),
    "a read of an old setting": (
        "topic t",
        (
            *A_CREATES,
            asks("a", "alter", queues=None, setting=6),
            told("a", "alter", version=5),
            *sees("b", 5, 3, setting=5),
        ),
    ),
    "a double create": (
        "topic t",
        (
            asks("a", "create", **ASKED),
            asks("b", "create", **ASKED),
            told("a", "create", version=4, id=3),
            told("b", "create", version=5, id=4),
        ),
    ),
    "a create that was applied twice": (
        "topic t",
        (A_CREATES[0], told("a", "create", version=4, code="TOPIC_EXISTS")),
    ),
    "a lost create": (
        "topic t",
        (*A_CREATES, asks("b", "delete"), told("b", "delete", version=4, code="UNKNOWN_TOPIC")),
    ),
    "an outcome that comes and goes": (
        "topic t",
        (
            A_CREATES[0],
            ("a", "info", "create", "t", {}),
            *sees("b", 4, 3),
            *sees("b", 5, None),
        ),
    ),
    "a lost compare-and-set": (
        "queue 3/0",
        (
            sets("a", 7, "a", "b"),
            sets("b", 7, "a", "c"),
            answers("b", 9),
            answers("a", 10),
        ),
    ),
    "a compare-and-set that nobody stood in the way of": (
        "queue 3/0",
        (sets("a", 7, "a"), answers("a", 9, "CONFLICT"), sets("b", 7, "a"), answers("b", 10)),
    ),
    "a compare-and-set that a name server failed on": (
        "queue 3/0",
        (sets("a", 7, "a", "b"), answers("a", 9, "INTERNAL")),
    ),
    "an ISR that nobody set": (
        "queue 3/0",
        (
            asks("r", "read"),
            told("r", "read", version=9, id=3, queues=1, setting=5, isr=[[7, 1, ["a", "b"]]]),
            asks("r", "read"),
            told("r", "read", version=9, id=3, queues=1, setting=5, isr=[[7, 1, ["a"]]]),
        ),
    ),
    "an id given again": (
        "topic ids",
        (
            *create("a", 4, 3),
            asks("a", "create", "u", **ASKED),
            told("a", "create", "u", version=5, id=3),
        ),
    ),
    "producer ids that overlap": (
        "producer ids",
        (
            asks("a", "allocate", "producer ids", count=5),
            asks("b", "allocate", "producer ids", count=5),
            told("a", "allocate", "producer ids", version=4, first=10),
            told("b", "allocate", "producer ids", version=4, first=12),
        ),
    ),
    "producer ids that are not given": (
        "producer ids",
        (
            asks("a", "allocate", "producer ids", count=5),
            told("a", "allocate", "producer ids", version=4, code="INTERNAL", first=None),
        ),
    ),
    "a change without a new version": (
        "metadata version",
        (*create("a", 4, 3), asks("a", "delete"), told("a", "delete", version=4)),
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_is_accepted(name: str) -> None:
    verdict = judge(history(*GOOD[name]))
    # Topics that are read without having been created are not what these are about.
    assert verdict.broken == "", str(verdict)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_found(name: str) -> None:
    part, lines = BAD[name]
    events = history(*lines)
    if part == "queue 3/0":
        events = history(*create("x", 1, 3), *lines)
    verdict = judge(events)
    assert verdict.broken == part
    assert verdict.prefix[-1] == events[-1]
    assert "not linearizable" in str(verdict)


def test_the_shortest_prefix_ends_with_what_has_no_place() -> None:
    lines = [*A_CREATES, *sees("b", 4, 3), *sees("c", 4, None), *sees("b", 4, 3), *sees("b", 4, 3)]
    verdict = judge(history(*lines))
    assert verdict.prefix == tuple(history(*lines[:6]))
    assert str(verdict).splitlines()[-2].endswith("code='' version=4 id=None")


@pytest.mark.parametrize(
    "lines",
    [
        (asks("a", "read"), asks("a", "read")),
        (told("a", "read", version=1, id=None),),
        (asks("a", "read"), told("a", "create", version=1, id=1)),
        (asks("a", "read"), ("a", "info", "read", "t", {}), asks("a", "read")),
    ],
)
def test_what_nobody_can_have_seen_is_no_history(lines: tuple[Line, ...]) -> None:
    with pytest.raises(BadHistory):
        pair(history(*lines))


# -- files ----------------------------------------------------------------------------------------


def test_a_file_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"
    operations = Operations()
    operations.invoke("a", "create", "t", ASKED, 1.5)
    operations.end("a", "ok", {"code": "", "version": 4, "id": 3}, 1.75)
    operations.write(file)
    assert read(file) == operations.events
    assert file.read_text().splitlines()[0] == (
        '{"process":"a","type":"invoke","f":"create","key":"t",'
        '"value":{"queues":1,"setting":5},"time":1500000000}'
    )
    assert main([str(file)]) == 0
    assert capsys.readouterr().out == "linearizable: 1 operations\n"
    operations.invoke("b", "read", "t", {}, 2.0)
    operations.end("b", "ok", {"code": "", "version": 4, "id": None}, 2.5)
    operations.write(file)
    assert main([str(file)]) == 1
    assert "the last answer has no place" in capsys.readouterr().out
    file.write_text('{"process":"a"}\n')
    assert main([str(file)]) == 2
    assert "line 1" in capsys.readouterr().err


def test_a_search_that_takes_too_long_is_no_verdict() -> None:
    lines = [asks(f"p{n}", "alter", queues=None, setting=n) for n in range(20)]
    ends = [told(f"p{n}", "alter", version=9) for n in range(20)]
    events = history(*A_CREATES, *lines, *ends, *sees("b", 9, 3, setting=99))
    verdict = judge(events, steps=5_000)
    assert verdict.undecided == ("topic t",)
    assert "undecided: topic t" in str(verdict)
