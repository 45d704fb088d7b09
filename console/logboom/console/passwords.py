"""Passwords of viewers: what may be one, how it is kept, and whether one is right; pure.

A password is kept as its Argon2id hash, with the parameters that `argon2-cffi` recommends. Checking
one takes some 50 ms and 64 MiB on purpose: callers check one at a time, and outside the event loop.
"""

from __future__ import annotations

from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from logboom.wire.errors import InvalidRequest

MIN_PASSWORD_CHARS: Final = 8
MAX_PASSWORD_BYTES: Final = 1_024
"""More would only cost time."""
_HASHER: Final = PasswordHasher()
_OF_NOBODY: Final = (
    "$argon2id$v=19$m=65536,t=3,p=4$bm9ib2R5IGhhcyB0aGlz$"
    "3rTIhHFzKbu7mzxpxPU0yU0ROVSCGnlPSzzBxnYuU0E"
)
"""A hash that no password has been hashed to."""


def hash_password(password: str) -> str:
    """Return what is kept of a password.

    Raises:
        InvalidRequest: it is too short or too long.
    """
    if len(password) < MIN_PASSWORD_CHARS:
        raise InvalidRequest(
            f"the password has {len(password)} characters: use {MIN_PASSWORD_CHARS} or more, for "
            "example four words"
        )
    if len(password.encode("utf-8", "surrogatepass")) > MAX_PASSWORD_BYTES:
        raise InvalidRequest(f"the password has more than {MAX_PASSWORD_BYTES} bytes: shorten it")
    return _HASHER.hash(password.encode("utf-8", "surrogatepass"))


def is_password(kept: str | None, password: str) -> bool:
    """Return True if a password is the one that was hashed.

    Args:
        kept: the hash; None: there is no such viewer. It takes the same time, so that nobody learns
            which viewers there are.
    """
    given = password.encode("utf-8", "surrogatepass")[: MAX_PASSWORD_BYTES + 1]
    try:
        _HASHER.verify(kept if kept is not None else _OF_NOBODY, given)
    except (VerificationError, InvalidHashError):
        return False
    return kept is not None and len(given) <= MAX_PASSWORD_BYTES


def is_hash(text: str) -> bool:
    """Return True if a text can be the hash of a password."""
    try:
        _HASHER.check_needs_rehash(text)
    except InvalidHashError:
        return False
    return text.startswith("$argon2id$")
