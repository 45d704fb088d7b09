"""No secret of a cluster leaves the files that are meant for it."""

from __future__ import annotations

import logging
import os
import re
import signal
import stat
import sys
from pathlib import Path

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.wire.credentials_file import read_credentials
from logboom.wire.errors import LogboomError, StartError
from tests.integration.nodes import talkative_node
from tests.integration.waiting import wait_until

SECRET = re.compile(r'^secret_key = "(.*)"$', re.MULTILINE)


def secret_files(folder: Path) -> dict[Path, bytes]:
    """The files that hold a secret, and the secret of each."""
    found = {path: path.read_bytes().strip() for path in folder.rglob("*.key")}
    for path in folder.rglob("*.toml"):
        match = SECRET.search(path.read_text())
        if match is not None:
            found[path] = match[1].encode()
    return found


def _fail(_: object) -> None:
    raise RuntimeError("provoked")


def await_end(cluster: Cluster, name: str) -> None:
    """Wait until a node has ended."""
    wait_until(lambda: not cluster.running(name), f"{name} goes on")


def test_secrets_stand_in_their_files_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Not even nodes and a client that log at DEBUG, log all they have, and end by an error, tell one."""
    caplog.set_level(logging.DEBUG)
    launcher = (sys.executable, talkative_node.__file__)
    with Cluster(name_servers=1, brokers=1, secure=True, launcher=lambda _: launcher) as cluster:
        secrets = secret_files(cluster.data)
        # Two nodes and an administrator.
        assert sum(path.suffix == ".toml" for path in secrets) >= 3
        assert cluster.credentials is not None
        key = read_key(cluster.data / "cluster.key")
        with connect(cluster.credentials, cluster_key=bytes(key)) as boom:
            boom.admin.create_topic("t", 1, 1)
            with boom.producer() as producer:
                sent = producer.send("t", b"x")
                sent.result(200)
                sent.add_done_callback(_fail)
            with pytest.raises(LogboomError):
                boom.admin.delete_topic("unknown")
            told = repr(boom.admin.stats()) + repr(boom.admin.users()) + repr(vars(boom))
            talkative_node.show_everything()
        told += repr(read_credentials(cluster.credentials))
        for name in cluster.nodes:
            # What everybody on the machine may see.
            told += Path(f"/proc/{cluster.pid(name)}/cmdline").read_text()
            os.kill(cluster.pid(name), signal.SIGUSR1)
            await_end(cluster, name)
            log = cluster.log(name)
            assert "RuntimeError: provoked" in log
            assert "'_keys': (***,)" in log
            told += log
        assert "a callback of" in caplog.text
        assert "KeyPair(public=" in caplog.text
        told += caplog.text
        audits = [*cluster.data.rglob("audit.log")]
        assert len(audits) == 2
        told += "".join(path.read_text() for path in audits)
        for path, secret in secrets.items():
            assert len(secret) >= 40
            assert secret.decode() not in told, path
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
        others = [path for path in cluster.data.rglob("*") if path.is_file()]
        for path in others:
            held = path.read_bytes()
            for of, secret in secrets.items():
                assert path in secrets or secret not in held, f"{path} holds the secret of {of}"


def test_a_secret_that_others_may_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    key = tmp_path / "cluster.key"
    key.write_text("ab" * 32)
    key.chmod(0o644)
    with pytest.raises(StartError, match="chmod 600"):
        read_key(key)
    credentials = tmp_path / "me.toml"
    credentials.write_text("")
    credentials.chmod(0o640)
    with pytest.raises(StartError, match="chmod 600"):
        read_credentials(credentials)
