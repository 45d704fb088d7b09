"""Confirmation of actions that cannot be undone."""

from __future__ import annotations

import sys

from logboom.cli.output import note
from logboom.wire.errors import InvalidRequest


def confirmed(question: str, refusal: str, declined: str) -> bool:
    """Ask for confirmation, and return True if the person at the terminal confirms.

    Args:
        question: The question; any answer except y is no, and so is Ctrl-D.
        refusal: The error for a program, which cannot be asked: what to add to the command.
        declined: The message after a no.

    Raises:
        InvalidRequest: standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise InvalidRequest(refusal)
    # Not on standard output, which belongs to the result.
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        answer = input()
    except EOFError:
        # Ctrl-D leaves the cursor behind the question.
        print(file=sys.stderr)
        answer = ""
    if answer.strip().lower() == "y":
        return True
    note(declined)
    return False
