"""Without an extra the command names it, and leaves nothing behind."""

import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from logboom.cli import store_commands
from logboom.deploy import detached
from logboom.deploy.installed import NEEDED
from tests.integration.cli.command import Done, complaint, environment

ROOT = Path(__file__).parent.parent.parent.parent
PORTIONS = [str(path.parent) for path in ROOT.glob("*/logboom")]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
OF_THE_EXTRA = {
    extra: tuple(re.split("[^a-z0-9_-]", package)[0].replace("-", "_") for package in packages)
    for extra, packages in EXTRAS.items()
}
"""What each extra installs, by the names of its modules."""


def without(extra: str, folder: Path) -> list[str]:
    """A search path with all that is installed here but the packages of an extra."""
    installed = folder / "installed"
    installed.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(OF_THE_EXTRA[extra]) and entry.suffix != ".pth":
            (installed / entry.name).symlink_to(entry)
    return [*PORTIONS, str(installed)]


def run(path: list[str], cwd: Path, *words: str) -> Done:
    """Run Python, which finds only what is on the path."""
    done = subprocess.run(
        # Without `site` nothing else is found.
        [sys.executable, "-S", *words],
        env={**environment(), "PYTHONPATH": ":".join(path), "TMPDIR": str(cwd)},
        cwd=cwd,
        capture_output=True,
        timeout=200,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr.decode())


@pytest.mark.parametrize(
    "words",
    [
        ["dev"],
        ["dev", "--data", "here"],
        ["cluster", "up"],
        ["cluster", "up", "--data", "here"],
        ["node", "broker", "--config", "none.toml"],
        ["store", "inspect", "here"],
        ["store", "recover", "here"],
    ],
    ids=" ".join,
)
def test_what_starts_nodes_names_their_extra(tmp_path: Path, words: list[str]) -> None:
    path = without("node", tmp_path)
    (tmp_path / "cwd").mkdir()
    try:
        line = complaint(run(path, tmp_path / "cwd", "-m", "logboom", *words))
        assert "pip install 'logboom[node]'" in line
        assert list((tmp_path / "cwd").iterdir()) == []
    finally:
        # Whatever was started all the same.
        for data in (tmp_path / "cwd" / ".logboom", tmp_path / "cwd" / "here"):
            detached.down(data)


def test_the_demo_names_it_too(tmp_path: Path) -> None:
    (tmp_path / "cwd").mkdir()
    path = [str(ROOT), *without("node", tmp_path)]
    line = complaint(run(path, tmp_path / "cwd", "-m", "demo", "--no-spark"))
    assert "pip install 'logboom[node]'" in line
    assert list((tmp_path / "cwd").iterdir()) == []


def test_every_package_of_the_extra_is_looked_for() -> None:
    assert {*NEEDED, *store_commands.OF_THE_EXTRA} == set(OF_THE_EXTRA["node"])


@pytest.mark.parametrize("extra", ["node", "spark"])
def test_help_needs_no_other_extra(tmp_path: Path, extra: str) -> None:
    path = without(extra, tmp_path)
    done = run(path, tmp_path, "-m", "logboom", "--help")
    assert (done.code, done.err) == (0, "")
    assert "cluster" in done.out.decode()


def test_a_program_that_starts_nodes_is_told_too(tmp_path: Path) -> None:
    path = without("node", tmp_path)
    (tmp_path / "cwd").mkdir()
    for made in ("embedded()", "Cluster()", "Cluster(data='here')"):
        program = f"from logboom.deploy import Cluster, embedded\n{made}"
        done = run(path, tmp_path / "cwd", "-c", program)
        assert "StartError" in done.err
        assert "pip install 'logboom[node]'" in done.err
    assert list((tmp_path / "cwd").iterdir()) == []


def test_the_command_names_its_own(tmp_path: Path) -> None:
    path = without("cli", tmp_path)
    for module in ("logboom", "logboom.cli"):
        assert "pip install 'logboom[cli]'" in complaint(run(path, tmp_path, "-m", module))
