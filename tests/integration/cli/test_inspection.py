"""`top`, `doctor --watch` and `debug bundle` on a secure cluster that runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logboom.client import connect
from logboom.deploy import Embedded, embedded
from logboom.wire.credentials_file import read_credentials
from tests.integration.cli.command import Done, environment, logboom


@pytest.fixture(scope="module", name="node")
def _node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(data=tmp_path_factory.mktemp("inspection") / "node", secure=True) as node:
        yield node


def run(node: Embedded, *words: str | Path, cwd: Path | None = None) -> Done:
    """Run a command as the administrator."""
    done = logboom(*words, also={"LOGBOOM_CREDENTIALS": str(node.credentials)}, cwd=cwd)
    assert done.code == 0, done.err
    return done


def test_top_tells_what_came_between_two_samples(node: Embedded) -> None:
    run(node, "topic", "create", "flights", "--queues", "2")
    found = run(node, "top", "--once", "--interval", "0.5", "-o", "json").json
    (broker,) = found["brokers"]
    assert (broker["broker"], broker["state"], broker["in_per_s"]) == ("broker-1", "up", 0.0)
    (topic,) = [each for each in found["topics"] if each["topic"] == "flights"]
    assert (topic["queues"], topic["in_sync"], topic["led"]) == (2, 2, 2)
    text = run(node, "top", "--once", "--interval", "0.5").out.decode()
    assert "1/1 broker " in text
    assert "flights" in text


def test_a_bundle_has_what_nodes_report_and_no_secret(node: Embedded, tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("a line\n", encoding="utf-8")
    run(node, "debug", "bundle", "fault.tar.gz", "--log", log, cwd=tmp_path)
    path = tmp_path / "fault.tar.gz"
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        files = {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]  # all are files
    told: dict[str, Any] = {
        Path(name).name: json.loads(text) for name, text in files.items() if name.endswith("json")
    }
    assert not [
        name for name, found in told.items() if isinstance(found, dict) and "error" in found
    ]
    assert {each["node"] for each in told["statistics.json"]} == {"name-1", "broker-1"}
    assert {each["node"] for each in told["settings.json"]} == {"name-1", "broker-1"}
    assert files["fault/logs/0-broker.log"] == b"a line\n"
    whole = b"".join(files.values())
    assert node.credentials is not None
    secret = read_credentials(node.credentials).key_pair.secret.reveal()
    secrets = [secret.encode()]
    secrets += [key.read_bytes().strip() for key in node.data.glob("**/cluster.key")]
    assert secrets
    assert not [each for each in secrets if each in whole]


def test_watching_a_pipe_tells_what_changes_until_it_is_interrupted(node: Embedded) -> None:
    words = [
        sys.executable,
        "-m",
        "logboom.cli",
        "doctor",
        "--watch",
        "--interval",
        "1",
        "-o",
        "json",
    ]
    environ = {**environment(), "LOGBOOM_CREDENTIALS": str(node.credentials)}
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE) as watching:
        try:
            with connect(str(node.credentials)) as boom:
                boom.admin.set_broker_mode("broker-1", "maintenance")
            assert watching.stdout is not None
            told: set[str] = set()
            for line in watching.stdout:
                first = json.loads(line)
                # A node that was slow to answer is told of too, and when it answers again.
                assert first["result"] != "ok" or first["check"] in told
                told.add(first["check"])
                if first["check"] == "mode of broker-1":
                    break
            else:
                pytest.fail("it ended, and did not tell the mode")
            assert first["result"] != "ok"
            with connect(str(node.credentials)) as boom:
                boom.admin.set_broker_mode("broker-1", "active")
            rest = map(json.loads, watching.stdout)
            last = next(each for each in rest if each["check"] == "mode of broker-1")
            assert last["result"] == "ok"
        finally:
            watching.send_signal(signal.SIGINT)
        assert watching.wait() == 130
