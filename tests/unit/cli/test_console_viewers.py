"""`logboom console viewer`: the file of viewers from the command line."""

from __future__ import annotations

import getpass
import io
import sys
from pathlib import Path

import pytest

from logboom.cli.console_commands import add_viewer, remove_viewer, set_password
from logboom.console.passwords import is_password
from logboom.console.viewers_file import read_viewers
from logboom.wire.errors import AlreadyExists, InvalidRequest, StartError, UnknownResource


def secret(folder: Path, text: str) -> Path:
    path = folder / "password.txt"
    path.touch(0o600)
    path.write_text(f"{text}\n", encoding="utf-8")
    return path


def test_a_viewer_is_added_gets_a_new_password_and_is_removed(tmp_path: Path) -> None:
    viewers = tmp_path / "viewers.toml"
    file = secret(tmp_path, "a good password")
    add_viewer("alice", read_only=True, password_file=file, viewers=viewers)
    record = read_viewers(viewers)["alice"]
    assert record.read_only
    assert is_password(record.password, "a good password")
    with pytest.raises(AlreadyExists, match="viewer password alice"):
        add_viewer("alice", password_file=file, viewers=viewers)
    set_password("alice", password_file=secret(tmp_path, "another password"), viewers=viewers)
    record = read_viewers(viewers)["alice"]
    assert record.read_only
    assert is_password(record.password, "another password")
    with pytest.raises(UnknownResource, match="no viewer 'bob'"):
        remove_viewer("bob", viewers=viewers)
    remove_viewer("alice", viewers=viewers)
    assert read_viewers(viewers) == {}


def test_a_password_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = secret(tmp_path, "a good password")
    file.chmod(0o644)
    with pytest.raises(StartError, match="chmod 600"):
        add_viewer("alice", password_file=file, viewers=tmp_path / "viewers.toml")


def test_no_password_at_the_terminal_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(_: str) -> str:
        raise EOFError

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(getpass, "getpass", ended)
    with pytest.raises(InvalidRequest, match="no password was typed"):
        add_viewer("alice", viewers=tmp_path / "viewers.toml")


def test_a_password_that_is_no_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewers = tmp_path / "viewers.toml"
    file = secret(tmp_path, "")
    file.write_bytes(b"\xff a good password\n")
    with pytest.raises(StartError, match=f"{file} is no text"):
        add_viewer("alice", password_file=file, viewers=viewers)
    said = io.TextIOWrapper(io.BytesIO(file.read_bytes()), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", said)
    with pytest.raises(StartError, match="standard input is no text"):
        add_viewer("alice", password_file=Path("-"), viewers=viewers)
    assert not viewers.exists()


def test_a_password_comes_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewers = tmp_path / "viewers.toml"
    monkeypatch.setattr(sys, "stdin", io.StringIO("a good password\r\nthe next line\n"))
    add_viewer("alice", password_file=Path("-"), viewers=viewers)
    assert is_password(read_viewers(viewers)["alice"].password, "a good password")


def test_a_password_that_is_typed_otherwise_again_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["a good password", "another password"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(getpass, "getpass", lambda _: next(typed))
    with pytest.raises(InvalidRequest, match="differ"):
        add_viewer("alice", viewers=tmp_path / "viewers.toml")
    assert not (tmp_path / "viewers.toml").exists()
