"""Links of the kernel: a network namespace for each node, a bridge, and iptables that drop packets.

What the proxy cannot show: a peer that vanishes without a word, connections whose packets go one
way only, a SYN that nobody answers. It needs root, `ip` (iproute2), `iptables` and `nsenter`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

TOOLS: Final = ("ip", "iptables", "nsenter")
MARK: Final = "boom"
"""What all names of ours begin with; the process id follows."""


def _do(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def obstacle() -> str:
    """Why this machine allows no namespaces; "" when it does."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"{missing[0]} is missing: install iproute2, iptables and util-linux"
    clear_left_over()
    try:
        links = NamespaceLinks()
        try:
            links.home("name-1", "127.0.0.1:1")
            links.cut("client", "name-1")
        finally:
            links.close()
    except OSError as error:
        return f"not allowed here: {error}"
    return ""


def clear_left_over() -> None:
    """Remove what runs that were killed have left."""
    listed = [line.split()[0] for line in _do("ip", "netns", "list").splitlines() if line]
    shown = _do("ip", "-o", "link", "show", "type", "bridge").splitlines()
    bridges = [line.split(": ")[1] for line in shown]
    for name in (*listed, *bridges):
        digits = name.removeprefix(MARK).partition("-")[0]
        if name.startswith(MARK) and digits.isdigit() and not Path("/proc", digits).exists():
            _do("ip", "netns" if name in listed else "link", "del", name)


class NamespaceLinks:
    """Each node, and all clients together, in a network of their own; this process reaches all."""

    kind = "namespaces"

    def __init__(self) -> None:
        """Make the bridge.

        Raises:
            OSError: it is not allowed.
        """
        self._mark = f"{MARK}{os.getpid()}"
        # Several runs at once: a network for each.
        self._net = f"10.{64 + os.getpid() // 256 % 64}.{os.getpid() % 256}"
        self._addresses: dict[str, str] = {}
        _do("ip", "link", "add", self._bridge, "type", "bridge")
        try:
            _do("ip", "addr", "add", f"{self._net}.254/24", "dev", self._bridge)
            _do("ip", "link", "set", self._bridge, "up")
        except OSError:
            self.close()
            raise

    @property
    def _bridge(self) -> str:
        return f"{self._mark}-b"

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _inside(self, name: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self._space(name)}"]

    def _address(self, name: str) -> str:
        """The address of a node; its namespace is made when it is first asked for."""
        if name not in self._addresses:
            number = len(self._addresses) + 1
            space, outer = self._space(name), f"{self._mark}-{number}"
            _do("ip", "netns", "add", space)
            self._addresses[name] = f"{self._net}.{number}"
            _do("ip", "link", "add", outer, "type", "veth", "peer", "eth0", "netns", space)
            _do("ip", "link", "set", outer, "master", self._bridge, "up")
            inside = self._inside(name)
            _do(*inside, "ip", "addr", "add", f"{self._addresses[name]}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _do(*inside, "ip", "link", "set", device, "up")
        return self._addresses[name]

    def home(self, name: str, endpoint: str) -> str:
        """See `Links`: the same port at the node's own address."""
        return f"{self._address(name)}:{endpoint.rpartition(':')[2]}"

    def front(self, name: str, endpoint: str) -> str:
        """See `Links`: nothing stands before it."""
        return self.home(name, endpoint)

    def launcher(self, name: str) -> list[str]:
        """See `Links`."""
        self._address(name)
        return self._inside(name)

    def cut(self, sender: str, receiver: str) -> None:
        """See `Links`: packets are dropped where they arrive."""
        rule = ("-A", "INPUT", "-s", self._address(sender), "-j", "DROP")
        _do(*self._inside(receiver), "iptables", "--wait", *rule)

    def heal(self) -> None:
        """See `Links`."""
        for name in self._addresses:
            _do(*self._inside(name), "iptables", "--wait", "-F", "INPUT")

    def close(self) -> None:
        """See `Links`."""
        for name in self._addresses:
            _do("ip", "netns", "del", self._space(name))
        self._addresses.clear()
        _do("ip", "link", "del", self._bridge)
