"""How a run ended: its totals, or the broken promise with the events that led there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.sim.judges.history import Queue
from tests.sim.world.trace import BrokenProperty, Trace

SHOWN: Final = 40
"""Events that a failure shows at most."""
_NODES: Final = re.compile(r"\b(?:broker|name|wire|api|reader|loose|admin|member)-\d+\b")
_QUEUES: Final = re.compile(r"\b[a-z][a-z0-9-]*/\d+\b")
_FOR_ALL: Final = ("world", "network")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to; a broken promise is raised instead."""

    seed: int
    seconds: float
    """Of true time in the world."""
    digest: str
    totals: Counter[str]
    events: Sequence[str]
    slowest: Mapping[Queue, float]
    """Longest that a message took from its sending to its ack, in seconds, for each queue."""


class Failed(AssertionError):
    """A promise was broken: says which, the events around it and how to see it again."""

    def __init__(self, seed: int, again: str, error: BaseException, trace: Trace) -> None:
        """`again`: the command that replays it."""
        self.promise = error.name if isinstance(error, BrokenProperty) else type(error).__name__
        detail = error.detail if isinstance(error, BrokenProperty) else str(error)
        events = "\n".join(story(detail, trace.events))
        super().__init__(
            f"seed {seed} breaks: {self.promise}\n{detail}\n\nwhat led there:\n{events}\n\n"
            f"again: {again}"
        )
        self.seed = seed


def story(detail: str, events: Iterable[str]) -> list[str]:
    """The last events that concern what `detail` names: its queues, whoever led or was in sync
    there, the nodes it names, and what befell links. All of the last ones if it names nothing."""
    events = list(events)
    queues = set(_QUEUES.findall(detail))
    nodes = set(_NODES.findall(detail))
    for event in events:
        if queues & set(_QUEUES.findall(event)):
            nodes |= set(_NODES.findall(event))
    named = queues | nodes
    if not named:
        return events[-SHOWN:]
    return [event for event in events if _concerns(event, named)][-SHOWN:]


def _concerns(event: str, named: set[str]) -> bool:
    words = {*_NODES.findall(event), *_QUEUES.findall(event)}
    if _QUEUES.search(event):
        # Of metadata: only the queues in question.
        words = set(_QUEUES.findall(event))
    return bool(words & named) or (not words and event.split()[1] in _FOR_ALL)
