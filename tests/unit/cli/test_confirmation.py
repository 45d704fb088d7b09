"""Questions at the terminal: where they are printed, and which answers are a yes."""

from __future__ import annotations

import io
import sys

import pytest

from logboom.cli.confirmation import confirmed
from logboom.wire.errors import InvalidRequest


class Terminal(io.StringIO):
    """Somebody who types at a terminal."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


@pytest.mark.parametrize(
    ("typed", "yes"), [("y\n", True), (" Y \n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_a_question_leaves_standard_output_alone(
    typed: str, yes: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert confirmed("Do it?", "say --yes", "nothing was done") is yes
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Do it? [y/N] ")
    assert ("nothing was done" in err) is not yes


def test_a_program_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(InvalidRequest, match="say --yes"):
        confirmed("Do it?", "say --yes", "nothing was done")
