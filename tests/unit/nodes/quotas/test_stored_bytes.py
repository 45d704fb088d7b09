"""The bytes that a user's topics may have on a broker."""

from __future__ import annotations

import pytest

from logboom.nodes.log.keys import Position
from logboom.nodes.quotas.stored_bytes import COUNT_EVERY_S, StoredBytes
from logboom.wire.access.access_rules import AccessView, Quota, UserView
from logboom.wire.errors import Unavailable
from logboom.wire.messages import Produced
from logboom.wire.routes import Routes
from logboom.wire.view import QueueView, TopicConfig, TopicView, View
from tests.unit.nodes.rig import ME, Rig, batch, produce, pull

BATCH = batch(value=b"v" * 1_000)


def users(limit: int) -> AccessView:
    """Ann with a limit, bob without."""
    return AccessView(
        True, [UserView("ann", [], quota=Quota(stored_bytes=limit)), UserView("bob", [])]
    )


def topic(name: str, number: int, owner: str, version: int = 1) -> TopicView:
    """A topic of a user that this broker leads."""
    queue = QueueView([ME], ME, 1, version, [ME], [])
    return TopicView(name, number, TopicConfig(retention_ms=-1), [queue], version, owner)


def test_all_topics_of_the_owner_count_and_only_those() -> None:
    routes = Routes()
    topics = [topic("a", 1, "ann"), topic("b", 2, "ann"), topic("c", 3, "bob"), topic("d", 4, "")]
    routes.update(View(1, True, "cluster", [], topics, [], [], [], None))
    routes.access.update(users(1_000), 1)
    sizes = {"a": 400, "b": 500, "c": 9_000, "d": 9_000, "gone": 9_000}
    stored = StoredBytes(routes, lambda: sizes.items())
    now = 10.0
    stored.check("bob", 10**9, now)
    stored.check("ann", 99, now)
    stored.check("ann", 5_000, now)
    with pytest.raises(Unavailable, match="5999 bytes") as caught:
        stored.check("ann", 1, now)
    assert (caught.value.code, caught.value.fields["user"]) == ("DISK_FULL", "ann")
    # What retention frees, and what was not written after all, is seen by the next count.
    stored.check("ann", 1, now + COUNT_EVERY_S)
    sizes["b"] = 600
    with pytest.raises(Unavailable):
        stored.check("ann", 1, now + 2 * COUNT_EVERY_S)
    routes.access.update(users(2_000), 2)
    stored.check("ann", 1, now + 2 * COUNT_EVERY_S)
    stored.check("node:b", 10**9, now)


def test_a_producer_waits_until_there_is_room_and_readers_go_on() -> None:
    rig = Rig()
    rig.publish(topic("flights", 1, "ann", rig.version + 1))
    rig.broker.routes.access.update(users(2 * len(BATCH)), 1)
    client = rig.client()
    codes = []
    for sequence in range(4):
        client.ask(produce(), [batch(1, 7, 0, min(sequence, 2), b"v" * 1_000)])
        (reply,) = client.taken()
        codes.append("" if reply.error is None else reply.error.code)
    assert codes == ["", "", "DISK_FULL", "DISK_FULL"]
    # What is stored already is answered as ever.
    client.ask(produce(), [batch(1, 7, 0, 1, b"v" * 1_000)])
    assert isinstance(client.answer(), Produced)
    client.ask(pull(0))
    assert client.answer().next_offset == 2
    rig.broker.routes.access.update(users(9 * len(BATCH)), 2)
    client.ask(produce(), [batch(1, 7, 0, 2, b"v" * 1_000)])
    assert isinstance(client.answer(), Produced)
    assert rig.replica().end == Position(3)
