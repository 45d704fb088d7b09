"""The command as a whole: what it knows, and what it imports for that."""

from __future__ import annotations

import subprocess
import sys

import pytest

from logboom.cli.app import COMMANDS, build

IMPORTED = """
import sys
from logboom.cli.app import COMMANDS, run
run(sys.argv[1:])
print(*(name for name, where in COMMANDS.items() if f"logboom.cli.{where.split(':')[0]}" in sys.modules))
"""


def test_each_command_is_where_it_is_said_to_be() -> None:
    every = build()
    one_by_one = build(["topic"])
    for name in COMMANDS:
        assert every[name].name == one_by_one[name].name == (name,)
        assert every[name].help == one_by_one[name].help


@pytest.mark.parametrize(
    ("words", "imported"),
    [(["--version"], []), (["message", "--help"], ["message"]), (["--help"], list(COMMANDS))],
    ids=" ".join,
)
def test_a_command_imports_no_other(words: list[str], imported: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1].split() == imported
