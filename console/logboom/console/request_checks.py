"""What is checked of every request before anything else sees it, and what every answer says; pure.

A browser may be made to send us requests by any page that it shows. Three things keep them out: the
name under which we are asked (another site's name that was rebound to our address), the site that
sends a form, and a token in each form.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

MAX_BODY_BYTES: Final = 6 * 1024 * 1024
"""A form with a message of the usual greatest size, percent-encoded in part."""
MAX_URL_BYTES: Final = 8 * 1024
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
LOCAL_NAMES: Final = frozenset({"localhost", "ip6-localhost"})
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With no-referrer browsers would send the origin "null" with forms.
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of every answer, those of errors and static files included."""


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """Why a request is not served."""

    status: int
    text: str


def check_request(
    method: str,
    url_bytes: int,
    headers: Mapping[str, str],
    allowed_hosts: Collection[str],
) -> RequestRefusal | None:
    """Return why a request is refused, or None.

    Args:
        headers: by names in lower case.
        allowed_hosts: names besides localhost under which the console may be asked.
    """
    if url_bytes > MAX_URL_BYTES:
        return RequestRefusal(414, "the address is too long")
    host = headers.get("host", "")
    if not is_allowed_host(host, allowed_hosts):
        return RequestRefusal(
            421,
            f"this console is not known as {host[:100]!r}: start it with --host, and this name",
        )
    if method in SAFE_METHODS:
        return None
    if method != "POST":
        return RequestRefusal(405, f"{method[:20]} is not used here")
    if not is_own_origin(headers, host):
        return RequestRefusal(403, "the form was not sent by a page of this console")
    return None


def is_allowed_host(host: str, allowed: Collection[str]) -> bool:
    """True if a Host header is an IP address, which no name can be rebound to, localhost, or one of
    the names that were allowed."""
    try:
        parsed = urlsplit(f"//{host}")
        name, _ = parsed.hostname, parsed.port
    except ValueError:
        return False
    if not name or parsed.path or parsed.query or parsed.fragment or parsed.username is not None:
        return False
    if name in LOCAL_NAMES or name in allowed:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_own_origin(headers: Mapping[str, str], host: str) -> bool:
    """True if a form comes from the host that it is sent to.

    Browsers send Origin with every POST; a request with neither it nor Sec-Fetch-Site is no form of
    a page.
    """
    origin = headers.get("origin")
    if origin is not None:
        return origin.removeprefix("http://").removeprefix("https://") == host and "://" in origin
    return headers.get("sec-fetch-site") == "same-origin"


def is_loopback(address: str) -> bool:
    """True if only this machine reaches an address."""
    if address in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False
