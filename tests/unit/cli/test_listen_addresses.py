"""`--listen` of the console and of the exporter."""

from __future__ import annotations

import pytest

from logboom.cli.console_commands import split_listen
from logboom.cli.exporter_command import exporter
from logboom.wire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:8080", ("::1", 8080)),
        ("8080", ("127.0.0.1", 8080)),
        (":8080", ("127.0.0.1", 8080)),
        ("boom.example.com:0", ("boom.example.com", 0)),
        ("0.0.0.0:65535", ("0.0.0.0", 65_535)),
    ],
)
def test_the_console_takes_a_port_alone(text: str, address: tuple[str, int]) -> None:
    assert split_listen(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "127.0.0.1:65536", "127.0.0.1:²", "a:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--listen"):
        split_listen(text)
    with pytest.raises(InvalidRequest, match="--listen"):
        exporter(listen=text)
