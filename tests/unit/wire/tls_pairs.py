"""Two certificates for localhost, and handshakes in memory that tell which one a listener shows."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parents[2] / "data/tls"
FIRST: Final = _FOLDER / "localhost.pem"
RENEWED: Final = _FOLDER / "renewed.pem"


def put_pair(folder: Path, certificate: Path = FIRST) -> tuple[Path, Path]:
    """Write a certificate and its key into a folder, in one step each; return both files."""
    files = folder / "boom.pem", folder / "boom.key"
    for file, source in zip(files, (certificate, certificate.with_suffix(".key")), strict=True):
        new = file.with_suffix(".new")
        new.write_bytes(source.read_bytes())
        new.chmod(0o600)
        new.replace(file)
    return files


def der(certificate: Path) -> bytes:
    """The certificate in a file as a handshake shows it."""
    return ssl.PEM_cert_to_DER_cert(certificate.read_text())


def trusting() -> ssl.SSLContext:
    """A client's context that trusts both."""
    made = ssl.create_default_context(cafile=FIRST)
    made.load_verify_locations(RENEWED)
    return made


def shown_by(context: ssl.SSLContext) -> bytes:
    """The certificate that a listener with a context shows to a client that names nobody."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    listener = context.wrap_bio(up, down, server_side=True)
    client = trusting().wrap_bio(down, up, server_hostname="127.0.0.1")
    waiting = [client, listener]
    while waiting:
        for each in [*waiting]:
            try:
                each.do_handshake()
                waiting.remove(each)
            except ssl.SSLWantReadError:
                pass
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return found
