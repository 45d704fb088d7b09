"""A process's clients of a cluster: as whom, and one for each cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logboom.pipeline import clients
from logboom.wire.errors import StartError, Unauthenticated


class Connected:
    """A client that is open."""

    def __init__(self) -> None:
        self.closed = False

    def wait_connected(self) -> None:
        """At once."""

    def close(self, timeout_s: float | None = None) -> None:
        """At once."""
        self.closed = True


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


def test_credentials_are_read_again_when_the_file_changes_or_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "job.toml"
    accepted = {"first"}

    class As(Connected):
        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def connect(_: str, *, credentials: str, **__: object) -> As:
        key = Path(credentials).read_text(encoding="utf-8")
        if not key:
            raise StartError("it is empty")
        if key not in accepted:
            raise Unauthenticated(f"{key} is not known")
        return As(key)

    monkeypatch.setattr(clients, "connect", connect)
    monkeypatch.setattr(clients, "_CLIENTS", {})
    cluster = f"a:1@{file}"

    def now() -> Any:
        return clients.client(cluster, 1.0)

    def write(key: str) -> None:
        (tmp_path / "new").write_text(key, encoding="utf-8")
        (tmp_path / "new").replace(file)

    write("first")
    first = now()
    # Half of it is written, it is away, or its key is not known yet: the older client goes on.
    for key in ("", None, "second"):
        if key is None:
            file.unlink()
        else:
            write(key)
        assert now() is first
        assert not first.closed
    accepted.add("second")
    second = now()
    assert second.key == "second"
    assert first.closed
    assert now() is second
    # The file says the same, and it is accepted again.
    tries = []

    def work(boom: Any) -> str:
        tries.append(boom)
        if boom is second:
            raise Unauthenticated("second is not known")
        return str(boom.key)

    assert clients.again(cluster, 1.0, work) == "second"
    assert second.closed
    assert tries == [second, now()]
    accepted.clear()
    with pytest.raises(Unauthenticated):
        clients.renewed(cluster, 1.0, now())
