"""`logboom cluster upgrade`: what a level brings, and when it is not raised."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from logboom.cli import upgrade_commands
from logboom.cli.upgrade_commands import finalize, status
from logboom.wire.errors import InvalidRequest
from logboom.wire.features import BRINGS, FEATURES
from logboom.wire.messages import NodeVersion, VersionsDescribed


def show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], level: int, offered: int
) -> str:
    """Return what `status` says of a cluster."""
    node = NodeVersion("name-1", "name-server", "9.0.0", offered, "")
    versions = VersionsDescribed(0, level, offered, [node])
    boom = SimpleNamespace(admin=SimpleNamespace(versions=lambda: versions))
    monkeypatch.setattr(upgrade_commands, "open_client", lambda _: nullcontext(boom))
    status()
    return capsys.readouterr().err


def test_levels_of_a_later_release_are_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = show(monkeypatch, capsys, FEATURES, FEATURES + 1)
    assert "brings: what this command is too old to name. " in text
    assert "upgrade finalize" in text


def test_known_levels_are_told_of_and_the_same_level_is_nothing_to_finalize(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"brings: {BRINGS[1]}. " in show(monkeypatch, capsys, 0, 1)
    assert "nothing to finalize" in show(monkeypatch, capsys, 1, 1)


def test_the_level_is_raised_only_if_nothing_hinders_it_and_it_is_agreed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raised: list[int] = []

    def cluster(offered: int, hinders: str = "") -> None:
        node = NodeVersion("broker-1", "broker", "9.0.0", offered, hinders)
        versions = VersionsDescribed(0, 0, offered, [node])
        admin = SimpleNamespace(versions=lambda: versions, finalize_upgrade=raised.append)
        boom = SimpleNamespace(admin=admin)
        monkeypatch.setattr(upgrade_commands, "open_operator_client", lambda _: nullcontext(boom))

    cluster(1, "broker-1 reads level 0")
    with pytest.raises(InvalidRequest, match="broker-1 reads level 0"):
        finalize(yes=True)
    cluster(0)
    finalize(yes=True)
    assert "nothing to finalize" in capsys.readouterr().err
    cluster(1)
    with pytest.raises(InvalidRequest, match="say --yes"):
        finalize()
    assert raised == []
    finalize(yes=True)
    assert raised == [1]
