"""The one rule for endpoints, "host:port", wherever they come from.

ZeroMQ raises on some of what is no endpoint, and takes other texts for something else: `a;b:1` for
a source and a destination, 99999 for port 34463.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

MAX_PORT: Final = 65_535
MAX_HOST: Final = 253
"""Maximum length of a host's name, as in DNS."""
_PORT: Final = re.compile(r"[0-9]{1,5}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_DIGITS: Final = re.compile(r"[0-9.]+")
_ZONE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SHOWN: Final = 160
"""Characters of a wrong endpoint that its error shows."""


def endpoint_fault(text: str) -> str | None:
    """Return why this is no endpoint that others dial, in one line, or None."""
    if is_wildcard(text) and listen_fault(text) is None:
        mend = "write the host:port of one that others dial"
        return f"{text!r} stands for all addresses of a machine: {mend}"
    return _fault(text, lowest_port=1)


def listen_fault(text: str) -> str | None:
    """Return why this is no address to bind, in one line, or None.

    Port 0 takes a free one, and a wildcard stands for all addresses of the machine.
    """
    host, _, port = text.rpartition(":")
    return _fault(f"0.0.0.0:{port}" if host == "*" else text, lowest_port=0)


def may_be_dialled(text: str) -> bool:
    """Return True if ZeroMQ can be asked to dial an endpoint that somebody else told.

    It may be a wildcard, which stands for this machine: a name server alone, which binds all
    addresses, is known by that one.
    """
    return _fault(text, lowest_port=1) is None


def is_wildcard(endpoint: str) -> bool:
    """Return True if an address to bind stands for all addresses of the machine."""
    host = host_of(endpoint)
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == "*"


def host_of(endpoint: str) -> str:
    """Return the host of an endpoint in lower case, without brackets."""
    return endpoint.rpartition(":")[0].strip("[]").lower()


def _fault(text: str, lowest_port: int) -> str | None:
    host, _, port = text.rpartition(":")
    if "://" in text:
        why = f"leave out {text.partition('://')[0][:20]}://"
    elif not _PORT.fullmatch(port) or not lowest_port <= int(port) <= MAX_PORT:
        why = f"its port is no number from {lowest_port} to {MAX_PORT}"
    else:
        found = _host_fault(host)
        if found is None:
            return None
        why = found
    shown = repr(text[:_SHOWN])
    return f"{shown} is not an endpoint, {why}: write host:port, e.g. 127.0.0.1:7711"


def _host_fault(host: str) -> str | None:
    """Return why ZeroMQ cannot dial a host, as part of a sentence, or None."""
    if not host:
        return "it has no host"
    if host.startswith("[") and host.endswith("]"):
        address, percent, zone = host[1:-1].partition("%")
        if _is_address(address, 6) and (not percent or _ZONE.fullmatch(zone)):
            return None
        return "what is in brackets is no IPv6 address"
    if ":" in host:
        return "an IPv6 address stands in brackets, as in [::1]:7711"
    if "@" in host:
        return "leave out the user"
    if len(host) > MAX_HOST:
        return f"its host is longer than {MAX_HOST} characters"
    if not host.isascii():
        return "its host is not ASCII (write a domain name in its form with xn--)"
    if _DIGITS.fullmatch(host):
        return None if _is_address(host, 4) else "its host is no IPv4 address"
    if not _NAME.fullmatch(host) or ".." in host:
        return "its host is neither a name nor an address"
    return None


def _is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False
