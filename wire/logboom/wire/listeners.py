"""Listeners of a node: the addresses that it binds, and whether they encrypt.

A socket has one mechanism, so that a node that serves encrypted and open connections has a listener
for each. The same serves clients inside and outside a private network.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from logboom.wire.endpoints import MAX_PORT, endpoint_fault, host_of, is_wildcard, listen_fault
from logboom.wire.errors import StartError

Security: TypeAlias = Literal["curve", "none"]
"""The protection of a listener: "curve" encrypts and knows every peer's key, "none" is open."""
SECURITIES: Final[tuple[Security, ...]] = get_args(Security)

MAX_LISTENERS: Final = 8
METRICS_DISTANCE: Final = 1000
"""The port for metrics and health is so many above that of the first listener."""
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")


class ListenerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `listeners` in a node's config file."""

    name: str
    """Its name. A client is told the endpoints of the listeners with the name of the one that it
    came by."""
    listen: str
    """host:port to bind; port 0 takes a free one."""
    security: Security
    """"curve": encrypted, for users with a key. "none": open to all who reach the address."""
    advertise: str = ""
    """host:port that others dial. Empty: `listen` as bound."""


class ListenerView(Struct, frozen=True, array_like=True, gc=False):
    """One listener of a node, in the metadata."""

    name: str
    endpoint: str
    """host:port that others dial."""
    security: str


def is_loopback(endpoint: str) -> bool:
    """Return True if only this machine reaches an address to bind.

    A wildcard is not loopback, and neither is a name other than localhost, because what it stands
    for may change.
    """
    host = host_of(endpoint)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def exposed(listeners: Sequence[ListenerConfig]) -> list[ListenerConfig]:
    """Return the listeners that others than this machine reach, and that do not encrypt."""
    return [each for each in listeners if each.security == "none" and not is_loopback(each.listen)]


def check_listeners(
    listeners: Sequence[ListenerConfig], *, credentials_file: str, insecure: bool
) -> None:
    """Check the listeners of a node.

    Raises:
        StartError: BAD_CONFIG, with the listener and the remedy: a name or address is invalid or
            given twice, a listener with CURVE has no credentials file, or one without binds an
            address that others reach, and `insecure` is not set.
    """
    if len(listeners) > MAX_LISTENERS:
        raise StartError(f"{len(listeners)} listeners: a node has at most {MAX_LISTENERS}")
    names: set[str] = set()
    addresses: set[str] = set()
    for each in listeners:
        if not _NAME.fullmatch(each.name):
            raise StartError(f"listener {each.name!r}: its name matches {_NAME.pattern}, e.g. main")
        if each.name in names:
            raise StartError(f"two listeners are called {each.name!r}: give each its own name")
        names.add(each.name)
        fault = listen_fault(each.listen)
        if fault is not None:
            raise StartError(f"listener {each.name!r}: {fault}")
        if each.listen in addresses and not each.listen.endswith(":0"):
            text = (
                f"two listeners bind {each.listen}: a port has one security, so give each its own"
            )
            raise StartError(text)
        addresses.add(each.listen)
        if is_wildcard(each.advertise):
            text = f"listener {each.name!r} advertises {each.advertise}, which nobody can dial"
            raise StartError(f"{text}: set `advertise` to the host:port that clients reach")
        fault = endpoint_fault(each.advertise) if each.advertise else None
        if fault is not None:
            raise StartError(f"listener {each.name!r}: {fault}")
        if each.security == "curve" and not credentials_file:
            raise StartError(
                f'listener {each.name!r} has security = "curve", but the config names no '
                "credentials_file: `logboom cluster init` makes one for each node"
            )
    open_to_all = exposed(listeners)
    if open_to_all and not insecure:
        first = open_to_all[0]
        raise StartError(
            f"{first.listen} is reached by other machines, and listener {first.name!r} lets "
            'everybody in: give it security = "curve" (`logboom cluster init` makes keys, the '
            "first administrator and the config files; docs/SECURITY.md), or write insecure = true "
            "if whoever reaches it may read, change and delete everything"
        )


