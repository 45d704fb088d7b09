"""Key layouts: byte order is log order, and queues do not touch."""

from hypothesis import given
from hypothesis import strategies as st

from logboom.nodes.log.keys import Position, log_key, position_of, queue_end, queue_key, queue_of

U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
PLACES = st.tuples(U32, U32, U64, U32)


@given(PLACES, PLACES)
def test_byte_order_is_log_order(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert (log_key(*one) < log_key(*other)) == (one < other)


@given(PLACES)
def test_a_key_says_where_its_entry_begins(place: tuple[int, int, int, int]) -> None:
    key = log_key(*place)
    assert position_of(key) == Position(*place[2:])
    assert queue_of(key) == place[:2]


@given(st.integers(0, (1 << 32) - 2), U32, U64, U32, st.binary(max_size=20))
def test_all_of_a_queue_lies_between_its_bounds(
    topic_id: int, queue: int, offset: int, side: int, suffix: bytes
) -> None:
    first, end = queue_key(topic_id, queue), queue_end(topic_id, queue)
    assert first <= log_key(topic_id, queue, offset, side) < end
    assert first <= queue_key(topic_id, queue, suffix) < end
    following = (topic_id, queue + 1) if queue < (1 << 32) - 1 else (topic_id + 1, 0)
    assert end == queue_key(*following)
