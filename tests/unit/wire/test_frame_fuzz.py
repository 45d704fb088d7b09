"""Mutated requests against the decoder; `make verify` goes on for minutes."""

from __future__ import annotations

import random

import pytest

from tests.thorough import seeds
from tests.unit.wire import frame_fuzz
from tests.unit.wire.work import without_garbage_of_others


@pytest.mark.parametrize("seed", seeds(12))
def test_mutated_requests_cost_no_more_than_their_length(seed: int) -> None:
    with without_garbage_of_others():
        frame_fuzz.run(random.Random(seed), 500, frame_fuzz.seeds())
