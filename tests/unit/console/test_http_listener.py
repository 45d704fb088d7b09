"""Whose connections have no bound of their own."""

from __future__ import annotations

import pytest

from logboom.console.http_listener import is_of_proxy


@pytest.mark.parametrize(
    ("proxy", "address", "is_exempt"),
    [
        ("", "10.0.0.1", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1, 10.0.1.0/24", "10.0.1.7", True),
        ("10.0.0.1, 10.0.1.0/24", "10.0.2.7", False),
        ("*", "10.0.2.7", True),
        ("::1", "::1", True),
        ("no address", "10.0.0.1", False),
        ("10.0.0.0/8", "fe80::1%eth0", False),
    ],
)
def test_a_proxy_is_its_addresses(proxy: str, address: str, is_exempt: bool) -> None:
    assert is_of_proxy(proxy, address) is is_exempt
