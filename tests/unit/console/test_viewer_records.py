"""Passwords and viewers as the file has them, and the file itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.console.passwords import MAX_PASSWORD_BYTES, hash_password, is_hash, is_password
from logboom.console.viewer_records import (
    EndedSessions,
    SignedInBook,
    ViewerRecord,
    check_viewer_name,
    format_viewers,
    mark_of,
    parse_viewers,
)
from logboom.console.viewers import Viewer
from logboom.console.viewers_file import LOOK_S, ViewersFile, read_viewers, write_viewers
from logboom.wire.errors import InvalidRequest, StartError

HASH = hash_password("correct horse battery")
OTHER = hash_password("another good password")
ALICE = ViewerRecord(HASH)


def test_a_password_is_known_again_and_no_other() -> None:
    assert is_hash(HASH)
    assert HASH.startswith("$argon2id$")
    assert is_password(HASH, "correct horse battery")
    assert not is_password(HASH, "correct horse batterz")
    assert not is_password(HASH, "")
    assert not is_password(None, "correct horse battery")
    assert not is_password("no hash", "correct horse battery")
    assert hash_password("correct horse battery") != HASH


def test_a_password_is_neither_short_nor_endless() -> None:
    with pytest.raises(InvalidRequest, match="has 7 characters: use 8 or more"):
        hash_password("1234567")
    longest = "x" * MAX_PASSWORD_BYTES
    assert is_password(hash_password(longest), longest)
    assert not is_password(hash_password(longest), longest + "y")
    with pytest.raises(InvalidRequest, match="shorten it"):
        hash_password(longest + "y")


def test_any_text_is_a_password() -> None:
    odd = "päss\x00wort \udcff\n"
    assert is_password(hash_password(odd), odd)


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", fullmatch=True)
RECORDS = st.builds(
    ViewerRecord,
    st.sampled_from([HASH, OTHER]),
    st.booleans(),
    st.one_of(st.just(""), st.text(st.characters(codec="utf-8")).map(lambda text: f"/{text}")),
)


@given(st.dictionaries(NAMES, RECORDS, max_size=5))
def test_what_is_written_is_read_again(viewers: dict[str, ViewerRecord]) -> None:
    assert parse_viewers(format_viewers(viewers), "here") == viewers


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[viewers", "is no TOML"),
        ("viewers = 3", "is no file of viewers"),
        ("[viewers.alice]\npassword = 'secret'", "the password of alice is not a hash"),
        ("[viewers.alice]\nread_only = true", "is no file of viewers"),
        (f"[viewers.alice]\npassword = '{HASH}'\nadmin = true", "is no file of viewers"),
        (f"[viewers.'a b']\npassword = '{HASH}'", "viewer name 'a b' is not allowed"),
        (f"[viewers.a]\npassword = '{HASH}'\ncredentials = 'a.toml'", "must be an absolute path"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_without_hashes(text: str, said: str) -> None:
    with pytest.raises(StartError, match=said) as error:
        parse_viewers(text, "viewers.toml")
    assert HASH not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["", "a b", "<script>", "a" * 65, ".a", "a/b", "a\n"])
def test_a_name_is_plain(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not allowed"):
        check_viewer_name(name)


def test_a_new_password_ends_the_sessions_of_the_old_one() -> None:
    session = mark_of("alice", ALICE)
    assert SignedInBook({"alice": ALICE}).find(session) == Viewer("alice")
    assert SignedInBook({"alice": ViewerRecord(OTHER)}).find(session) is None
    assert SignedInBook({}).find(session) is None
    assert SignedInBook({"alice": ALICE}).find("alice") is None
    assert SignedInBook({"alice": ALICE}).find("") is None


def test_a_viewer_has_what_its_record_says() -> None:
    record = ViewerRecord(HASH, read_only=True, credentials="/etc/alice.toml")
    found = SignedInBook({"alice": record}).find(mark_of("alice", record))
    assert found == Viewer("alice", read_only=True, credentials="/etc/alice.toml")


def test_a_session_stays_ended_as_long_as_its_cookie_would_count() -> None:
    ended = EndedSessions(100.0)
    ended.add("one", 0.0)
    assert "one" in ended
    ended.add("two", 99.0)
    assert "one" in ended
    ended.add("three", 101.0)
    assert "one" not in ended
    assert "two" in ended


# The file.


def test_a_file_has_mode_0600_and_is_replaced_at_one_stroke(tmp_path: Path) -> None:
    path = tmp_path / "console" / "viewers.toml"
    assert read_viewers(path) == {}
    write_viewers(path, {"alice": ALICE})
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.stat().st_ino
    write_viewers(path, {"alice": ALICE, "bob": ViewerRecord(OTHER)})
    assert path.stat().st_ino != before
    assert set(read_viewers(path)) == {"alice", "bob"}
    assert [each.name for each in path.parent.iterdir()] == ["viewers.toml"]


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "viewers.toml"
    write_viewers(path, {"alice": ALICE})
    path.chmod(0o640)
    with pytest.raises(StartError, match="chmod 600"):
        read_viewers(path)
    with pytest.raises(StartError, match="no regular file"):
        read_viewers(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(StartError, match="no regular file"):
        read_viewers(tmp_path / "pipe")


def test_a_console_that_runs_follows_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "viewers.toml"
    write_viewers(path, {"alice": ALICE})
    now = 1000.0
    monkeypatch.setattr("logboom.console.viewers_file.time.monotonic", lambda: now)
    book = ViewersFile(path)
    session = mark_of("alice", ALICE)
    assert book.find(session) == Viewer("alice")
    write_viewers(path, {"bob": ViewerRecord(OTHER)})
    now += LOOK_S
    assert book.find(session) is None
    assert set(book.viewers) == {"bob"}
    # What cannot be used lets nobody in.
    path.chmod(0o644)
    path.write_text("nonsense", encoding="utf-8")
    now += LOOK_S
    assert book.viewers == {}
    path.unlink()
    now += LOOK_S
    assert book.viewers == {}
