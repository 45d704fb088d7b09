"""What commands take from the environment, and what they leave alone in it."""

from __future__ import annotations

from pathlib import Path

from logboom.deploy import embedded
from tests.integration.cli.command import logboom, succeed


def test_completion_in_a_file_changes_no_other(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("# mine\n")
    file = tmp_path / "logboom.bash"
    also = {"HOME": str(home), "SHELL": "/bin/bash"}
    words = ("--install-completion", "--shell", "bash")
    done = logboom(*words, "--output", file, also=also)
    assert done.code == 0, done.err
    assert "logboom" in file.read_text()
    assert [each.name for each in home.iterdir()] == [".bashrc"]
    assert (home / ".bashrc").read_text() == "# mine\n"
    # Without a file, it is installed for good.
    done = logboom(*words, also=also)
    assert done.code == 0, done.err
    assert (home / ".bashrc").read_text() != "# mine\n"


def test_cluster_status_goes_by_the_environment(tmp_path: Path) -> None:
    with embedded() as node:
        done = succeed("cluster", "status", "-o", "json", servers=node.endpoints[0])
        assert {row["node"] for row in done.json} == {"name-1", "broker-1"}
        # What is said on the command line comes first.
        done = logboom("cluster", "status", "--data", tmp_path / "none", servers=node.endpoints[0])
        assert done.code != 0
        assert "no cluster runs" in done.err
