"""Requests to running nodes, many at once: for readiness checks, `status` and `doctor`.

It does not use a client, so it also works while a cluster has no leader, and it returns each node's
own answer instead of the first one.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from logboom.client.cluster.node_keys import NodeKeys
from logboom.deploy.closeable import Closeable
from logboom.wire.actor import Effects, HandshakeFailed
from logboom.wire.base import WireMessage
from logboom.wire.credentials import Credentials
from logboom.wire.credentials_file import read_credentials
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.hello import Identity
from logboom.wire.messages import AnyMessage, Stats, StatsResult, Watch, WatchResult
from logboom.wire.session import Reply
from logboom.wire.session_table import SessionTable
from logboom.wire.sockets import Sockets
from logboom.wire.view import BrokerView, NameServerView, View


class NodeClient(Closeable):
    """Connections to some nodes, used by one thread at a time."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        """Open nothing yet.

        Args:
            credentials: as whom to ask nodes that are not open.
        """
        self._sockets = Sockets(key_pair=None if credentials is None else credentials.key_pair)
        self._keys = NodeKeys({} if credentials is None else credentials.server_keys)
        self._sockets.server_keys = self._keys.of
        user = "" if credentials is None else credentials.user
        identity = Identity(f"asker-{uuid.uuid4().hex[:12]}", user=user)
        self._sessions = SessionTable(identity, random.Random())

    def close(self) -> None:
        """Close the connections."""
        self._sockets.close()

    def ask(
        self, questions: Mapping[str, WireMessage], timeout_s: float
    ) -> dict[str, AnyMessage | LogboomError]:
        """Send a request to each endpoint, and return the answers or errors by endpoint."""
        answers: dict[str, AnyMessage | LogboomError] = {}
        deadline = time.monotonic() + timeout_s
        out = Effects()
        for endpoint, question in questions.items():
            now = time.monotonic()
            session = self._sessions.session(endpoint, out, now)
            session.request(question, (), endpoint, deadline, out, now)
        self._do(out)
        while len(answers) < len(questions):
            self._turn(answers)
        return answers

    def _turn(self, answers: dict[str, AnyMessage | LogboomError]) -> None:
        wanted = self._sessions.deadline()
        pause = None if wanted is None else max(0.0, wanted - time.monotonic())
        received = self._sockets.poll(pause)
        out, now = Effects(), time.monotonic()
        replies: list[Reply] = []
        for each in received:
            if isinstance(each, HandshakeFailed):
                replies += self._sessions.handshake_failed(each, now)
            elif isinstance(each.peer, str):
                replies += self._sessions.receive(each.peer, each.frames, out, now)
        replies += self._sessions.tick(out, now)
        self._do(out)
        for reply in replies:
            answers[reply.context] = reply.message or reply.error or Unavailable("no answer")

    def _do(self, out: Effects) -> None:
        for endpoint in out.redials:
            self._sockets.redial(endpoint)
        self._sockets.send(out.sends)

    def views(
        self, endpoints: list[str], timeout_s: float, topics: list[str] | None = None
    ) -> dict[str, View]:
        """Return the whole metadata of each node. Nodes that do not answer are left out.

        Those that have other keys by now than the credentials file says are found by the metadata
        of the others.
        """
        found = self._views(endpoints, timeout_s, topics)
        if found:
            tried = {endpoint: [*self._keys.of(endpoint)] for endpoint in endpoints}
            newest = max(found.values(), key=lambda view: view.version)
            self.learn((*newest.brokers, *newest.name_servers))
            changed = [
                endpoint
                for endpoint in endpoints
                if endpoint not in found and [*self._keys.of(endpoint)] != tried[endpoint]
            ]
            found |= self._views(changed, timeout_s, topics)
        return found

    def _views(
        self, endpoints: list[str], timeout_s: float, topics: list[str] | None
    ) -> dict[str, View]:
        wait = int(timeout_s * 1000)
        answers = self.ask({e: Watch(0, wait, -1, topics, 0) for e in endpoints}, timeout_s)
        return {e: a.view for e, a in answers.items() if isinstance(a, WatchResult)}

    def learn(self, nodes: Iterable[BrokerView | NameServerView]) -> None:
        """Know nodes by the keys in the metadata: the credentials file may not name them."""
        self._keys.learn(nodes)

    def stats(self, endpoints: list[str], timeout_s: float) -> dict[str, StatsResult]:
        """Return the counters of each node. Nodes that do not answer are left out."""
        wait = int(timeout_s * 1000)
        answers = self.ask({e: Stats(0, wait) for e in endpoints}, timeout_s)
        return {e: a for e, a in answers.items() if isinstance(a, StatsResult)}


def open_node_client(credentials: Path | None) -> NodeClient:
    """Return a client of nodes, with the credentials in a file; None: the nodes are open.

    Raises:
        StartError: the file cannot be used.
    """
    return NodeClient(None if credentials is None else read_credentials(credentials))
