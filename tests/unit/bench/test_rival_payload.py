"""The messages of the rivals' load, and the requests that carry none."""

from __future__ import annotations

import json

import lz4.block
import pytest

from bench.rivals import payload
from bench.rivals.rival import age_ms, stamped
from bench.rivals.rocketmq import remoting_frame


@pytest.mark.parametrize("size", [100, 1024])
def test_values_have_their_size_and_are_texts_that_compress(size: int) -> None:
    values = payload.values(payload.DISTINCT + 5, size)
    assert {len(value) for value in values} == {size}
    assert len(set(values)) == payload.DISTINCT
    assert values[-5:] == values[:5]
    assert set(json.loads(values[0])) == {"order", "customer", "price", "items"}
    packed = lz4.block.compress(b"".join(values[:1_000]))
    assert 0.2 < len(packed) / (1_000 * size) < 0.9


def test_the_checksum_sees_losses_doubles_and_changes_but_no_order() -> None:
    values = payload.values(100, 100)
    whole = payload.checksum([values])
    assert payload.checksum([values[50:], values[:50]]) == whole
    assert payload.checksum([values[:-1]]) != whole
    assert payload.checksum([values, values[:1]]) != whole
    assert payload.checksum([values[:-1], [values[0]]]) != whole


def test_a_stamp_keeps_the_length_and_tells_the_age() -> None:
    item = stamped(b"x" * 100)
    assert len(item) == 100
    sent_ns = int.from_bytes(item[:8], "little")
    assert age_ms(item, sent_ns + 2_500_000) == 2.5


def test_a_request_of_rocketmq_has_its_lengths_before_it() -> None:
    frame = remoting_frame(17, {"topic": "one"})
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert int.from_bytes(frame[4:8]) == len(frame) - 8
    assert json.loads(frame[8:])["extFields"] == {"topic": "one"}
