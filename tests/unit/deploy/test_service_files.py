"""The files for systemd start what there is, as the user and in the folders that the docs name."""

from __future__ import annotations

import re
import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest

from logboom.cli.app import build

ROOT = Path(__file__).parents[3]
UNITS = ROOT / "deploy" / "systemd"
OPERATING = (ROOT / "docs" / "OPERATING.md").read_text("utf-8")


def unit(name: str) -> ConfigParser:
    """A unit without what may stand in it several times."""
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # else it lowers all keys
    parser.read(UNITS / name, encoding="utf-8")
    return parser


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("logboom-broker@.service", ["node", "broker"]),
        ("logboom-name-server.service", ["node", "name-server"]),
    ],
)
def test_a_service_runs_a_command_that_there_is(name: str, command: list[str]) -> None:
    service = unit(name)["Service"]
    program, *words = shlex.split(service["ExecStart"].replace("%i", "2"))
    assert program == "/opt/logboom/bin/logboom"
    assert words[:2] == command
    _, bound, _ = build().parse_args(words, exit_on_error=False, print_error=False)
    assert str(bound.arguments["config"]) in OPERATING
    assert bound.arguments.get("instance") == (2 if command[1] == "broker" else None)
    # A broker takes up to 10 s to hand over, and a node ends on purpose after a disk error.
    assert (service["Restart"], int(service["TimeoutStopSec"])) == ("always", 90)
    folder = f"/var/lib/{service['StateDirectory']}"
    assert service["ProtectSystem"] == "strict", "it writes nothing but its folder"
    assert re.search(rf'^data = "{folder}\b', OPERATING, re.MULTILINE)


def test_the_docs_name_every_unit() -> None:
    for path in UNITS.iterdir():
        assert path.name.removesuffix(".service") in OPERATING
