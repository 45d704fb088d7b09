"""The viewers of a console as its file has them; pure.

    [viewers.alice]
    password = "$argon2id$…"
    read_only = true
    credentials = "/etc/logboom/alice.toml"

`logboom console viewer` writes the file. A session names its viewer together with a mark of the
password's hash, so that a new password ends all sessions of the old one.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from logboom.console.passwords import is_hash
from logboom.console.viewers import Viewer
from logboom.wire.errors import InvalidRequest, StartError

MAX_VIEWERS: Final = 1_000
HEADER: Final = "# Viewers of the console, with hashes of their passwords: `logboom console viewer` writes this.\n"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class ViewerRecord(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A viewer in the file."""

    password: str
    """The hash of its password."""
    read_only: bool = False
    credentials: str = ""
    """An absolute path of its own credentials file; "": the console's count."""


class _ViewersText(Struct, frozen=True, forbid_unknown_fields=True):
    viewers: dict[str, ViewerRecord] = {}


def check_viewer_name(name: str) -> None:
    """Check the name of a viewer.

    Raises:
        InvalidRequest: it is not valid; the text states the rule.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"viewer name {name[:80]!r} is not allowed: use 1 to 64 of the characters A-Z a-z 0-9 . _ "
            "@ -, beginning with a letter or a digit",
            "INVALID_NAME",
        )


def parse_viewers(text: str, where: str) -> dict[str, ViewerRecord]:
    """Return the viewers in the text of a file; `where` names it in errors.

    Raises:
        StartError: BAD_CONFIG, with what is wrong; hashes are not told.
    """
    try:
        found = msgspec.convert(tomllib.loads(text), _ViewersText).viewers
    except tomllib.TOMLDecodeError:
        raise StartError(f"{where} is no TOML: `logboom console viewer add` writes it") from None
    except msgspec.ValidationError as error:
        raise StartError(f"{where} is no file of viewers ({error})") from None
    for name, record in found.items():
        try:
            check_viewer_name(name)
        except InvalidRequest as error:
            raise StartError(f"{where}: {error.text}") from None
        if not is_hash(record.password):
            raise StartError(
                f"{where}: the password of {name} is not a hash: set it with `logboom console viewer "
                f"add {name}`"
            )
        if record.credentials and not record.credentials.startswith("/"):
            raise StartError(f"{where}: the credentials of {name} must be an absolute path")
    return found


def format_viewers(viewers: Mapping[str, ViewerRecord]) -> str:
    """Return the text of the file."""
    parts = [HEADER]
    for name, record in sorted(viewers.items()):
        lines = [f"[viewers.{_quoted(name)}]", f"password = {_quoted(record.password)}"]
        if record.read_only:
            lines.append("read_only = true")
        if record.credentials:
            lines.append(f"credentials = {_quoted(record.credentials)}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _quoted(text: str) -> str:
    """Return a basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def mark_of(name: str, record: ViewerRecord) -> str:
    """Return what a session has of its viewer: the name, and a mark of the password."""
    return f"{name}/{hashlib.sha256(record.password.encode()).hexdigest()[:16]}"


class SignedInBook:
    """The viewers of a console by what their sessions have."""

    must_sign_in = True

    def __init__(self, viewers: Mapping[str, ViewerRecord]) -> None:
        self.viewers = viewers
        self._by_mark: dict[str, Viewer] = {}
        self.replace(viewers)

    def replace(self, viewers: Mapping[str, ViewerRecord]) -> None:
        """Take over the viewers of a file that was changed."""
        self.viewers = viewers
        self._by_mark = {
            mark_of(name, record): viewer_of(name, record) for name, record in viewers.items()
        }

    def find(self, name: str) -> Viewer | None:
        """Return the viewer of a session, or None if it must sign in."""
        return self._by_mark.get(name)


def viewer_of(name: str, record: ViewerRecord) -> Viewer:
    """Return the viewer of a record."""
    return Viewer(name, record.read_only, record.credentials or None)


class EndedSessions:
    """The sessions that were signed out, until they would have ended anyway.

    A cookie says by itself that it is good. So a copy of one that was signed out must be known here.
    """

    def __init__(self, session_s: float) -> None:
        self._session_s = session_s
        self._ended: dict[str, float] = {}
        """Id of a session → when it can be forgotten; the oldest first."""

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._ended

    def add(self, session_id: str, now_mono_s: float) -> None:
        """End a session."""
        for old in [*self._ended]:
            if self._ended[old] > now_mono_s:
                break
            del self._ended[old]
        self._ended[session_id] = now_mono_s + self._session_s
