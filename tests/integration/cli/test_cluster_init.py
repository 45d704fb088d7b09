"""A cluster from the files of `cluster init`, and one more broker by `node add`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logboom.client import connect
from logboom.deploy.polling import ask_until
from logboom.deploy.ports import Ports
from logboom.deploy.process import NodeProcess, NodeSpec, Role
from logboom.wire.errors import LogboomError
from tests.integration.cli.command import complaint, logboom
from tests.integration.waiting import wait_until


@contextmanager
def running(folder: Path, role: Role, endpoint: str, *, create: bool = False) -> Iterator[None]:
    """A node that runs on the files in a folder."""
    spec = NodeSpec(folder.name, role, folder, endpoint)
    node = NodeProcess.start(spec, attached=True, create=create)
    try:
        node.wait_listening()
        yield
    finally:
        node.stop()


def _is_well(found: dict[str, dict[str, Any]], check: str) -> bool:
    return check in found and found[check]["result"] == "ok"


@pytest.fixture
def ports() -> Iterator[Ports]:
    """Free ports, held until the end."""
    held = Ports("free")
    yield held
    held.release()


def test_a_cluster_begins_and_grows(tmp_path: Path, ports: Ports) -> None:
    server, first, second = ports.name_server(), ports.broker(), ports.broker()
    folder, data = tmp_path / "boom", tmp_path / "data"
    words = ("--name-servers", server, "--brokers", first, "--admin", "alice", "--data", data)
    said = logboom("cluster", "init", folder, *words)
    assert said.code == 0, said.err
    assert "--create" in said.err
    assert "LOGBOOM_CREDENTIALS" in said.err
    assert "never overwritten" in complaint(logboom("cluster", "init", folder, *words))
    admin = folder / "alice.toml"
    as_alice = ("--credentials", admin)
    with (
        running(folder / "name-1", "name-server", server, create=True),
        running(folder / "broker-1", "broker", first),
        connect(admin, timeout_s=60.0) as boom,
    ):
        (replaced,) = [
            each
            for each in boom.admin.describe_config("name-1")[0].entries
            if each.name == "replace_after_s"
        ]
        assert (replaced.value, replaced.source) == ("900", "file")

        def alive() -> list[str]:
            try:
                return [each.id for each in boom.admin.brokers() if each.alive]
            except LogboomError:
                return []

        wait_until(lambda: alive() == ["broker-1"], "the first broker does not register")

        def doctor() -> dict[str, dict[str, Any]]:
            return {row["check"]: row for row in logboom("doctor", "-o", "json", *as_alice).json}

        # A node that is slow to answer fails too.
        checks = ask_until(doctor, lambda found: _is_well(found, "brokers"), 200.0)
        assert checks["brokers"]["result"] == "ok"
        assert not [check for check in checks if check.startswith("listeners of")]

        new = tmp_path / "broker-2"
        key = folder / "name-1" / "cluster.key"
        more = ("broker-2", second, new, "--key-file", key, "--data", data, *as_alice)
        assert logboom("node", "add", *more).code == 0
        assert "never overwritten" in complaint(logboom("node", "add", *more))
        taken = logboom("node", "add", "broker-1", second, tmp_path / "x", *as_alice)
        assert "already" in complaint(taken)
        with running(new, "broker", second):
            wait_until(lambda: alive() == ["broker-1", "broker-2"], "the second one does not")
            boom.admin.create_topic("both", queues=1, replicas=2)
            with boom.producer(acks="all") as producer:
                producer.send("both", b"replicated").result(60)
