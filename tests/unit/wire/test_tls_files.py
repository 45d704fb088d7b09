"""The certificate of a listener: replaced while it serves, and kept while the new one cannot be used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from logboom.wire import tls_files
from logboom.wire.errors import StartError
from logboom.wire.tls_files import TlsFiles
from tests.unit.wire.tls_pairs import FIRST, RENEWED, der, put_pair, shown_by


@pytest.fixture(autouse=True)
def always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the files with each connection."""
    monkeypatch.setattr(tls_files, "LOOK_S", 0.0)


def test_a_renewed_certificate_counts_for_new_connections(tmp_path: Path) -> None:
    files = TlsFiles(*put_pair(tmp_path))
    listening = files.listening_context()
    assert shown_by(files.context()) == shown_by(listening) == der(FIRST)
    put_pair(tmp_path, RENEWED)
    assert shown_by(files.context()) == shown_by(listening) == der(RENEWED)


def test_what_cannot_be_used_changes_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = put_pair(tmp_path)
    files = TlsFiles(cert, key)
    kept = files.context()
    with caplog.at_level(logging.WARNING):
        cert.write_bytes(RENEWED.read_bytes())  # its key is not there yet
        assert files.context() is files.context() is kept
        assert len(caplog.records) == 1
        key.chmod(0o644)
        assert files.context() is files.context() is kept
        assert len(caplog.records) == 2
        cert.unlink()
        assert files.context() is kept
    assert "certificate_refused" in caplog.text
    put_pair(tmp_path, RENEWED)
    assert shown_by(files.context()) == der(RENEWED)


def test_a_look_is_due_only_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_files, "LOOK_S", 1_000.0)
    files = TlsFiles(*put_pair(tmp_path))
    put_pair(tmp_path, RENEWED)
    assert shown_by(files.context()) == der(FIRST)


def test_a_key_that_others_read_is_refused(tmp_path: Path) -> None:
    cert, key = put_pair(tmp_path)
    key.chmod(0o640)
    with pytest.raises(StartError, match="chmod 600"):
        TlsFiles(cert, key)


def test_files_that_are_no_certificate_are_named(tmp_path: Path) -> None:
    cert, key = put_pair(tmp_path)
    with pytest.raises(StartError, match=r"boom\.key and .* are no certificate"):
        TlsFiles(key, cert)
    with pytest.raises(StartError, match=r"missing\.pem"):
        TlsFiles(tmp_path / "missing.pem", key)


def test_a_key_with_a_password_is_refused(tmp_path: Path) -> None:
    cert, key = put_pair(tmp_path)
    key.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
        "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAhJPmPHWdmhrQICCAAw\n"
        "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEMedEU9G/mwyT94SavicNhoEgZDM\n"
        "iUIZp94tzZA4tZ8z+hvXv/GBi6P3stVAl+GJVemXKq8lhCwsb0g2c4pPWWhohIEu\n"
        "Rx9ViiwL3xvTlZgmsdGtnt9uFWxtO7/GzQ4q8ZcF2FatD6qVRtiTgy1xut2iRiAt\n"
        "or+Y+kvDyOOyzXGvEVLyXTpuitVhm3zoxUgZxIQweoSdaqecS0reici3pabC3g4=\n"
        "-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    with pytest.raises(StartError, match="without a password"):
        TlsFiles(cert, key)
