"""The application ids under which one client has transactions: epochs, sequences, who is at work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.client.calls import ProposeCommand
from logboom.client.flows import Flow
from logboom.wire.commands import CommandResult
from logboom.wire.errors import InternalError, InvalidRequest, LogboomError
from logboom.wire.transactions import MADE_UP, OpenApplication, check_app_id

TRIES: Final = 1 << 20
"""Attempts of one producer epoch: the epoch times this and a count make an attempt."""
MAX_SEQUENCE: Final = (1 << 63) - 1
FRESH_MS: Final = 86_400_000
"""An application id of one's own that was not used for so long is not used again: the name servers
forget it a week after its last use."""


def check_chosen(app_id: str) -> None:
    """Refuse an application id that only a producer may make up.

    Raises:
        InvalidRequest: it begins as those do.
    """
    if app_id.startswith(MADE_UP):
        text = f"an application id that begins with {MADE_UP} is made up by a producer, and is not"
        raise InvalidRequest(f"{text} kept for ever, as {app_id[:40]!r} should be: choose another")


class Application:
    """One application id."""

    __slots__ = ("app_id", "committed", "epoch", "error", "last", "tries")

    def __init__(self, app_id: str) -> None:
        self.app_id = app_id
        self.epoch = -1
        """Producer epoch, the client's own; -1: not opened yet."""
        self.committed = -1
        """Greatest sequence that is known to be committed."""
        self.last = -1
        """Greatest sequence that was begun here."""
        self.tries = 0
        self.error: LogboomError | None = None
        """Another producer has taken the application id over, for good."""

    def attempt(self) -> int:
        """A number that no other try of any sequence has."""
        self.tries += 1
        return self.epoch * TRIES + self.tries


class Applications:
    """All of one client. An application has at most one open transaction."""

    def __init__(self) -> None:
        self._known: dict[str, Application] = {}
        self._open: dict[str, object] = {}

    def take(self, app_id: str) -> Application:
        """Begin to work under an application id; `give_back` ends it.

        Raises:
            InvalidRequest: it cannot be one; or a transaction of it is open in this client.
            Refused: FENCED, as another producer took it over before.
        """
        check_app_id(app_id)
        mine = object()
        # One step, whichever threads do it at once.
        if self._open.setdefault(app_id, mine) is not mine:
            text = (
                f"a transaction of application id {app_id!r} is open: commit or abort it first, or "
                "use another application id"
            )
            raise InvalidRequest(text)
        application = self._known.setdefault(app_id, Application(app_id))
        if application.error is not None:
            del self._open[app_id]
            raise application.error
        return application

    def give_back(self, application: Application) -> None:
        """The transaction has ended."""
        self._open.pop(application.app_id, None)


class ApplicationIdPool:
    """Application ids that one producer made up, for as many transactions as it has at a time."""

    def __init__(self, make: Callable[[], str]) -> None:
        """`make` gives a name that was never used."""
        self._make = make
        self._free: list[tuple[str, int]] = []
        """Names, and when each was used last."""
        self._all: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def take(self, now_ms: int) -> tuple[str, list[str]]:
        """One that has no open transaction; and those that will not be used again."""
        gone: list[str] = []
        while True:
            try:
                name, used_ms = self._free.pop()  # one step, whichever threads do it at once
            except IndexError:
                name = MADE_UP + self._make()
                self._all.add(name)
                return name, gone
            if now_ms - used_ms < FRESH_MS:
                return name, gone
            self._all.discard(name)
            gone.append(name)

    def give_back(self, name: str, now_ms: int) -> None:
        """Its transaction has ended; nothing if it is not one of these."""
        if name in self._all:
            self._free.append((name, now_ms))


def opened(application: Application, wall_ms: int, timeout: float) -> Flow[None]:
    """Get a producer epoch, once per client: who worked under the application id is fenced."""
    if application.epoch >= 0:
        return
    application.epoch, application.committed = yield from take_over(
        application.app_id, wall_ms, timeout
    )


def take_over(app_id: str, wall_ms: int, timeout: float) -> Flow[tuple[int, int]]:
    """Get a producer epoch of an application id; with it, its greatest committed sequence."""
    check_app_id(app_id)
    result: CommandResult = yield ProposeCommand(OpenApplication(app_id, wall_ms), timeout)
    value = result.value
    if not isinstance(value, list) or len(value) != 2:
        raise InternalError(f"opening a transaction was answered by {value!r}: please report it")
    return int(value[0]), int(value[1])


def next_sequence(application: Application, sequence: int | None) -> int:
    """The sequence of a new transaction: the given one, or the next that was not begun yet.

    Raises:
        InvalidRequest: it is no whole number from 0 on.
    """
    if sequence is None:
        return max(application.committed, application.last) + 1
    if type(sequence) is not int or not 0 <= sequence <= MAX_SEQUENCE:
        raise InvalidRequest(f"a sequence is a whole number from 0 on, not {sequence!r}")
    return sequence
