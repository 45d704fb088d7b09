"""A process's clients of a cluster: as whom, and one for each cluster."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.pipeline import clients


class Connected:
    """A client that is open."""

    def wait_connected(self) -> None:
        """At once."""


@pytest.mark.parametrize(
    ("servers", "nodes", "file"),
    [
        ("a:1,b:2", "a:1,b:2", None),
        ("a:1,b:2@/etc/alice.toml", "a:1,b:2", "/etc/alice.toml"),
        ("@alice.toml", "", "alice.toml"),
        ("alice.toml", "alice.toml", None),
    ],
)
def test_a_cluster_is_one_text(
    monkeypatch: pytest.MonkeyPatch, servers: str, nodes: str, file: str | None
) -> None:
    asked: list[tuple[str, str | None]] = []

    def connect(endpoints: str, *, credentials: str | None, **_: Any) -> Connected:
        asked.append((endpoints, credentials))
        return Connected()

    monkeypatch.setattr(clients, "connect", connect)
    monkeypatch.setattr(clients, "_CLIENTS", {})
    first = clients.client(servers, 1.0)
    assert clients.client(servers, 1.0) is first
    assert asked == [(nodes, file)]
