"""The certificate of an HTTP listener and its key, read again when their files change.

New connections have the new certificate within `LOOK_S`; open ones keep theirs. What cannot be used, such
as a certificate whose key is not there yet, changes nothing: the event `certificate_refused` says so.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from logboom.wire.errors import StartError
from logboom.wire.event_log import log_event
from logboom.wire.secret_files import read_secret

LOOK_S: Final = 1.0
"""Seconds between two looks at the files."""
_Content = tuple[bytes, bytes]


class TlsFiles:
    """A certificate with its chain, and its key: PEM. Used by one thread."""

    def __init__(self, cert: Path | str, key: Path | str) -> None:
        """Read the files.

        Args:
            key: a file, or wherever else `read_secret` finds it.

        Raises:
            StartError: they cannot be read, are no certificate with its key, or others can read the key.
        """
        self._cert = Path(cert)
        self._key = key
        self._content = self._read()
        self._context = self._load(self._content)
        self._refused = ""
        """What the log has said of files that cannot be used."""
        self._next_look = time.monotonic() + LOOK_S

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection, after a look at the files if one is due."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            self._follow()
        return self._context

    def listening_context(self) -> ssl.SSLContext:
        """Return a context for a listener that has one for good: each handshake takes the newest."""
        made = self._load(self._content)

        def choose(connection: ssl.SSLObject, _name: str | None, _of: ssl.SSLContext) -> None:
            connection.context = self.context()

        made.sni_callback = choose
        return made

    def _follow(self) -> None:
        try:
            content = self._read()
            if content != self._content:
                self._context, self._content = self._load(content), content
            self._refused = ""
        except StartError as error:
            if error.text != self._refused:
                self._refused = error.text
                log_event("certificate_refused", text=error.text)

    def _read(self) -> _Content:
        try:
            return self._cert.read_bytes(), read_secret(self._key, "the key of TLS")
        except OSError as error:
            raise StartError(
                f"cannot read the certificate {self._cert} ({error.strerror})"
            ) from None

    def _load(self, content: _Content) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Both as they were read: the files may be others by now. A key with a password is refused.
            with _in_memory(content[0]) as cert, _in_memory(content[1]) as key:
                made.load_cert_chain(cert, key, password="")
        except OSError as error:
            raise StartError(
                f"{self._cert} and {self._key} are no certificate with its key "
                f"({error.strerror or error}): give PEM files without a password"
            ) from None
        return made


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Give OpenSSL, which reads files alone, one that is on no disk."""
    handle = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
