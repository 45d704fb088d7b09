"""Who may connect to a listener with keys, pure: a public key in, a verdict out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

from logboom.wire.access.access_book import AccessBook


class Verdict(NamedTuple):
    """What becomes of a connection."""

    status: Literal["accepted", "refused", "later"]
    """later: it cannot be said yet, so the handshake waits."""
    principal: str = ""
    """Of an accepted key."""


REFUSED: Final = Verdict("refused")
LATER: Final = Verdict("later")

Authenticate: TypeAlias = Callable[[str, str, str], Verdict]
"""(public key in Z85, the peer's IP address, name of the listener) → verdict."""


def verdict_on(principal: str | None, book: AccessBook) -> Verdict:
    """Return the verdict on a key, given its principal; None: nobody has it, as far as is known.

    A key is refused only once this node knows any users: before that, handshakes wait (S4).
    """
    if principal is not None:
        return Verdict("accepted", principal)
    return REFUSED if book.known and book.users else LATER
