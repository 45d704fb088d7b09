"""Which requests are refused before anything else sees them."""

from __future__ import annotations

import pytest

from logboom.console.request_checks import check_request, is_allowed_host, is_loopback

OWN = {"host": "127.0.0.1:8080"}


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8080", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]:8080", True),
        ("10.0.0.7", True),
        ("console.example", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8080", False),
        ("evil.example@127.0.0.1", False),
        ("127.0.0.1/evil", False),
        ("127.0.0.1:port", False),
        ("", False),
    ],
)
def test_only_known_names_and_addresses_are_served(host: str, allowed: bool) -> None:
    assert is_allowed_host(host, {"console.example"}) is allowed


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", OWN, None),
        ("GET", {"host": "evil.example"}, 421),
        ("GET", {}, 421),
        ("PUT", OWN, 405),
        ("POST", OWN | {"origin": "http://127.0.0.1:8080"}, None),
        ("POST", OWN | {"origin": "https://127.0.0.1:8080"}, None),
        ("POST", OWN | {"origin": "http://127.0.0.1:9090"}, 403),
        ("POST", OWN | {"origin": "http://evil.example"}, 403),
        ("POST", OWN | {"origin": "null"}, 403),
        ("POST", OWN | {"origin": "127.0.0.1:8080"}, 403),
        ("POST", OWN, 403),
        ("POST", OWN | {"sec-fetch-site": "same-origin"}, None),
        ("POST", OWN | {"sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_what_is_refused(method: str, headers: dict[str, str], status: int | None) -> None:
    refused = check_request(method, 10, headers, frozenset())
    assert (refused.status if refused else None) == status


def test_a_long_address_is_refused() -> None:
    refused = check_request("GET", 9_000, OWN, frozenset())
    assert refused is not None
    assert refused.status == 414


@pytest.mark.parametrize(
    ("address", "local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_what_only_this_machine_reaches(address: str, local: bool) -> None:
    assert is_loopback(address) is local
