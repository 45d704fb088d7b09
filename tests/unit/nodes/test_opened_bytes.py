"""What one turn opens: a bounded number of bytes, of one user and of all."""

from __future__ import annotations

import pytest

from logboom.nodes.opened_bytes import PEER_BYTES, TURN_BYTES, OpenedBytes
from logboom.wire.errors import Unavailable


def test_nobody_opens_more_once_all_together_have_opened_enough() -> None:
    opened, each = OpenedBytes(), PEER_BYTES // 2
    for user in range(TURN_BYTES // each):
        opened.begin(user)(each)
    with pytest.raises(Unavailable, match="ask again in a moment"):
        opened.begin("another")
    OpenedBytes().begin("another")


def test_a_user_who_has_opened_enough_leaves_room_for_others() -> None:
    opened = OpenedBytes()
    count = opened.begin("greedy")
    for _ in range(2):
        count(PEER_BYTES // 2)
    with pytest.raises(Unavailable) as refused:
        opened.begin("greedy")
    assert refused.value.code == "BUSY"
    opened.begin("modest")(1)
