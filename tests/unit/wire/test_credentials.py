"""Credentials files: what they say, who may read them, and clear errors that never quote a key."""

import os
import re
import stat
import traceback
from pathlib import Path

import pytest

from logboom.wire.credentials import (
    CREDENTIALS_REMEDY,
    Credentials,
    Server,
    format_credentials,
    format_servers,
    parse_credentials,
)
from logboom.wire.credentials_file import read_credentials, write_credentials
from logboom.wire.errors import StartError
from logboom.wire.key_pair import Secret
from logboom.wire.sockets import make_key_pair, public_key_of

PAIR = make_key_pair()
OTHER = make_key_pair()
SERVERS = (
    Server("name-1", "10.0.0.1:7701", OTHER.public),
    Server("name-1", "10.0.0.1:7701", PAIR.public),
    Server("name-2", "[::1]:7701", OTHER.public),
)
ALICE = Credentials("alice", "c1", PAIR, SERVERS)


def test_a_pair_is_made_and_its_public_key_found_again() -> None:
    assert len(PAIR.public) == 40
    assert public_key_of(PAIR.secret) == PAIR.public != OTHER.public


@pytest.mark.parametrize("given", [ALICE, Credentials("node:broker-1", "", OTHER)])
def test_what_is_written_is_read(tmp_path: Path, given: Credentials) -> None:
    path = tmp_path / "new" / "alice.toml"
    write_credentials(path, given)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_credentials(path) == given
    path.chmod(0o400)
    assert read_credentials(str(path)) == given
    assert PAIR.secret.reveal() not in repr(read_credentials(path))


def test_a_key_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "alice.toml"
    write_credentials(path, ALICE)
    with pytest.raises(StartError, match="move it away"):
        write_credentials(path, Credentials("bob", "", OTHER))
    assert read_credentials(path) == ALICE
    with pytest.raises(StartError, match="cannot write"):
        write_credentials(path / "below.toml", ALICE)


def test_a_key_is_not_written_where_a_link_leads(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "alice.toml", tmp_path / "elsewhere"
    path.symlink_to(elsewhere)
    with pytest.raises(StartError, match="cannot write"):
        write_credentials(path, ALICE)
    assert not elsewhere.exists()


@pytest.mark.parametrize("umask", [0, 0o777])
def test_the_umask_changes_nothing(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "alice.toml"
    before = os.umask(umask)
    try:
        write_credentials(path, ALICE)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_endpoints_and_the_keys_behind_them() -> None:
    assert ALICE.endpoints == ("10.0.0.1:7701", "[::1]:7701")
    assert ALICE.server_keys == {
        "10.0.0.1:7701": (OTHER.public, PAIR.public),
        "[::1]:7701": (OTHER.public,),
    }
    assert "secret" not in format_servers(SERVERS)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601, 0o700])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "alice.toml"
    write_credentials(path, ALICE)
    path.chmod(mode)
    with pytest.raises(StartError, match=re.escape(f"chmod 600 {path}")) as caught:
        read_credentials(path)
    assert caught.value.code == "BAD_CONFIG"


def test_a_service_managers_folder_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "inside" / "alice.toml"
    write_credentials(path, ALICE)
    path.chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(path.parent))
    assert read_credentials(path) == ALICE
    beside = tmp_path / "inside-not" / "alice.toml"
    write_credentials(beside, ALICE)
    beside.chmod(0o440)
    with pytest.raises(StartError, match="chmod 600"):
        read_credentials(beside)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "")
    with pytest.raises(StartError, match="chmod 600"):
        read_credentials(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "alice.toml"
    write_credentials(path, ALICE)
    os.chown(path, 12_345, -1)
    with pytest.raises(StartError, match="belongs to another user"):
        read_credentials(path)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, said in (("pipe", "no regular file"), (".", "no regular file"), ("x", "No such")):
        with pytest.raises(StartError, match=f"{said}.*{CREDENTIALS_REMEDY}"):
            read_credentials(tmp_path / name)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "bytes").chmod(0o600)
    with pytest.raises(StartError, match=f"not text: {CREDENTIALS_REMEDY}"):
        read_credentials(tmp_path / "bytes")


def test_keys_that_are_no_pair_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "alice.toml"
    mixed = PAIR._replace(secret=OTHER.secret)
    write_credentials(path, Credentials("alice", "", mixed))
    with pytest.raises(StartError, match="not a pair"):
        read_credentials(path)


TEXT = format_credentials(ALICE)
SECRET = PAIR.secret.reveal()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", f"user.*: {CREDENTIALS_REMEDY}"),
        (TEXT.replace("user =", "usr ="), "usr|user"),
        (TEXT.replace("alice", "no such name"), "user name"),
        (TEXT.replace(f'"{SECRET}"', f'"{SECRET[:-1]}"'), "secret_key is not 40"),
        (TEXT.replace(f'"{SECRET}"', "7"), "secret_key"),
        (TEXT.replace(f'"{SECRET}"', SECRET), f"line 5.*: {CREDENTIALS_REMEDY}"),
        (TEXT.replace(f'"{SECRET}"', f'"{SECRET}'), "line 5"),
        (TEXT.replace(f'public_key = "{PAIR.public}"', 'public_key = "x"', 1), "public_key"),
        (TEXT.replace("10.0.0.1:7701", "10.0.0.1"), "not an endpoint"),
        (TEXT.replace(OTHER.public, "short"), "public_key of 'name-1'"),
        (TEXT + "mode = 1\n", "mode"),
    ],
)
def test_what_is_wrong_is_said_without_the_secret(text: str, said: str) -> None:
    with pytest.raises(StartError, match=said) as caught:
        parse_credentials(text, "alice.toml")
    assert str(caught.value).startswith("alice.toml: ")
    assert "\n" not in str(caught.value)
    assert SECRET[:8] not in str(caught.value)


def test_an_error_of_a_file_holds_no_secret_in_its_frames(tmp_path: Path) -> None:
    path = tmp_path / "alice.toml"
    for wrong in ("mode = 1", "mode"):
        path.write_text(TEXT + wrong + "\n")
        path.chmod(0o600)
        try:
            read_credentials(path)
        except StartError as error:
            shown = "".join(
                traceback.TracebackException.from_exception(error, capture_locals=True).format()
            )
        assert "read_credentials" in shown
        assert SECRET not in shown


def test_a_pair_from_elsewhere_is_taken() -> None:
    # ZeroMQ RFC 26 has no vectors; this is the pair of the manual page zmq_curve(7).
    secret = Secret("D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs")
    assert public_key_of(secret) == "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
