"""An operator that proposes commands with the cluster key, before a method of the client does."""

from __future__ import annotations

import random
import time
from types import TracebackType
from typing import Self

from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.wire.actor import Effects, HandshakeFailed
from logboom.wire.commands import AnyCommand, CommandResult
from logboom.wire.hello import Identity
from logboom.wire.messages import Propose, Proposed
from logboom.wire.session import Reply
from logboom.wire.session_table import SessionTable
from logboom.wire.sockets import Sockets


class Operator:
    """Sessions with the name servers of a cluster; used by one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        key = read_key(cluster.data / "cluster.key")
        self._cluster = cluster
        self._sockets = Sockets()
        self._sessions = SessionTable(Identity("operator", "client", 0, key), random.Random(1))
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._sockets.close()

    def propose(self, command: AnyCommand, within_s: float = 200.0) -> CommandResult:
        """Have a command applied; the same number is sent until some leader answers."""
        self._number += 1
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            for endpoint in self._cluster.name_server_endpoints:
                answer = self._ask(endpoint, Propose(0, 1_000, "operator", self._number, command))
                if isinstance(answer.message, Proposed):
                    return answer.message.result
            # Nobody leads yet, and an election calls nobody: ask again.
            time.sleep(0.05)
        raise AssertionError(f"nobody answers {command}")

    def _ask(self, endpoint: str, question: Propose) -> Reply:
        out, now = Effects(), time.monotonic()
        session = self._sessions.session(endpoint, out, now)
        session.request(question, (), endpoint, now + 1.0, out, now)
        self._do(out)
        while True:
            wanted = self._sessions.deadline()
            received = self._sockets.poll(
                0.1 if wanted is None else max(0.0, wanted - time.monotonic())
            )
            out, now = Effects(), time.monotonic()
            replies: list[Reply] = []
            for each in received:
                if isinstance(each, HandshakeFailed):
                    replies += self._sessions.handshake_failed(each, now)
                elif isinstance(each.peer, str):
                    replies += self._sessions.receive(each.peer, each.frames, out, now)
            replies += self._sessions.tick(out, now)
            self._do(out)
            if replies:
                return replies[0]

    def _do(self, out: Effects) -> None:
        for redial in out.redials:
            self._sockets.redial(redial)
        self._sockets.send(out.sends)
