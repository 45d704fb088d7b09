"""How much one collection of garbage looks at in a node, while thousands of queues are opened."""

from __future__ import annotations

import gc
from typing import Literal

from logboom.deploy.node import collect_seldom
from tests.unit.wire.work import without_garbage_of_others

MADE = 1_200_000
"""Objects that stay: those of the replicas of some 20,000 queues."""
MOST_OBJECTS = 20_000


def test_no_collection_looks_at_very_many_objects() -> None:
    looked: list[int] = []

    def began(phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        if phase == "start":
            younger = range(info["generation"] + 1)
            looked.append(sum(len(gc.get_objects(generation=each)) for each in younger))

    before = gc.get_threshold()
    with without_garbage_of_others():
        collect_seldom()
        gc.callbacks.append(began)
        try:
            made: list[list[object]] = [[] for _ in range(MADE)]
        finally:
            gc.callbacks.remove(began)
            gc.set_threshold(*before)
    assert len(made) == MADE
    assert looked
    assert max(looked) <= MOST_OBJECTS
