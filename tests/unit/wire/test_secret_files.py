"""Secrets from files, the environment and systemd, by one rule of who may read them."""

import os
import re
from pathlib import Path

import pytest

from logboom.wire.errors import StartError
from logboom.wire.secret_files import MAX_SECRET_BYTES, mode_fault, read_secret, source_below

SECRET = b"not to be quoted"
US, SOMEBODY = 1_000, 1_001


@pytest.mark.parametrize(
    ("owner", "mode", "kept"),
    [
        (US, 0o600, True),
        (US, 0o400, True),
        (US, 0o440, False),
        (US, 0o640, False),
        (US, 0o700, False),
        (0, 0o400, True),
        (0, 0o440, True),  # a secret of Kubernetes with fsGroup
        (0, 0o640, True),
        (0, 0o660, False),
        (0, 0o444, False),
        (0, 0o644, False),
        (SOMEBODY, 0o600, False),
        (SOMEBODY, 0o440, False),
    ],
)
def test_who_may_read_a_secret(owner: int, mode: int, kept: bool) -> None:
    assert (mode_fault(owner, mode, US, Path("key")) == "") is kept


@pytest.mark.parametrize(
    ("owner", "user", "remedy"), [(US, US, "600"), (0, 0, "600"), (0, US, "640")]
)
def test_the_remedy_is_a_mode_that_lets_this_user_read(owner: int, user: int, remedy: str) -> None:
    path = Path("/run/PATH/key")
    assert f": chmod {remedy} {path}" in mode_fault(owner, 0o644, user, path)
    assert mode_fault(owner, int(remedy, 8), user, path) == ""


@pytest.mark.parametrize("mode", [0o440, 0o640, 0o604, 0o700])
def test_a_file_of_this_user_is_read_if_nobody_else_can(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    assert read_secret(path, "the secret") == SECRET
    path.chmod(mode)
    with pytest.raises(StartError, match=re.escape(f"chmod 600 {path}")) as caught:
        read_secret(path, "the secret")
    assert SECRET.decode() not in caught.value.text


def test_links_are_followed_as_kubernetes_makes_them(tmp_path: Path) -> None:
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "tls.key").symlink_to("..data/tls.key")
    real = tmp_path / "..2026" / "tls.key"
    real.write_bytes(SECRET)
    real.chmod(0o400)
    assert read_secret(tmp_path / "tls.key", "the key") == SECRET
    real.chmod(0o444)
    with pytest.raises(StartError, match="by others"):
        read_secret(tmp_path / "tls.key", "the key")


def test_a_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOM_KEY", SECRET.decode())
    assert read_secret("env:BOOM_KEY", "the key") == SECRET
    monkeypatch.delenv("BOOM_KEY")
    with pytest.raises(StartError, match=r"the key env:BOOM_KEY is not set .*: set it"):
        read_secret("env:BOOM_KEY", "the key", "set it")


def test_a_credential_of_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "unit"
    folder.mkdir()
    (folder / "cluster.key").write_bytes(SECRET)
    (folder / "cluster.key").chmod(0o440)
    (tmp_path / "beside").write_bytes(SECRET)
    with pytest.raises(StartError, match="LoadCredential="):
        read_secret("credential:cluster.key", "the key")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    assert read_secret("credential:cluster.key", "the key") == SECRET
    for name in ("../beside", str(tmp_path / "beside")):
        with pytest.raises(StartError, match="LoadCredential="):
            read_secret(f"credential:{name}", "the key")
    with pytest.raises(StartError, match="No such file"):
        read_secret("credential:other", "the key")


def test_what_is_no_file_or_too_long_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, said in (("pipe", "no regular file"), (".", "no regular file"), ("x", "No such")):
        with pytest.raises(StartError, match=f"{said}.*: do this"):
            read_secret(tmp_path / name, "the secret", "do this")
    (tmp_path / "long").write_bytes(bytes(MAX_SECRET_BYTES + 1))
    (tmp_path / "long").chmod(0o600)
    with pytest.raises(StartError, match="more than"):
        read_secret(tmp_path / "long", "the secret")


def test_paths_begin_at_a_folder_and_other_sources_stay(tmp_path: Path) -> None:
    assert source_below("cluster.key", tmp_path) == str(tmp_path / "cluster.key")
    assert source_below("/etc/cluster.key", tmp_path) == "/etc/cluster.key"
    assert source_below("~/x", tmp_path) == str(Path.home() / "x")
    assert source_below("env:KEY", tmp_path) == "env:KEY"
    assert source_below("credential:key", tmp_path) == "credential:key"