def check_metrics_listen(setting: str, tls_cert: str = "", tls_key: str = "") -> None:
    """Check the settings `metrics_listen`, `metrics_tls_cert` and `metrics_tls_key` of a node.

    Raises:
        StartError: BAD_CONFIG; the first is neither an address nor one of the words, or one of the others
            is missing.
    """
    if bool(tls_cert) != bool(tls_key):
        raise StartError("metrics_tls_cert and metrics_tls_key belong together: name both files")
    if setting not in ("auto", "off") and listen_fault(setting) is not None:
        raise StartError(
            f'metrics_listen {setting!r}: write host:port, "auto" (loopback, {METRICS_DISTANCE} ports above '
            'the first listener) or "off"'
        )


def metrics_address(setting: str, first_listen: str) -> str:
    """Return the host:port that a node binds for metrics and health; "" for none.

    "auto" is loopback, `METRICS_DISTANCE` ports above the first listener, so that nodes of one
    machine do not meet. If that one takes a free port, there is none.

    Args:
        setting: `metrics_listen` of the node.
        first_listen: host:port of its first listener, as in its configuration.
    """
    if setting == "off":
        return ""
    if setting != "auto":
        return setting
    port = int(first_listen.rpartition(":")[2])
    if not port:
        return ""
    above = port + METRICS_DISTANCE
    return f"127.0.0.1:{above if above <= MAX_PORT else port - METRICS_DISTANCE}"


def curve_names(listeners: Sequence[ListenerConfig]) -> set[str]:
    """Return the names of the listeners that encrypt."""
    return {each.name for each in listeners if each.security == "curve"}


def may_dial_open(listeners: Sequence[ListenerConfig]) -> bool:
    """Return True if a node with these listeners may dial another without encryption.

    One with an open listener may: it is about to turn encryption on or off, and so may others be.
    One without trusts nobody who has no key.
    """
    return any(each.security == "none" for each in listeners)


def check_dialled(listeners: Sequence[ListenerConfig]) -> None:
    """Check that others can dial what is bound.

    Raises:
        StartError: BAD_CONFIG; a listener binds all addresses, and advertises none.
    """
    for each in listeners:
        if is_wildcard(each.listen) and not each.advertise:
            text = f"listener {each.name!r} binds {each.listen}, which nobody can dial"
            raise StartError(f"{text}: set `advertise` to the host:port that clients reach")


def listener_views(
    listeners: Sequence[ListenerConfig], bound: Mapping[str, str]
) -> list[ListenerView]:
    """Return the listeners as others see them, given the endpoints that were bound, by name."""
    return [
        ListenerView(each.name, each.advertise or bound[each.name], each.security)
        for each in listeners
    ]


def endpoint_for(listeners: Sequence[ListenerView], name: str, security: Security) -> str:
    """Return the endpoint that a peer is told that came by the listener `name` with `security`.

    This is the endpoint of the listener with that name, else of the first with that security, else
    of the first, or "" if there are none.
    """
    for each in listeners:
        if each.name == name:
            return each.endpoint
    for each in listeners:
        if each.security == security:
            return each.endpoint
    return listeners[0].endpoint if listeners else ""


def dialled_endpoint(endpoint: str, listeners: Sequence[ListenerView], *, encrypt: bool) -> str:
    """Return the endpoint at which a node dials another one.

    `encrypt` is True if the caller has a key pair and knows a public key of the other node: it then
    dials the first listener with CURVE. Otherwise, or if there is none, it dials the first that is
    open. Without listeners it is `endpoint`.
    """
    for wanted in ("curve", "none") if encrypt else ("none",):
        for each in listeners:
            if each.security == wanted:
                return each.endpoint
    return endpoint
