"""The cluster key of a client, as `connect(cluster_key=…)` takes it: the content of the file."""

from __future__ import annotations

import random

import pytest

from logboom.client.core import ClientConfig, ClientCore
from logboom.wire.acceptor import Acceptor
from logboom.wire.actor import Effects, Event, Instant, PeerAddress, Received

NODE = "127.0.0.1:7711"
OLD, NEW = b"o" * 32, b"n" * 32
STEPS = ((OLD,), (OLD, NEW), (NEW, OLD), (NEW,))
"""What the nodes' files hold while the key is changed, one after the other."""


def is_greeted(content: bytes, *keys: bytes) -> bool:
    """Return whether a node with keys lets a client with the content of a file in."""
    core = ClientCore(ClientConfig((NODE,), "me", cluster_key=content), random.Random(1), now())
    gate = Acceptor("broker-1", keys[0], random.Random(2), "cluster")
    gate.take_cluster_keys(keys)
    sends = core.handle([], now()).sends
    while sends:
        answers = Effects()
        for send in sends:
            gate.admit(PeerAddress("main", b"\x01"), send.frames, answers, now().mono)
        events: list[Event] = [Received(NODE, send.frames) for send in answers.sends]
        sends = core.handle(events, now()).sends if events else []
    return len(gate) == 1


def now() -> Instant:
    """Return the only moment of these tests."""
    return Instant(100.0, 0)


@pytest.mark.parametrize("keys", STEPS)
@pytest.mark.parametrize("content", [OLD + b"\n" + NEW + b"\n", NEW + b"\r\n" + OLD])
def test_a_client_with_both_keys_is_served_in_every_step(
    content: bytes, keys: tuple[bytes, ...]
) -> None:
    assert is_greeted(content, *keys)


def test_a_client_with_one_key_needs_that_in_use() -> None:
    assert [is_greeted(OLD + b"\n", *keys) for keys in STEPS] == [True, True, False, False]
    assert is_greeted(b"", NEW), "others need none"
