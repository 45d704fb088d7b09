"""`logboom node add`: a command that was refused leaves no folder that hinders the next one."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from logboom.cli import node_commands
from logboom.cli.node_commands import add
from logboom.wire.errors import LogboomError, Refused, StartError, Unavailable


def let_fail(error: LogboomError, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cluster answer a new user with an error."""

    def create_user(*_: object, **__: object) -> None:
        raise error

    admin = SimpleNamespace(
        brokers=list,
        name_servers=lambda: [SimpleNamespace(id="name-1", endpoint="a:7701", keys=[])],
        cluster_id=lambda: "0" * 32,
        create_user=create_user,
    )
    boom = SimpleNamespace(admin=admin)
    monkeypatch.setattr(node_commands, "open_operator_client", lambda _: nullcontext(boom))


def test_what_was_refused_may_be_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "broker-4"
    let_fail(Refused("alice may not"), monkeypatch)
    for _ in range(2):
        with pytest.raises(Refused):
            add("broker-4", "10.0.0.4:7711", folder)
        assert not folder.exists()


def test_a_key_that_may_count_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "broker-4"
    let_fail(Unavailable("no answer"), monkeypatch)
    with pytest.raises(Unavailable):
        add("broker-4", "10.0.0.4:7711", folder)
    (file,) = folder.iterdir()
    assert f"{file} stays" in capsys.readouterr().err
    with pytest.raises(StartError, match="never overwritten"):
        add("broker-4", "10.0.0.4:7711", folder)
