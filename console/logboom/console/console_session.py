"""Sessions: a signed cookie with an id and a name, and the token against forged forms; pure.

Nothing is kept at the server, so a session ends by its age, by signing out, or with the console,
which draws a new secret at each start. The token is derived from the id of the session: another
site can neither read nor guess it.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

import msgspec
from itsdangerous import BadData, URLSafeTimedSerializer

SESSION_S: Final = 12 * 3_600
"""Seconds after which a viewer must sign in again."""
MESSAGE_S: Final = 120
"""Seconds for which the message of an action waits for its page."""


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """One browser of one viewer."""

    id: str
    viewer: str
    """"" until it has signed in."""


@dataclass(frozen=True, slots=True)
class Told:
    """The message that a page shows once, after an action."""

    tone: str
    text: str


class SessionSigner:
    """Writes and reads the cookies of one console."""

    def __init__(self, secret: bytes, port: int) -> None:
        self._secret = secret
        self._sessions = URLSafeTimedSerializer(secret, salt="session")
        self._messages = URLSafeTimedSerializer(secret, salt="message")
        # Cookies belong to a host, whatever its port: two consoles must not share theirs.
        self.session_cookie = f"logboom_session_{port}"
        self.message_cookie = f"logboom_message_{port}"

    def session_text(self, session: ConsoleSession) -> str:
        """Return the value of a session's cookie."""
        return self._sessions.dumps([session.id, session.viewer])

    def session_of(self, text: str) -> ConsoleSession | None:
        """Return the session of a cookie, or None if it is too old or not ours."""
        found = _signed_pair(self._sessions, text, SESSION_S)
        return None if found is None else ConsoleSession(*found)

    def message_text(self, told: Told) -> str:
        """Return the value of a message's cookie."""
        return self._messages.dumps([told.tone, told.text])

    def message_of(self, text: str) -> Told | None:
        """Return the message of a cookie, or None if it is too old or not ours."""
        found = _signed_pair(self._messages, text, MESSAGE_S)
        return None if found is None else Told(*found)

    def form_token(self, session: ConsoleSession) -> str:
        """Return what every form of a session has to send along."""
        return hmac.new(self._secret, f"form:{session.id}".encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, session: ConsoleSession, token: str) -> bool:
        """True if a form came from a page of this session."""
        return hmac.compare_digest(self.form_token(session).encode(), token.encode())


def _signed_pair(
    signer: URLSafeTimedSerializer, text: str, max_age_s: int
) -> tuple[str, str] | None:
    """Return the two texts of a cookie, or None if it is too old or not ours."""
    try:
        return msgspec.convert(signer.loads(text, max_age=max_age_s), tuple[str, str])
    except (BadData, msgspec.ValidationError):
        return None
