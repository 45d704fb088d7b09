"""Whatever frames come, from strangers, clients or nodes of the cluster, a broker goes on."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logboom.wire.actor import PeerAddress, Received
from logboom.wire.frames import Frame
from logboom.wire.messages import Produced, Pulled
from tests.thorough import examples
from tests.unit.nodes.rig import ME, Rig, batch, produce, pull
from tests.unit.wire.hostile import frames

WHO = ("a stranger", "client-1", "broker-2")


def serving(role: str) -> Rig:
    """A broker that leads or follows a queue of "flights" (topic id 1), with peers of all kinds."""
    rig = Rig()
    if role == "leader":
        rig.lead(isr=(ME, "broker-2"), replicas=(ME, "broker-2", "broker-3"), queues=2)
    else:
        rig.lead(leader="broker-2", isr=(ME, "broker-2"), replicas=(ME, "broker-2"), queues=2)
    rig.client()
    rig.follower()
    return rig


@pytest.mark.parametrize("role", ["leader", "follower"])
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(WHO), frames, st.booleans()), max_size=12))
def test_a_broker_takes_any_frames(role: str, acts: list[tuple[str, list[Frame], bool]]) -> None:
    rig = serving(role)
    for who, sent, waits in acts:
        rig.turn(Received(PeerAddress("main", who.encode()), sent))
        if waits:
            rig.settle(0.7)
    rig.settle(5.0)
    assert rig.stop is None


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(WHO[:2]), frames), max_size=12))
def test_frames_of_strangers_and_clients_leave_others_served(
    acts: list[tuple[str, list[Frame]]],
) -> None:
    rig = Rig()
    rig.lead()
    rig.client()
    for who, sent in acts:
        rig.turn(Received(PeerAddress("main", who.encode()), sent))
    healthy = rig.client("healthy")
    healthy.ask(produce(), [batch()])
    rig.settle()
    stored = healthy.replies[0].message
    assert isinstance(stored, Produced)
    healthy.ask(pull(stored.base_offset))
    rig.settle()
    found = healthy.replies[0].message
    assert isinstance(found, Pulled)
    assert found.status == "FOUND"
