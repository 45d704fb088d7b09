"""A TCP proxy that breaks links: `python -m tests.chaos.proxy`, driven by JSON lines on its input.

It stands in front of every port of a cluster, and knows who dials by the address that they come
from. Between two sides, each way by itself, bytes flow, wait ("hold": a cut cable;
what was under way arrives late, in order) or are delayed. A link can be torn at one end only, so
that the other goes on sending into the void (half open).

    {"do": "node", "name": "broker-1", "address": "127.77.0.1"}    → {}
    {"do": "front", "name": "broker-1", "target": "127.0.0.1:7711"}    → {"endpoint": …}
    {"do": "rule", "from": "broker-1", "to": "name-2", "hold": true, "delay": 0.0}    → {}
    {"do": "half_open", "from": "broker-1", "to": "broker-2"}    → {"links": 2}
    {"do": "clear"}    → {}
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

CHUNK: Final = 256 * 1024
MOST_WAITING: Final = 4 * 1024 * 1024
"""Bytes of one way that wait in here; past it the sender's own buffers fill."""
CLIENT: Final = "client"
"""Whoever dials from another address than a node's."""
ABORT: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""


@dataclass(slots=True)
class Rule:
    """What happens to bytes from one side to another."""

    hold: bool = False
    delay: float = 0.0
    """Seconds."""


@dataclass(slots=True)
class Way:
    """One direction of a link: from one socket to the other."""

    sender: str
    receiver: str
    source: socket.socket
    sink: socket.socket
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    """(when it may leave, bytes)."""
    size: int = 0
    ended: bool = False
    """The source has closed; the sink is told when all has left."""


@dataclass(slots=True)
class Link:
    """A connection through us."""

    ways: tuple[Way, Way]
    dialer: str
    target: str
    void: bool = False
    """Half open: the target's end is gone, what the dialer sends is thrown away."""

    @property
    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """The dialer's end and the target's end."""
        return self.ways[0].source, self.ways[1].source


