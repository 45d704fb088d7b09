"""Each skin does a turn's effects in the order that `wire.actor` states, as the simulation does.

A redial comes with the HELLO to the new connection, so it goes first; a hang-up comes last, after
the last words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from logboom.client.io_thread import IoThread
from logboom.metadata.server import NameServerProcess
from logboom.nodes.server import BrokerProcess
from logboom.wire.actor import Effects, Event, Instant, PeerAddress, Received, Send
from logboom.wire.cluster_keys import ClusterKeyFile
from logboom.wire.event_log import EventWriter
from logboom.wire.log_levels import LogLevels
from logboom.wire.snapshot_desk import SnapshotDesk
from logboom.wire.stats import Statistics
from logboom.wire.view import NameServerView

ORDER = ["redial b:1", "send b:1", "hang up b:2"]
KICKED = PeerAddress("main", b"1")


class NoAudit:
    """An auditor with nothing to write."""

    def __init__(self) -> None:
        self.log = self

    def drop(self) -> None:
        """Nothing."""


class Scripted:
    """A core that wants everything at once, and to end; and the sockets that it gets."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.auditor = NoAudit()
        self.stats = Statistics()
        self.cluster_id = ""
        self.logger_levels: dict[str, str] = {}
        self.settings = self.context = self.routes = self
        self.name_servers: list[NameServerView] = []
        self.registered = False
        self.dropped = self.waiting = 0
        self.sends_dropped = self.sends_waiting_bytes = self.connections_closed = 0

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """All of it."""
        return Effects([Send("b:1", [b"hello"])], ["b:1"], ["b:2"], [KICKED], stop="")

    def deadline(self) -> float | None:
        """At once."""
        return 0.0

    def sent(self, now: float) -> None:
        """Nothing waits for it."""

    def poll(self, timeout: float | None, *, listening: bool = True) -> list[Received]:
        """Nobody says anything."""
        return []

    def redial(self, endpoint: str) -> None:
        """Noted."""
        self.done.append(f"redial {endpoint}")

    def send(self, sends: Sequence[Send]) -> None:
        """Noted."""
        self.done += [f"send {peer}" for peer, _ in sends]

    def hang_up(self, endpoint: str) -> None:
        """Noted."""
        self.done.append(f"hang up {endpoint}")

    def kick(self, peer: PeerAddress) -> None:
        """Noted."""
        assert peer is KICKED
        self.done.append("kick")


def bare(skin: type[Any], script: Scripted, turn: str, *words: Any, **more: Any) -> Any:
    """What `turn` of a skin gives that has neither ports nor disk nor a thread."""
    made = object.__new__(skin)
    for name, value in {
        "_events": EventWriter("node", "broker"),
        "_desk": SnapshotDesk(lambda: None),
        "_now": Instant(0.0, 0),
        "_sockets": script,
        "_stopping": False,
        "_log_levels": LogLevels(),
        **more,
    }.items():
        setattr(made, name, value)
    return getattr(made, turn)(*words)


def test_a_name_server_redials_before_it_sends() -> None:
    script = Scripted()
    more: dict[str, Any] = {"_audit": None, "_key_file": ClusterKeyFile("", b"")}
    assert bare(NameServerProcess, script, "_serve", core=script, **more) == ""
    assert script.done == [*ORDER, "kick"]


def test_a_broker_redials_before_it_sends() -> None:
    script = Scripted()
    effects = script.handle([], Instant(0.0, 0))
    words = ("_carry_out", effects, None)
    more: dict[str, Any] = {"_audit": None, "_suspect": False, "_remembered": script.name_servers}
    assert bare(BrokerProcess, script, *words, _core=script, **more)
    assert script.done == [*ORDER, "kick"]


def test_a_client_redials_before_it_sends() -> None:
    script = Scripted()
    bare(IoThread, script, "_turn", core=script, _calls=deque(), _asleep=False)
    assert script.done == ORDER
