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
from logboom.wire.actor import Effects, Event, Instant, Received, Send

ORDER = ["redial b:1", "send b:1", "hang up b:2"]


class Scripted:
    """A core that wants everything at once, and to end; and the sockets that it gets."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.cluster_id = ""
        self.registered = False
        self.dropped = self.waiting = 0
        self.sends_dropped = self.sends_waiting_bytes = self.connections_closed = 0

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """All of it."""
        return Effects([Send("b:1", [b"hello"])], ["b:1"], ["b:2"], stop="")

    def deadline(self) -> float | None:
        """At once."""
        return 0.0

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


def bare(skin: type[Any], script: Scripted, turn: str, *words: Any, **more: Any) -> Any:
    """What `turn` of a skin gives that has neither ports nor disk nor a thread."""
    made = object.__new__(skin)
    for name, value in {"_sockets": script, "_stopping": False, **more}.items():
        setattr(made, name, value)
    return getattr(made, turn)(*words)


def test_a_name_server_redials_before_it_sends() -> None:
    script = Scripted()
    assert bare(NameServerProcess, script, "_serve", core=script) == ""
    assert script.done == ORDER


def test_a_broker_redials_before_it_sends() -> None:
    script = Scripted()
    effects = script.handle([], Instant(0.0, 0))
    words = ("_carry_out", effects, None)
    assert bare(BrokerProcess, script, *words, _core=script, _suspect=False)
    assert script.done == ORDER


def test_a_client_redials_before_it_sends() -> None:
    script = Scripted()
    bare(IoThread, script, "_turn", core=script, _calls=deque(), _asleep=False)
    assert script.done == ORDER
