"""The console with a certificate of its own, and behind a proxy that has one."""

from __future__ import annotations

import json
import ssl
from http.client import BadStatusLine, HTTPConnection, RemoteDisconnected
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from logboom.console.passwords import hash_password
from logboom.console.server import ConsoleServer, console_thread
from logboom.console.site import ConsoleSettings
from logboom.console.viewer_records import ViewerRecord
from logboom.console.viewers_file import ViewersFile, write_viewers
from logboom.deploy.embedded import Embedded
from tests.integration.console.test_console_surface import PASSWORD, HttpVisitor
from tests.integration.waiting import wait_until
from tests.unit.wire.tls_pairs import FIRST, RENEWED, der, put_pair, trusting


def made(node: Embedded, folder: Path, **settings: Any) -> ConsoleServer:
    """A console with one viewer."""
    path = folder / "viewers.toml"
    write_viewers(path, {"alice": ViewerRecord(hash_password(PASSWORD), False)})
    return ConsoleServer(
        ConsoleSettings("127.0.0.1", 0, **settings),
        node.endpoints,
        None,
        folder / "console",
        ViewersFile(path),
    )


def signed_in_from(console: ConsoleServer) -> list[str]:
    """The addresses of who signed in, as the audit log tells."""
    lines = map(json.loads, console.audit_path.read_text().splitlines())
    return [line["address"] for line in lines if line["event"] == "authentication"]


def test_pages_are_encrypted_and_so_are_sessions(node: Embedded, tmp_path: Path) -> None:
    cert, key = map(str, put_pair(tmp_path))
    server = made(node, tmp_path, tls_cert=cert, tls_key=key)
    assert server.url.startswith("https://127.0.0.1:")
    with console_thread(server):
        visitor = HttpVisitor(server, trusted=trusting())
        answer = visitor.sign_in("alice")
        assert answer.status == 303
        assert "; secure" in answer.headers["set-cookie"].lower()
        assert visitor.get("/topics").status == 200
        # Whoever does not trust it, and whoever does not encrypt, sees nothing.
        with pytest.raises(ssl.SSLCertVerificationError):
            HttpVisitor(server, trusted=ssl.create_default_context()).get("/topics")
        plain = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
        plain.request("GET", "/topics")
        with pytest.raises((BadStatusLine, RemoteDisconnected, ConnectionResetError)):
            plain.getresponse()
        plain.close()


def test_a_renewed_certificate_needs_no_restart(node: Embedded, tmp_path: Path) -> None:
    cert, key = map(str, put_pair(tmp_path))
    server = made(node, tmp_path, tls_cert=cert, tls_key=key)
    place = urlsplit(server.url)

    def shown() -> bytes:
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", place.port or 0)))

    with console_thread(server):
        assert shown() == der(FIRST)
        put_pair(tmp_path, RENEWED)
        wait_until(lambda: shown() == der(RENEWED), "the old certificate is shown")
        assert HttpVisitor(server, trusted=trusting()).get("/sign-in").status == 200


@pytest.mark.parametrize(("proxy", "believed"), [("127.0.0.1", True), ("10.9.9.9", False)])
def test_a_proxy_is_believed_and_nobody_else(
    node: Embedded, tmp_path: Path, proxy: str, believed: bool
) -> None:
    server = made(node, tmp_path, proxy=proxy)
    with console_thread(server):
        visitor = HttpVisitor(server)
        token = visitor.token("/sign-in")
        said = {"X_Forwarded_For": "203.0.113.7", "X_Forwarded_Proto": "https"}
        origin = visitor.origin.replace("http:", "https:") if believed else visitor.origin
        body = f"token={token}&name=alice&password={PASSWORD.replace(' ', '+')}".encode()
        answer = visitor.ask("POST", "/sign-in", body, Origin=origin, **said)
        assert answer.status == 303
        assert ("; secure" in answer.headers["set-cookie"].lower()) is believed
        assert signed_in_from(server) == ["203.0.113.7" if believed else "127.0.0.1"]