class Proxy:
    """All fronts and links; one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._rules: dict[tuple[str, str], Rule] = {}
        self._links: list[Link] = []
        self._names: dict[str, str] = {}
        """Address → the node whose connections come from there."""
        self.carried = 0
        """Bytes."""

    # -- commands -----------------------------------------------------------------------------

    def obey(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what one line says."""
        match command["do"]:
            case "node":
                self._names[command["address"]] = command["name"]
                return {}
            case "front":
                return {"endpoint": self._front(command["name"], command["target"])}
            case "rule":
                rule = Rule(command["hold"], command["delay"])
                self._rules[command["from"], command["to"]] = rule
                return {}
            case "half_open":
                return {"links": self._half_open(command["from"], command["to"])}
            case "clear":
                self._rules.clear()
                for link in [link for link in self._links if link.void]:
                    self._drop(link)
                return {}
            case other:
                raise ValueError(f"unknown command {other!r}")

    def _front(self, name: str, target: str) -> str:
        host, _, port = target.rpartition(":")
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        listener.setblocking(False)
        own = listener.getsockname()[1]

        def accept() -> None:
            try:
                dialled, address = listener.accept()
            except OSError:
                return
            dialer = self._names.get(address[0], CLIENT)
            self._connect(dialled, dialer, name, (host, int(port)))

        self._selector.register(listener, selectors.EVENT_READ, accept)
        return f"127.0.0.1:{own}"

    def _connect(
        self, dialled: socket.socket, dialer: str, name: str, target: tuple[str, int]
    ) -> None:
        dialled.setblocking(False)
        try:
            # Loopback: it answers or refuses at once. A paused node's kernel answers too.
            onward = socket.create_connection(target, timeout=1.0)
        except OSError:
            _abort(dialled)
            return
        onward.setblocking(False)
        for end in (dialled, onward):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        there = Way(dialer, name, dialled, onward)
        back = Way(name, dialer, onward, dialled)
        self._links.append(Link((there, back), dialer, name))

    def _half_open(self, dialer: str, target: str) -> int:
        """The target's end of all links goes away without a word to the dialer."""
        found = [link for link in self._links if (link.dialer, link.target) == (dialer, target)]
        for link in found:
            link.void = True
            self._watch(link.sockets[1], 0)
            _abort(link.sockets[1])
            for way in link.ways:
                way.waiting.clear()
                way.size = 0
        return len(found)

    # -- carrying -----------------------------------------------------------------------------

    def turn(self, command: Callable[[], None], command_file: int) -> None:
        """Carry what there is; wait for more, or for a command."""
        if command_file not in self._selector.get_map():
            self._selector.register(command_file, selectors.EVENT_READ, command)
        now = time.monotonic()
        due = [self._arm(link, now) for link in self._links]
        soonest = min((at for at in due if at is not None), default=None)
        wait = None if soonest is None else max(0.0, soonest - now)
        for key, events in self._selector.select(wait):
            if callable(key.data):
                key.data()
            elif not self._carry(key.data, key.fileobj, events):
                self._drop(key.data)

    def _arm(self, link: Link, now: float) -> float | None:
        """Watch the ends for what they may do now; when the next delayed bytes may leave."""
        wanted = dict.fromkeys(link.sockets, 0)
        due = []
        for way in link.ways:
            hold = self._rule(way).hold
            if link.void:
                hold = way is link.ways[1]
            if not hold and not way.ended and way.size < MOST_WAITING:
                wanted[way.source] |= selectors.EVENT_READ
            if not hold and way.waiting:
                if way.waiting[0][0] <= now:
                    wanted[way.sink] |= selectors.EVENT_WRITE
                else:
                    due.append(way.waiting[0][0])
        for end, events in wanted.items():
            self._watch(end, events, link)
        return min(due, default=None)

    def _rule(self, way: Way) -> Rule:
        return self._rules.get((way.sender, way.receiver)) or Rule()

    def _watch(self, end: socket.socket, events: int, link: Link | None = None) -> None:
        if end.fileno() < 0:
            return
        known = self._selector.get_map().get(end)
        if known is None and events:
            self._selector.register(end, events, link)
        elif known is not None and not events:
            self._selector.unregister(end)
        elif known is not None and known.events != events:
            self._selector.modify(end, events, link)

    def _carry(self, link: Link, end: object, events: int) -> bool:
        """Move bytes at one end; False: the link is over."""
        try:
            for way in link.ways:
                if end is way.source and events & selectors.EVENT_READ:
                    self._take(link, way)
                # A command of this very turn may have thrown away what waited.
                if end is way.sink and events & selectors.EVENT_WRITE and way.waiting:
                    self._give(way)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return not any(way.ended and not way.waiting for way in link.ways)

    def _take(self, link: Link, way: Way) -> None:
        taken = way.source.recv(CHUNK)
        if not taken:
            way.ended = True
        elif not link.void:
            due = time.monotonic() + self._rule(way).delay
            way.waiting.append((due, taken))
            way.size += len(taken)
            self.carried += len(taken)

    def _give(self, way: Way) -> None:
        due, content = way.waiting[0]
        given = way.sink.send(content)
        way.size -= given
        if given < len(content):
            way.waiting[0] = (due, content[given:])
        else:
            way.waiting.popleft()

    def _drop(self, link: Link) -> None:
        if link in self._links:
            self._links.remove(link)
        for end in link.sockets:
            self._watch(end, 0)
            _abort(end)


def _abort(end: socket.socket) -> None:
    if end.fileno() >= 0:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        end.close()


def main() -> int:
    """Serve until the standard input ends."""
    proxy = Proxy()
    lines = sys.stdin.buffer.raw  # type: ignore[union-attr]  # a BufferedReader when it is a pipe
    pending = bytearray()
    open_ = True

    def command() -> None:
        nonlocal open_
        content = lines.read(65_536)
        open_ = bool(content)
        pending.extend(content)
        while b"\n" in pending:
            line, _, rest = bytes(pending).partition(b"\n")
            pending[:] = rest
            sys.stdout.write(json.dumps(proxy.obey(json.loads(line))) + "\n")
            sys.stdout.flush()

    while open_:
        proxy.turn(command, sys.stdin.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
