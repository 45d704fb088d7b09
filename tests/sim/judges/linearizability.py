"""Whether a history of the name servers' operations is linearizable.

`python -m tests.sim.judges.linearizability FILE` judges a file of JSON lines; with `--seed N` that seed is
run first and its history written there.

Wing and Gong's search as Lowe mends it: take operations that were asked before the first answer
still missing, step the model, go back where it refuses, and never look twice at the same set of
operations taken and the same state. Linearizability is local, so a history is judged in parts
(`models.parts`). It is prefix-closed too, so a broken history is cut to the shortest broken prefix:
its last answer is the one that has no place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.sim.judges.models import Model, parts
from tests.sim.judges.operations import BadHistory, Event, Operation, pair, read

STEPS: Final = 1_000_000
"""Of the model, per part: the search ends without a verdict behind them (some seconds, and some
hundred MB for what was looked at)."""
SHOWN: Final = 30
"""Events of the broken part that a verdict shows at most."""


class TooHard(Exception):
    """The search took more than the allowed steps: no verdict."""


@dataclass(slots=True, eq=False)
class _Entry:
    """An invoke or an answer in the list of those that are not taken yet."""

    number: int
    """Of the operation."""
    answer: _Entry | None
    """The answer of an invoke; None: this is an answer, or there is none."""
    is_call: bool
    before: _Entry | None = None
    after: _Entry | None = None


def _unlink(entry: _Entry) -> None:
    assert entry.before is not None
    entry.before.after = entry.after
    if entry.after is not None:
        entry.after.before = entry.before


def _relink(entry: _Entry) -> None:
    assert entry.before is not None
    entry.before.after = entry
    if entry.after is not None:
        entry.after.before = entry


def _take(call: _Entry) -> None:
    _unlink(call)
    if call.answer is not None:
        _unlink(call.answer)


def _put_back(call: _Entry) -> None:
    if call.answer is not None:
        _relink(call.answer)
    _relink(call)


def _entries(operations: Sequence[Operation]) -> _Entry:
    """The head of the list, which is no entry itself."""
    placed: list[tuple[int, _Entry]] = []
    for number, operation in enumerate(operations):
        answer = None
        if operation.returned is not None:
            answer = _Entry(number, None, is_call=False)
            placed.append((operation.returned, answer))
        placed.append((operation.called, _Entry(number, answer, is_call=True)))
    head = last = _Entry(-1, None, is_call=False)
    for _, entry in sorted(placed, key=lambda item: item[0]):
        last.after, entry.before = entry, last
        last = entry
    return head


def linearizable(operations: Sequence[Operation], model: Model, steps: int = STEPS) -> bool:
    """Whether the answers fit some order of the operations that keeps to true time.

    Those without an answer may be taken at any time after their invoke, or never.

    Raises:
        TooHard: not decided within `steps` of the model.
    """
    head = _entries(operations)
    missing = sum(operation.returned is not None for operation in operations)
    state, taken = model.initial, 0
    path: list[tuple[_Entry, Hashable]] = []
    looked_at: set[tuple[int, Hashable]] = set()
    entry = head.after
    while missing:
        if entry is not None and entry.is_call:
            steps -= 1
            if steps < 0:
                raise TooHard
            after = model.step(state, operations[entry.number])
            key = (taken | 1 << entry.number, after)
            if after is None or key in looked_at:
                entry = entry.after
                continue
            looked_at.add(key)
            path.append((entry, state))
            state, taken = after, key[0]
            missing -= entry.answer is not None
            _take(entry)
            entry = head.after
            continue
        # An answer whose operation is not taken, or the end: nothing else can come before it.
        if not path:
            return False
        entry, state = path.pop()
        taken &= ~(1 << entry.number)
        missing += entry.answer is not None
        _put_back(entry)
        entry = entry.after
    return True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a history."""

    operations: int
    undecided: tuple[str, ...] = ()
    """Parts whose search was given up."""
    broken: str = ""
    """The part that is not linearizable; empty: none is."""
    prefix: tuple[Event, ...] = ()
    """The shortest prefix, of the broken part alone, that is broken."""

    def __str__(self) -> str:
        open_parts = f"; undecided: {', '.join(self.undecided)}" if self.undecided else ""
        if not self.broken:
            return f"linearizable: {self.operations} operations{open_parts}"
        shown = self.prefix[-SHOWN:]
        left_out = len(self.prefix) - len(shown)
        lines = [f"({left_out} events before)"] if left_out else []
        lines += [str(event) for event in shown]
        story = "\n".join(lines)
        return f"not linearizable: {self.broken}\n{story}\nthe last answer has no place{open_parts}"


def judge(events: Sequence[Event], steps: int = STEPS) -> Verdict:
    """Judge a history.

    Raises:
        BadHistory: no clients can have seen it.
    """
    operations = pair(events)
    undecided: list[str] = []
    for part, (model, chosen) in parts(operations).items():
        try:
            if not linearizable(chosen, model, steps):
                prefix = _shortest(chosen, model, steps)
                of_part = {place for op in prefix for place in (op.called, op.returned)}
                shown = tuple(event for n, event in enumerate(events) if n in of_part)
                return Verdict(len(operations), tuple(undecided), part, shown)
        except TooHard:
            undecided.append(part)
    return Verdict(len(operations), tuple(undecided))


def _shortest(operations: Sequence[Operation], model: Model, steps: int) -> list[Operation]:
    """The operations of the shortest prefix that is broken already."""
    ends = sorted(op.returned for op in operations if op.returned is not None)
    good, bad = -1, len(ends) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            fits = linearizable(_until(operations, ends[middle]), model, steps)
        except TooHard:
            fits = True
        good, bad = (middle, bad) if fits else (good, middle)
    return _until(operations, ends[bad])


def _until(operations: Sequence[Operation], end: int) -> list[Operation]:
    """What was asked by then; what was answered later has an unknown outcome."""
    return [
        op
        if op.returned is not None and op.returned <= end
        else Operation(op.f, op.key, op.value, None, op.called, None)
        for op in operations
        if op.called <= end
    ]


def main(arguments: list[str] | None = None) -> int:
    """Judge a file: 0 if it is linearizable, 1 if not, 2 if it is no history."""
    parser = argparse.ArgumentParser(description="Judge a history of operations on name servers.")
    parser.add_argument("file", type=Path, help="JSON lines: process, type, f, key, value, time")
    parser.add_argument("--seed", type=int, help="run this seed first and write its history there")
    parser.add_argument("--steps", type=int, default=STEPS, help="bound of the search, per part")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        _write(chosen.seed, chosen.file)
    try:
        verdict = judge(read(chosen.file), chosen.steps)
    except (BadHistory, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{verdict}\n")
    return 1 if verdict.broken else 0


def _write(seed: int, path: Path) -> None:
    from tests.sim.cast.operators import Operators
    from tests.sim.judges.verdict import Failed
    from tests.sim.scenario import Scenario

    scenario = Scenario(seed)
    try:
        scenario.run()
    except Failed as error:
        sys.stderr.write(f"{error}\n")
    for guest in scenario.guests:
        if isinstance(guest, Operators):
            guest.history.write(path)


if __name__ == "__main__":
    sys.exit(main())
