"""The HTTP server of pages: good requests, bad ones, slow ones, and paths that try to be others."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from logboom.wire import page_server, tls_files
from logboom.wire.errors import StartError
from logboom.wire.page_server import Page, PageServer
from logboom.wire.tls_files import TlsFiles
from tests.unit.wire.tls_pairs import FIRST, RENEWED, der, put_pair, trusting

BODY = b"a page\n"


def find(path: str, accept: str) -> Page | None:
    """Return the pages of the server under test."""
    if path == "/fault":
        raise RuntimeError("a page that cannot be made")
    if path == "/accept":
        return Page(HTTPStatus.OK, "text/plain", accept.encode())
    return Page(HTTPStatus.OK, "text/plain", BODY) if path == "/page" else None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PageServer]:
    """A server at a free port, which hangs up on nobody for what a busy machine takes."""
    for name in ("WHOLE_S", "UNREAD_S"):
        monkeypatch.setattr(page_server, name, 60.0)
    monkeypatch.setattr(page_server._Handler, "timeout", 60.0)  # noqa: SLF001 - bound at import
    made = PageServer("127.0.0.1:0", find)
    made.start()
    yield made
    made.close()


def dial(server: PageServer) -> socket.socket:
    """Connect to it."""
    host, _, port = server.endpoint.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def talk(server: PageServer, request: bytes) -> bytes:
    """Send bytes, and return all that comes back."""
    with dial(server) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while part := connection.recv(65536):
            found += part
        return found


def status(answer: bytes) -> int:
    """Return the status of an answer."""
    assert answer.startswith(b"HTTP/1.0 "), answer
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
def test_a_page_is_answered(server: PageServer, version: bytes) -> None:
    answer = talk(server, b"GET /page?x=1 " + version + b"\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (status(answer), body) == (200, BODY)
    assert b"Content-Length: %d" % len(BODY) in head
    assert b"nosniff" in head


def test_head_has_no_body(server: PageServer) -> None:
    answer = talk(server, b"HEAD /page HTTP/1.1\r\n\r\n")
    assert status(answer) == 200
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/page/",
        "//page/..",
        "/./page",
        "/x/../page",
        "/%70age",
        "/page%00",
        "/page;x",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "http://other/page",
        "*",
        "page",
        "/PAGE",
        "/page\\..\\x",
    ],
)
def test_paths_that_are_no_page_are_not_found(server: PageServer, path: str) -> None:
    answer = talk(server, f"GET {path} HTTP/1.1\r\n\r\n".encode())
    assert status(answer) == 404
    assert b"passwd" not in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"])
def test_other_methods_are_not_allowed(server: PageServer, method: str) -> None:
    body = b"x" * 5000
    answer = talk(
        server, f"{method} /page HTTP/1.1\r\nContent-Length: 5000\r\n\r\n".encode() + body
    )
    assert status(answer) == 405
    assert b"Allow: GET, HEAD" in answer
    assert body not in answer


@pytest.mark.parametrize(
    ("request_line", "code"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /page HTTP/9.9 more\r\n\r\n", 400),
        (b"GET /page HTTP/x\r\n\r\n", 400),
        (b"GET /page FTP/1.0\r\n\r\n", 400),
        (b"GET /page HTTP/2.0\r\n\r\n", 505),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /page HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /page HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
)
def test_bad_requests_get_an_error(server: PageServer, request_line: bytes, code: int) -> None:
    assert status(talk(server, request_line)) == code
    assert status(talk(server, b"GET /page HTTP/1.1\r\n\r\n")) == 200


def test_a_header_given_twice_is_one_list(server: PageServer) -> None:
    answer = talk(server, b"GET /accept HTTP/1.1\r\nAccept: a\r\nAccept: b\r\n\r\n")
    assert answer.endswith(b"\r\n\r\na,b")


def test_a_fault_of_a_page_ends_only_its_connection(
    server: PageServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert talk(server, b"GET /fault HTTP/1.1\r\n\r\n") == b""
    assert "a page that cannot be made" in caplog.text
    assert status(talk(server, b"GET /page HTTP/1.1\r\n\r\n")) == 200


def test_any_bytes_leave_it_serving(server: PageServer) -> None:
    rng = random.Random(7)
    good = b"GET /page HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n"
    for _ in range(150):
        if rng.random() < 0.3:
            request = rng.randbytes(rng.randrange(200))
        else:
            changed = bytearray(good)
            for _ in range(rng.randrange(1, 6)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            request = bytes(changed)
        answer = talk(server, request)
        assert not answer or status(answer) in {200, 400, 404, 405, 431, 505}, (request, answer)
    assert status(talk(server, good)) == 200


def test_whoever_is_slow_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "WHOLE_S", 0.3)
    monkeypatch.setattr(page_server, "LOOK_S", 0.05)
    server = PageServer("127.0.0.1:0", find)
    server.start()
    try:
        with dial(server) as slow:
            slow.sendall(b"GET /page HTTP/1.1\r\n")
            ended = threading.Event()

            def drip() -> None:
                # A byte now and then keeps a time-out of single reads from passing.
                try:
                    while not ended.wait(0.05):
                        slow.sendall(b"X")
                except OSError:
                    pass

            thread = threading.Thread(target=drip)
            thread.start()
            try:
                assert slow.recv(1024) == b""
            except ConnectionResetError:
                pass  # Its last bytes were not read any more.
            finally:
                ended.set()
                thread.join()
        monkeypatch.undo()
        assert status(talk(server, b"GET /page HTTP/1.1\r\n\r\n")) == 200
    finally:
        server.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /page HTTP/1.1\r\n", b"GET /page HTTP/1.1\r\nContent-Length: 9\r\n\r\n"]
)
def test_unfinished_requests_keep_nobody_out(server: PageServer, sent: bytes) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(3 * page_server.MAX_CONNECTIONS):
            stack.enter_context(dial(server)).sendall(sent)
        assert status(talk(server, b"GET /page HTTP/1.1\r\n\r\n")) == 200


def test_while_all_connections_are_answered_more_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_server, "WHOLE_S", 60.0)
    begun, made = threading.Semaphore(0), threading.Event()

    def find_slowly(path: str, accept: str) -> Page | None:
        begun.release()
        assert made.wait(60)
        return find(path, accept)

    server = PageServer("127.0.0.1:0", find_slowly)
    server.start()
    with contextlib.ExitStack() as stack:
        stack.callback(server.close)
        stack.callback(made.set)
        for _ in range(page_server.MAX_CONNECTIONS):
            stack.enter_context(dial(server)).sendall(b"GET /page HTTP/1.1\r\n\r\n")
            assert begun.acquire(timeout=60)
        with dial(server) as one_more:
            assert one_more.recv(1024).startswith(b"HTTP/1.0 503")
        made.set()
        until = time.monotonic() + 60
        answer = b""
        while b"200" not in answer[:15]:
            assert time.monotonic() < until
            # While it is full it does not read the request, and a reset may take the answer away.
            with contextlib.suppress(OSError):
                answer = talk(server, b"GET /page HTTP/1.1\r\n\r\n")


def test_without_descriptors_it_waits_before_it_accepts_again(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

    def refuse(_: socket.socket) -> tuple[socket.socket, object]:
        tries.append(time.monotonic())
        if len(tries) >= 3:
            monkeypatch.undo()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket.socket, "accept", refuse)
    assert status(talk(server, b"GET /page HTTP/1.1\r\n\r\n")) == 200
    assert len(tries) == 3
    # A selector may wake up somewhat early.
    assert tries[2] - tries[0] >= 1.8 * page_server.SHORT_S


def test_close_does_not_wait_for_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "SHORT_S", 100_000.0)
    server = PageServer("127.0.0.1:0", find)
    tried = threading.Event()

    def refuse(_: socket.socket) -> tuple[socket.socket, object]:
        tried.set()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket.socket, "accept", refuse)
    server.start()
    with dial(server):
        assert tried.wait(60)
        server.close()


def test_close_does_not_wait_for_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "LOOK_S", 100_000.0)
    server = PageServer("127.0.0.1:0", find)
    server.start()
    assert status(talk(server, b"GET /page HTTP/1.0\r\n\r\n")) == 200
    server.close()


def test_close_ends_open_connections_and_releases_the_port(server: PageServer) -> None:
    with dial(server) as held:
        held.sendall(b"GET ")
        server.close()
        # What it sent may not be read any more.
        with contextlib.suppress(ConnectionResetError):
            assert held.recv(1024) == b""
    again = PageServer(server.endpoint, find)
    with pytest.raises(StartError, match="in use") as caught:
        PageServer(server.endpoint, find)
    assert caught.value.code == "PORT_IN_USE"
    again.close()
    server.close()


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(StartError, match="cannot listen") as caught:
        PageServer("192.0.2.1:9000", find)
    assert caught.value.code == "BAD_CONFIG"


def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    server = PageServer("[::1]:0", find)
    server.start()
    try:
        assert server.endpoint.startswith("[::1]:")
    finally:
        server.close()


@pytest.fixture
def encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageServer]:
    """A server at a free port that speaks HTTPS and looks for a new certificate every time."""
    monkeypatch.setattr(tls_files, "LOOK_S", 0.0)
    made = PageServer("127.0.0.1:0", find, TlsFiles(*put_pair(tmp_path)).context)
    made.start()
    yield made
    made.close()


def test_pages_are_encrypted_and_a_renewed_certificate_counts(
    encrypted: PageServer, tmp_path: Path
) -> None:
    for certificate in (FIRST, RENEWED):
        put_pair(tmp_path, certificate)
        with trusting().wrap_socket(
            dial(encrypted), server_hostname="127.0.0.1", suppress_ragged_eofs=False
        ) as connection:
            assert connection.getpeercert(binary_form=True) == der(certificate)
            connection.sendall(b"GET /page HTTP/1.1\r\n\r\n")
            answer = b""
            # Without an orderly end of TLS this raises.
            while part := connection.recv(65536):
                answer += part
        assert (status(answer), answer.partition(b"\r\n\r\n")[2]) == (200, BODY)


def test_who_speaks_no_tls_gets_nothing_and_holds_up_nobody(encrypted: PageServer) -> None:
    # Its reset may come before all is sent.
    with contextlib.suppress(OSError):
        assert b"page" not in talk(encrypted, b"GET /page HTTP/1.1\r\n\r\n")
    silent = [dial(encrypted) for _ in range(page_server.MAX_CONNECTIONS)]
    with trusting().wrap_socket(dial(encrypted), server_hostname="127.0.0.1") as connection:
        connection.sendall(b"GET /page HTTP/1.1\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.0 200")
    for each in silent:
        each.close()


def test_a_handshake_that_does_not_end_is_ended(
    encrypted: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "WHOLE_S", 0.2)
    monkeypatch.setattr(page_server, "LOOK_S", 0.1)
    with dial(encrypted) as connection:
        connection.sendall(b"\x16\x03\x01")
        assert connection.recv(1_000) == b""


def test_a_connection_that_is_reset_before_its_handshake_is_dropped_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = PageServer("127.0.0.1:0", find, TlsFiles(*put_pair(tmp_path)).context)
    try:
        # Into the backlog, so that they are accepted after the reset.
        for sent in (b"", b"\x16"):
            with dial(server) as connection:
                connection.sendall(sent)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.start()
        with trusting().wrap_socket(dial(server), server_hostname="127.0.0.1") as connection:
            connection.sendall(b"GET /page HTTP/1.1\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.0 200")
    finally:
        server.close()
    assert not caplog.records


def test_a_connection_without_a_thread_leaves_its_place(
    encrypted: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    inner = encrypted._server  # noqa: SLF001 - a place that is taken for good shows nowhere else
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with dial(encrypted) as connection:
            assert connection.recv(1_000) == b""
    assert not inner._open  # noqa: SLF001 - as above
    assert not len(inner._places)  # noqa: SLF001 - as above
