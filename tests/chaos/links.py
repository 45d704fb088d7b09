"""The links between the nodes of a cluster, and how they are broken: by our proxy."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Protocol, Self

from tests.chaos.proxy import CLIENT


class Links(Protocol):
    """Something that stands between the nodes."""

    def adjust(self, settings: dict[str, Any]) -> dict[str, Any]:
        """A node's settings, so that it is reached and reaches others through here."""

    def launcher(self, name: str) -> list[str]:
        """Words before a node's command."""

    def reached(self, endpoint: str) -> str:
        """Where clients dial a node that listens at `endpoint`."""

    def cut(self, sender: str, receiver: str) -> None:
        """What one side sends the other does not arrive, until `heal`."""

    def heal(self) -> None:
        """Everything flows again."""

    def close(self) -> None:
        """Give everything back."""


def part(links: Links, one: Iterable[str], other: Iterable[str]) -> None:
    """Cut two sides off from each other, both ways."""
    for a in one:
        for b in other:
            links.cut(a, b)
            links.cut(b, a)


class ProxyLinks:
    """Every port of the cluster behind `tests.chaos.proxy`, a process of its own."""

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def front(self, name: str, target: str) -> str:
        """The endpoint that stands before `target`, a port of node `name`."""
        if target not in self._fronts:
            self._fronts[target] = self._do("front", name=name, target=target)["endpoint"]
        return self._fronts[target]

    def adjust(self, settings: dict[str, Any]) -> dict[str, Any]:
        """See `Links`."""
        if "raft_listen" in settings:
            members = [
                member
                | {
                    "endpoint": self.front(member["id"], member["endpoint"]),
                    "raft_endpoint": self.front(member["id"], member["raft_endpoint"]),
                }
                for member in settings["name_servers"]
            ]
            return settings | {"name_servers": members}
        servers = [
            self.front(f"name-{number}", endpoint)
            for number, endpoint in enumerate(settings["name_servers"], 1)
        ]
        return settings | {
            "name_servers": servers,
            "advertise": self.front(settings["id"], settings["listen"]),
        }

    def launcher(self, name: str) -> list[str]:
        """See `Links`: the proxy knows a process by its command line."""
        return []

    def reached(self, endpoint: str) -> str:
        """See `Links`."""
        return self._fronts[endpoint]

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
        self._process.wait(10)


__all__ = ["CLIENT", "Links", "ProxyLinks", "part"]
