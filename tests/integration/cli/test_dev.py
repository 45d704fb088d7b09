"""`logboom dev`: serves until a signal, then takes its folder away."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.command import environment, succeed
from tests.integration.cli.test_cluster_command import free_base
from tests.thorough import few_of

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
"""Signals, and what the command ends with."""


@pytest.mark.parametrize(("number", "code"), few_of(SIGNALS, SIGNALS[:1]))
def test_it_serves_until_a_signal(tmp_path: Path, number: signal.Signals, code: int) -> None:
    base = free_base()
    with subprocess.Popen(
        [sys.executable, "-m", "logboom.cli", "dev", "--port", str(base)],
        env={**environment(), "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as dev:
        try:
            assert dev.stderr is not None
            assert "ready after" in dev.stderr.readline()
            servers = f"127.0.0.1:{base + 10}"
            succeed("produce", "greetings", "hello", "--create", servers=servers)
            assert succeed("consume", "greetings", "-e", servers=servers).lines == ["hello"]
            assert len(list(tmp_path.iterdir())) == 1
            dev.send_signal(number)
            _, said = dev.communicate(timeout=200)
        finally:
            dev.kill()
    assert dev.returncode == code
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
