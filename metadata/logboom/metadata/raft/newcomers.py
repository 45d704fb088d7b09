"""The check that a name server to be added is running, at both of its endpoints.

A member that is added while it is not running is one more that is missing; two of them would end a
group of three. The newcomer must prove the cluster key in its greeting, and report the id under
which it is to be added.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from logboom.wire.actor import Effects, HandshakeFailed
from logboom.wire.errors import InvalidRequest, LogboomError
from logboom.wire.frames import Frame
from logboom.wire.hello import Identity
from logboom.wire.messages import Stats, StatsResult
from logboom.wire.session import Reply
from logboom.wire.session_table import SessionTable

MAX_PROBE_S: Final = 3.0
"""Maximum seconds that it may take to answer."""
SHARE: Final = 0.7
"""The same as a fraction of the time that the caller waits."""

OnEnd: TypeAlias = Callable[[LogboomError | None, str], None]
"""Gets why a newcomer does not answer, or None and the id of its journal, "" if it has none."""
JOURNAL_FIGURE: Final = "raft_journal"
"""The figure of STATS that has the id of a name server's journal."""


@dataclass(slots=True)
class _Probe:
    """One newcomer that is being asked."""

    name: str
    endpoints: set[str]
    """Endpoints that have not answered yet."""
    deadline: float
    on_end: OnEnd
    journal: str = ""
    """Id of its journal, once it has answered."""


class Newcomers:
    """The newcomers, asked one at a time."""

    def __init__(self, identity: Identity, rng: random.Random) -> None:
        self._sessions = SessionTable(identity, rng)
        self._look: _Probe | None = None

    def ask(
        self,
        name: str,
        endpoints: Sequence[str],
        timeout_s: float,
        on_end: OnEnd,
        out: Effects,
        now: float,
    ) -> None:
        """Ask for `name` at all endpoints; `on_end` hears how that ended."""
        deadline = now + min(MAX_PROBE_S, SHARE * timeout_s)
        self._look = _Probe(name, set(endpoints), deadline, on_end)
        for endpoint in self._look.endpoints:
            session = self._sessions.session(endpoint, out, now)
            # It may have been dialled before, for an earlier question.
            out.redials.append(endpoint)
            session.request(Stats(0, 1_000), (), endpoint, deadline, out, now)

    def asked_at(self, endpoint: str) -> str:
        """Return the id of the newcomer that is being asked at an endpoint, or ""."""
        look = self._look
        return look.name if look is not None and endpoint in look.endpoints else ""

    def from_dialled(
        self, endpoint: str, frames: Sequence[Frame], out: Effects, now: float
    ) -> None:
        """Take a message from a connection that was dialled for a newcomer."""
        for reply in self._sessions.receive(endpoint, frames, out, now):
            self._answered(reply, out)

    def handshake_failed(self, failure: HandshakeFailed, out: Effects, now: float) -> None:
        """Take the failure of a connection that was dialled for a newcomer."""
        for reply in self._sessions.handshake_failed(failure, now):
            self._answered(reply, out)

    def tick(self, out: Effects, now: float) -> None:
        """Redial, and give up in time."""
        look = self._look
        if look is None:
            return
        if now >= look.deadline:
            silent = " and ".join(sorted(look.endpoints))
            text = (
                f"{look.name} does not answer at {silent}: start it first, with this cluster's key "
                "file, so that this name server reaches it"
            )
            self._end(InvalidRequest(text), out)
            return
        for reply in self._sessions.tick(out, now):
            self._answered(reply, out)

    def deadline(self) -> float | None:
        """Return when `tick` is due next."""
        if self._look is None:
            return None
        due = self._sessions.deadline()
        return self._look.deadline if due is None else min(self._look.deadline, due)

    def _answered(self, reply: Reply, out: Effects) -> None:
        look, told, endpoint = self._look, reply.message, reply.context
        if look is None:
            return
        if reply.error is not None:
            self._end(InvalidRequest(f"{endpoint}: {reply.error.text}"), out)
        elif not isinstance(told, StatsResult) or told.node != look.name:
            who = told.node if isinstance(told, StatsResult) else "another program"
            self._end(InvalidRequest(f"{who} answers at {endpoint}, not {look.name}"), out)
        else:
            look.endpoints.discard(endpoint)
            look.journal = str(told.counters.get(JOURNAL_FIGURE, ""))
            if not look.endpoints:
                self._end(None, out)

    def _end(self, error: LogboomError | None, out: Effects) -> None:
        look, self._look = self._look, None
        assert look is not None, "only a look that is under way ends"
        self._sessions.clear(out)
        look.on_end(error, look.journal)
