"""Mutated bytes against all that decodes; `make verify` goes on for minutes."""

from __future__ import annotations

import random

import pytest

from tests.thorough import seeds
from tests.unit import decoder_fuzz
from tests.unit.wire.work import without_garbage_of_others

TARGETS = decoder_fuzz.targets()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("seed", seeds(4))
def test_mutated_bytes_cost_no_more_than_their_length(name: str, seed: int) -> None:
    with without_garbage_of_others():
        decoder_fuzz.run(TARGETS[name], random.Random(seed), 150)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_mutated_is_decoded_whole(name: str) -> None:
    for raw in TARGETS[name].seeds:
        TARGETS[name].decode(raw)
