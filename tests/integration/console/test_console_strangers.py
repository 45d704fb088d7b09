"""Strangers at the console's door: unfinished requests without end, and passwords that are guessed.

The console has no cluster here: nobody gets further than the sign-in page needs.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import pytest

from logboom.console import http_listener, web_app
from logboom.console.passwords import hash_password
from logboom.console.server import ConsoleServer, console_thread
from logboom.console.sign_in_limits import FREE_FAILURES, FREE_PAIRS
from logboom.console.site import ConsoleSettings
from logboom.console.viewer_records import ViewerRecord
from logboom.console.viewers_file import ViewersFile, write_viewers
from logboom.wire.errors import StartError
from logboom.wire.http_connections import HttpBounds
from tests.integration.waiting import wait_until
from tests.unit.wire.tls_pairs import put_pair, trusting

PASSWORD: Final = "correct horse battery"
PATIENCE_S: Final = 120.0
NO_CLUSTER: Final = ("127.0.0.1:9",)
DESCRIPTORS: Final = 200
PROGRAM: Final = f"""
import resource, sys
from logboom.cli.__main__ import main
resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
main()
"""
UNFINISHED: Final = {
    "silent": b"",
    "head": b"GET /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    "body": b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 4000\r\n\r\ntoken=",
    "body of a refused request": b"POST /topics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4000\r\n\r\n",
}
"""Requests that never end."""


@pytest.fixture(scope="module")
def viewers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Alice and Bob."""
    path = tmp_path_factory.mktemp("viewers") / "viewers.toml"
    record = ViewerRecord(hash_password(PASSWORD))
    write_viewers(path, {"alice": record, "bob": record})
    return path


@contextlib.contextmanager
def serving(viewers: Path, folder: Path, tls_cert: str = "", tls_key: str = "") -> Iterator[str]:
    """Run a console; returns its URL."""
    settings = ConsoleSettings("127.0.0.1", 0, tls_cert=tls_cert, tls_key=tls_key)
    made = ConsoleServer(settings, NO_CLUSTER, None, folder, ViewersFile(viewers))
    with console_thread(made):
        yield made.url


def place_of(url: str) -> tuple[str, int]:
    parsed = urlsplit(url)
    assert parsed.hostname is not None
    assert parsed.port is not None
    return parsed.hostname, parsed.port


def dial(url: str, source: str = "127.0.0.1") -> socket.socket:
    """Connect from an address of loopback."""
    return socket.create_connection(place_of(url), PATIENCE_S, (source, 0))


def sign_in(
    url: str, name: str, password: str = PASSWORD, source: str = "127.0.0.1", **headers: str
) -> int:
    """Sign in as a browser does; returns the status."""
    host, port = place_of(url)
    connection = HTTPConnection(host, port, timeout=PATIENCE_S, source_address=(source, 0))
    with contextlib.closing(connection):
        connection.request("GET", "/sign-in")
        got = connection.getresponse()
        token = re.search(r'name="token" value="([0-9a-f]+)"', got.read().decode())
        assert token is not None
        cookie = (got.getheader("set-cookie") or "").partition(";")[0]
        sent = {
            "Cookie": cookie,
            "Origin": url.rstrip("/"),
            "Content-Type": "application/x-www-form-urlencoded",
            **{each.replace("_", "-"): value for each, value in headers.items()},
        }
        body = urlencode({"token": token[1], "name": name, "password": password})
        connection.request("POST", "/sign-in", body, sent)
        return connection.getresponse().status


