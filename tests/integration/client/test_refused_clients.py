"""A client that is not accepted learns so at once, in words that say who it was and what to do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logboom.client import aio, connect
from logboom.wire.credentials import Credentials, Server
from logboom.wire.credentials_file import write_credentials
from logboom.wire.errors import Unauthenticated
from logboom.wire.key_pair import KeyPair
from logboom.wire.sockets import Sockets, make_key_pair

NODE, ALICE = make_key_pair(), make_key_pair()
PATIENCE_S = 300.0
"""Time-out of the client, which nobody waits for."""
SOON_S = 100.0
"""Handshakes are repeated for a second; the rest is for a busy machine."""


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    """The endpoint of a node that accepts nobody."""
    ended = threading.Event()
    with closing(Sockets({"main": "127.0.0.1:0"}, key_pair=NODE, curve={"main"})) as sockets:

        def run() -> None:
            while not ended.is_set():
                sockets.poll(None)

        thread = threading.Thread(target=run)
        thread.start()
        yield sockets.endpoints["main"]
        ended.set()
        sockets.wake()
        thread.join()


def credentials(endpoint: str, node: KeyPair = NODE) -> Credentials:
    """Alice's, who knows the node by a key."""
    return Credentials("alice", "", ALICE, (Server("name-1", endpoint, node.public),))


def test_a_key_that_nobody_knows(stranger: str, tmp_path: Path) -> None:
    file = tmp_path / "alice.toml"
    write_credentials(file, credentials(stranger))
    begun = time.monotonic()
    with pytest.raises(Unauthenticated) as told:
        connect(file, timeout_s=PATIENCE_S)
    assert time.monotonic() - begun < SOON_S
    assert "alice" in str(told.value)
    assert "logboom user describe" in str(told.value)
    assert ALICE.secret.reveal() not in repr(told.value)


def test_the_same_for_asyncio(stranger: str) -> None:
    async def refused() -> None:
        with pytest.raises(Unauthenticated, match="alice"):
            await aio.connect(credentials=credentials(stranger), timeout_s=PATIENCE_S)

    asyncio.run(asyncio.wait_for(refused(), SOON_S))


def test_a_node_with_another_key_than_the_file_names(stranger: str) -> None:
    other = credentials(stranger, make_key_pair())
    with pytest.raises(Unauthenticated, match="another key"):
        connect(credentials=other, timeout_s=PATIENCE_S)


def test_a_client_without_a_key_is_told_to_bring_one(stranger: str) -> None:
    begun = time.monotonic()
    with pytest.raises(Unauthenticated, match="LOGBOOM_CREDENTIALS"):
        connect(stranger, timeout_s=PATIENCE_S)
    assert time.monotonic() - begun < SOON_S


def test_a_node_whose_key_nobody_has_told_is_never_dialled_in_the_clear() -> None:
    with closing(Sockets({"main": "127.0.0.1:0"})) as sockets:
        endpoint = sockets.endpoints["main"]
        nobody = Credentials("alice", "", ALICE)
        with pytest.raises(Unauthenticated, match="no public key"):
            connect(endpoint, credentials=nobody, timeout_s=PATIENCE_S)
        assert sockets.poll(0) == []
