"""Confirmation of actions that cannot be undone."""

from __future__ import annotations

import sys

from logboom.cli.output import note
from logboom.wire.errors import InvalidRequest


def confirmed(question: str, refusal: str, declined: str) -> bool:
    """Ask for confirmation, and return True if the person at the terminal confirms.

    Args:
        question: The question; any answer except y is no.
        refusal: The error for a program, which cannot be asked: what to add to the command.
        declined: The message after a no.

    Raises:
        InvalidRequest: standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise InvalidRequest(refusal)
    if input(f"{question} [y/N] ").strip().lower() == "y":
        return True
    note(declined)
    return False