def is_open(connection: socket.socket) -> bool:
    """True unless the console has ended a connection."""
    connection.setblocking(False)
    try:
        return connection.recv(65_536, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_unfinished_requests_keep_nobody_out(viewers: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        *("console", "--listen", "127.0.0.1:0", "--viewers", str(viewers)),
        *("--audit-folder", str(tmp_path), "--servers", NO_CLUSTER[0]),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as console:
        try:
            assert console.stderr is not None
            told = re.search(r"is at (\S+)", console.stderr.readline())
            assert told is not None
            with contextlib.ExitStack() as stack:
                for number in range(2 * DESCRIPTORS):
                    connection = dial(told[1], f"127.0.{number % 5}.2")
                    stack.enter_context(connection)
                    with contextlib.suppress(OSError):
                        connection.sendall(list(UNFINISHED.values())[number % len(UNFINISHED)])
                # From one of their addresses, and from another.
                assert sign_in(told[1], "alice", source="127.0.1.2") == 303
                assert sign_in(told[1], "bob") == 303
        finally:
            console.terminate()
        # Nobody fills its log, either.
        assert "Traceback" not in console.stderr.read()


@pytest.mark.parametrize("what", UNFINISHED)
def test_a_request_that_does_not_end_is_ended(
    viewers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(http_listener, "REQUEST_S", 0.3)
    with serving(viewers, tmp_path) as url, dial(url) as connection:
        connection.sendall(UNFINISHED[what])

        def ended() -> bool:
            # A byte now and then is no way around it.
            with contextlib.suppress(OSError):
                connection.send(b"x")
            if is_open(connection):
                with contextlib.suppress(OSError):
                    connection.recv(65_536)
                return False
            return True

        wait_until(ended, "the console ends the connection")


def test_a_handshake_that_does_not_end_is_ended(
    viewers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_listener, "REQUEST_S", 0.3)
    files = [str(each) for each in put_pair(tmp_path)]
    with serving(viewers, tmp_path, *files) as url:
        with dial(url) as connection:
            connection.sendall(b"\x16\x03\x01")
            assert connection.recv(1_000) == b""
        trusted = trusting()
        with trusted.wrap_socket(dial(url), server_hostname="127.0.0.1") as connection:
            connection.sendall(UNFINISHED["head"])
            assert connection.recv(1_000) == b""


def test_whoever_takes_no_answer_is_let_go(
    viewers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_listener, "REQUEST_S", 0.3)
    asked = b"GET /static/vendored/htmx.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200
    with serving(viewers, tmp_path) as url, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(PATIENCE_S)
        connection.connect(place_of(url))
        connection.setblocking(False)

        def ended() -> bool:
            try:
                connection.send(asked)
            except BlockingIOError:
                return False
            except OSError:
                return True
            return False

        wait_until(ended, "the console ends the connection")


def test_an_address_has_so_many_connections(
    viewers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_listener, "CONSOLE_BOUNDS", HttpBounds(total=12, per_address=5))
    with serving(viewers, tmp_path) as url, contextlib.ExitStack() as stack:
        others = [stack.enter_context(dial(url, "127.0.0.3")) for _ in range(3)]
        many = [stack.enter_context(dial(url, "127.0.0.2")) for _ in range(40)]

        wait_until(lambda: sum(map(is_open, many)) == 5, "the others are ended")
        # The newest stay, and nobody else pays for it.
        assert all(map(is_open, many[-5:]))
        assert all(map(is_open, others))
        assert sign_in(url, "alice", source="127.0.0.2") == 303


def test_a_stranger_sends_no_long_form(viewers: Path, tmp_path: Path) -> None:
    with serving(viewers, tmp_path) as url, dial(url) as connection:
        host, port = place_of(url)
        size = web_app.MAX_SIGN_IN_BYTES + 1
        connection.sendall(
            f"POST /sign-in HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {url.rstrip('/')}\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n"
            f"Content-Length: {size}\r\n\r\n".encode()
            + b"a" * size
        )
        assert b" 413 " in connection.recv(200)


def test_behind_a_proxy_there_must_be_viewers(tmp_path: Path) -> None:
    settings = ConsoleSettings("127.0.0.1", 0, proxy="127.0.0.1")
    with pytest.raises(StartError, match="logboom console viewer add"):
        ConsoleServer(settings, NO_CLUSTER, None, tmp_path)


# Passwords.


def test_a_right_password_gets_in_whatever_others_failed_with(
    viewers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FREE_PAIRS, "address", 3)
    with serving(viewers, tmp_path) as url:
        # Neighbours, who share the address: more names than cost nothing.
        failed = [
            sign_in(url, f"neighbour-{number}", "wrong")
            for number in range(FREE_PAIRS["address"] + 2)
        ]
        assert 303 not in failed
        assert sign_in(url, "alice") == 303


def test_a_stranger_does_not_lock_a_viewer_out(
    viewers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if there had been more failures: the wait is long, so that no slow machine sits it out.
    monkeypatch.setitem(FREE_FAILURES, "pair", -10)
    with serving(viewers, tmp_path) as url:
        assert sign_in(url, "alice", "wrong", source="127.0.0.2") == 403
        assert sign_in(url, "alice", source="127.0.0.2") == 429
        assert sign_in(url, "alice", source="127.0.0.3") == 303
        # It is still locked out itself.
        assert sign_in(url, "alice", source="127.0.0.2") == 429
