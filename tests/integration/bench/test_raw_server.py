"""The raw server, beside which figures are measured."""

from __future__ import annotations

import typing

import pytest
import zmq

from bench import raw
from bench.raw_server import RawServer, Store


@pytest.mark.parametrize("store", typing.get_args(Store))
def test_every_request_is_answered(store: Store) -> None:
    with zmq.Context() as context:
        server = RawServer(context, store)
        try:
            for entry in raw.entries()[:12]:
                server.socket.send(entry)
            assert [server.socket.recv() for _ in range(12)] == [b""] * 12
        finally:
            server.close()
