"""What internal topics take."""

from __future__ import annotations

import pytest

from logboom.wire.internal_topics import message_limit
from logboom.wire.messages import MAX_BATCH_BYTES
from logboom.wire.view import TopicConfig, TopicView

DEFAULT = TopicConfig().max_message_bytes


@pytest.mark.parametrize(
    ("name", "set_to", "limit"),
    [
        ("t", DEFAULT, DEFAULT),
        ("t%s", DEFAULT, DEFAULT),
        ("%DLQ%t%s", DEFAULT, MAX_BATCH_BYTES),
        ("%RETRY%t%s", DEFAULT, MAX_BATCH_BYTES),
        ("%RETRY%g", DEFAULT, MAX_BATCH_BYTES),
        ("%DLQ%g", 1_000, 1_000),
    ],
)
def test_internal_topics_take_what_others_take_unless_told_otherwise(
    name: str, set_to: int, limit: int
) -> None:
    assert message_limit(TopicView(name, 1, TopicConfig(max_message_bytes=set_to), [], 1)) == limit
