"""The links between the nodes of a cluster, and how they are broken: by our proxy."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import Any, Protocol

from logboom.deploy.closeable import Closeable
from logboom.wire.listeners import is_loopback
from tests.chaos.proxy import CLIENT


class Links(Protocol):
    """Something that stands between the nodes."""

    kind: str
    """What it is, in one word."""

    def home(self, name: str, endpoint: str) -> str:
        """Where node `name`, which was given `endpoint`, listens."""

    def front(self, name: str, endpoint: str) -> str:
        """Where others reach what was given `endpoint` on node `name`."""

    def launcher(self, name: str) -> list[str]:
        """Words before a command that runs as node `name`, or as `CLIENT`."""

    def cut(self, sender: str, receiver: str) -> None:
        """What one side sends the other does not arrive, until `heal`."""

    def heal(self) -> None:
        """Everything flows again."""

    def close(self) -> None:
        """Give everything back."""


def adjusted(links: Links, settings: dict[str, Any]) -> dict[str, Any]:
    """A founding node's settings, so that it is reached and reaches others through `links`."""
    name = settings["id"]
    home = links.home(name, settings["listen"])
    listen: dict[str, Any] = {"listen": home}
    if not is_loopback(home):
        listen["insecure"] = True
    if "raft_listen" in settings:
        members = [
            member
            | {key: links.front(member["id"], member[key]) for key in ("endpoint", "raft_endpoint")}
            for member in settings["name_servers"]
        ]
        listen["raft_listen"] = links.home(name, settings["raft_listen"])
        return settings | listen | {"name_servers": members}
    servers = [
        links.front(f"name-{number}", endpoint)
        for number, endpoint in enumerate(settings["name_servers"], 1)
    ]
    listen["advertise"] = links.front(name, settings["listen"])
    return settings | listen | {"name_servers": servers}


def part(links: Links, one: Iterable[str], other: Iterable[str]) -> None:
    """Cut two sides off from each other, both ways."""
    for a in one:
        for b in other:
            links.cut(a, b)
            links.cut(b, a)


class ProxyLinks(Closeable):
    """Every port of the cluster behind `tests.chaos.proxy`, a process of its own."""

    kind = "proxy"

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.proxy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._fronts: dict[str, str] = {}
        self._addresses: dict[str, str] = {}

    def home(self, name: str, endpoint: str) -> str:
        """See `Links`."""
        return endpoint

    def front(self, name: str, endpoint: str) -> str:
        """See `Links`: a port of the proxy that stands before it."""
        if endpoint not in self._fronts:
            self._fronts[endpoint] = self._do("front", name=name, target=endpoint)["endpoint"]
        return self._fronts[endpoint]

    def launcher(self, name: str) -> list[str]:
        """See `Links`: the shim of `tests.chaos.machine` gives connections the node's address."""
        return [] if name == CLIENT else ["env", f"CHAOS_ADDRESS={self.address(name)}"]

    def address(self, name: str) -> str:
        """The address that a node's connections have to come from."""
        if name not in self._addresses:
            self._addresses[name] = f"127.77.0.{len(self._addresses) + 1}"
            self._do("node", name=name, address=self._addresses[name])
        return self._addresses[name]

    def cut(self, sender: str, receiver: str) -> None:
        """See `Links`: bytes wait in the proxy and arrive after `heal`."""
        self._do("rule", **{"from": sender, "to": receiver, "hold": True, "delay": 0.0})

    def slow(self, sender: str, receiver: str, delay: float) -> None:
        """Everything from one side to the other takes `delay` seconds."""
        self._do("rule", **{"from": sender, "to": receiver, "hold": False, "delay": delay})

    def half_open(self, dialer: str, target: str) -> int:
        """The target's end of their connections goes; the dialer is not told. How many."""
        return int(self._do("half_open", **{"from": dialer, "to": target})["links"])

    def heal(self) -> None:
        """See `Links`."""
        self._do("clear")

    def _do(self, do: str, **fields: Any) -> dict[str, Any]:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
            return answer

    def close(self) -> None:
        """See `Links`."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(200)


__all__ = ["CLIENT", "Links", "ProxyLinks", "adjusted", "part"]
