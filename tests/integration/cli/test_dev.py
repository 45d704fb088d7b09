"""`logboom dev`: serves until a signal, then takes its folder away."""

import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest

from tests.integration.cli.command import environment, succeed
from tests.integration.cli.test_cluster_command import free_base
from tests.integration.waiting import wait_until
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


def test_the_console_is_served_along(tmp_path: Path) -> None:
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "logboom.cli",
            "dev",
            "--port",
            str(free_base()),
            "--console",
            "--listen",
            "127.0.0.1:0",
        ],
        env={**environment(), "TMPDIR": str(tmp_path), "HOME": str(tmp_path / "home")},
        stderr=subprocess.PIPE,
        text=True,
    ) as dev:
        try:
            assert dev.stderr is not None
            lines = [dev.stderr.readline() for _ in range(2)]
            assert "ready after" in lines[0], lines[0] + dev.communicate(timeout=200)[1]
            url = lines[1].rpartition(" ")[2].strip()
            browser = build_opener(HTTPCookieProcessor())

            def overview() -> str:
                with suppress(HTTPError), browser.open(url) as page:
                    return str(page.read().decode())
                return ""

            # A node that is slow to answer is shown as such.
            wait_until(lambda: "1 of 1" in overview(), "the node is not shown")
            # It may administer brokers and settings, which needs the key of the cluster.
            form = f"{url}actions/config.set?setting=move_bytes_per_s"
            with browser.open(form) as page:
                token = re.search(r'name="token" value="([0-9a-f]+)"', page.read().decode())
            assert token is not None
            values = {"setting": "move_bytes_per_s", "new_value": "5m", "confirmed": "yes"}
            body = urlencode({"token": token[1], **values}).encode()
            with browser.open(Request(form, body, {"Origin": url.rstrip("/")})) as page:
                assert "move_bytes_per_s of the cluster is 5242880" in page.read().decode()
            dev.send_signal(signal.SIGINT)
            _, said = dev.communicate(timeout=200)
        finally:
            dev.kill()
    assert dev.returncode == 130
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
