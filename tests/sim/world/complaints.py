"""What programs log that no true run logs: a command that a handler failed on, states that differ.

A name server answers such a command INTERNAL and goes on, and so do all others: their states stay
equal, and no client is told anything wrong. Only the log says that something is.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final

from tests.sim.world.trace import BrokenProperty

FALLEN: Final = "no handler fails"
"""The promise that is broken by a program that falls over."""


class Complaints(logging.Handler):
    """Listens to the loggers of all parts while it is entered.

    It only remembers: whoever logs may stand within something that takes exceptions for its own.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._heard: list[str] = []

    def __enter__(self) -> None:
        logging.getLogger("logboom").addHandler(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        logging.getLogger("logboom").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Remember an exception, and whatever a name server finds wrong. Other errors are what
        programs have to tell their users, e.g. that a message is given up."""
        failed = record.exc_info is not None and record.exc_info[1] is not None
        if failed or record.name.startswith("logboom.metadata"):
            cause = f": {record.exc_info[1]!r}" if failed and record.exc_info else ""
            self._heard.append(f"{record.getMessage()}{cause}")

    def judge(self) -> None:
        """Raises `BrokenProperty` if anybody complained."""
        if self._heard:
            raise BrokenProperty(FALLEN, self._heard[0])
