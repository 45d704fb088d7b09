"""Who looks at the console, pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person who is signed in; every request has one."""

    name: str
    read_only: bool = False
    """True if it may not act."""
    credentials: str | None = None
    """The path of the credentials file with which the console asks the cluster for it; None: the console's."""


LOCAL_VIEWER: Final = Viewer("local")
"""Whoever reaches a console that listens on this machine alone, and has no viewers."""


class ViewerBook(Protocol):
    """The viewers that a console knows."""

    @property
    def must_sign_in(self) -> bool:
        """True if a session needs a name."""

    def find(self, name: str) -> Viewer | None:
        """Return the viewer of a session; "" is a session of nobody yet. None: sign in first."""


class LocalViewerBook:
    """The book of a console without viewers: everybody is the local viewer."""

    must_sign_in = False

    def find(self, name: str) -> Viewer | None:
        """Return the local viewer."""
        return LOCAL_VIEWER
