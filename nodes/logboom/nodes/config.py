"""Settings of one broker, from its configuration file or from `logboom.deploy`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from logboom.wire.connection_limits import MAX_PER_ADDRESS
from logboom.wire.endpoints import MAX_PORT, endpoint_fault
from logboom.wire.errors import StartError
from logboom.wire.listeners import (
    ListenerConfig,
    ListenerView,
    check_dialled,
    check_listeners,
    check_metrics_listen,
    listener_views,
)
from logboom.wire.log_format import LogForm
from logboom.wire.messages import MAX_BATCH_BYTES

MIN_REQUEST_BYTES: Final = 2 * 1024 * 1024
"""Smallest `max_request_bytes`: a batch of a client that leaves its settings alone must pass."""
HEARTBEAT: Final = 1.0
"""Seconds between heartbeats to the Raft leader."""

_LISTEN: Final = "127.0.0.1:7711"
_ID: Final = re.compile(r"[a-z0-9-]{1,64}")


class BrokerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one broker."""

    id: str
    """Id of this broker, for example "broker-1"."""
    name_servers: list[str]
    """Endpoints (host:port) of the first name servers to ask. Others are learned from them."""
    data: str = ""
    """Folder of the store. (Only the skin reads it.)"""
    listen: str = _LISTEN
    """host:port to bind; port 0 takes a free one."""
    advertise: str = ""
    """host:port that clients and other brokers connect to. Empty: `listen` as bound. (The skin sets
    it before it creates the core.)"""
    listeners: list[ListenerConfig] = []
    """Addresses to bind, each with its own security, in place of `listen` and `advertise`. Others
    are told the first unless they came by another. (The skin sets each `advertise`.)"""
    credentials_file: str = ""
    """File with the key pair of this node and the name servers' public keys. (Only the skin reads
    it.)"""
    insecure: bool = False
    """True if a listener without encryption may bind an address that other machines reach."""
    metrics_listen: str = "auto"
    """host:port for metrics and health, which are HTTP and open to whoever reaches them; port 0
    takes a free one. "auto": loopback, 1000 ports above the first listener, unless that takes a
    free port or the port is in use. "off": none. (Only the skin reads it.)"""
    metrics_tls_cert: str = ""
    """Certificate with its chain (PEM) for that port, which then speaks HTTPS. (Only the skin reads it.)"""
    metrics_tls_key: str = ""
    """Its key (PEM). Both files are read again when they change. (Only the skin reads it.)"""
    zone: str = ""
    """Location of the machine. The replicas of a queue are spread over zones."""
    host: str = ""
    """Name of the machine, if several brokers share it: no two replicas of a queue are placed
    there. Empty: this broker is the only one on its machine."""
    cluster_key_file: str = ""
    """File with the key that all nodes share, followed as it changes. (Only the skin reads it.)"""
    memory_bytes: int = 1024 * 1024 * 1024
    """Memory that this broker may use. A reader that is behind by more than 40 % of it is slow."""
    cache_bytes: int = 32 * 1024 * 1024
    """Memory for the most recent entries, so that reads at the tail need no store."""
    follower_reads: bool = False
    """If true, followers answer pulls below the HW that they know, and slow readers are sent to
    them."""
    max_request_bytes: int = 8 * 1024 * 1024
    """Largest batch that this broker accepts, and so the largest `max_message_bytes` of a topic."""
    max_connections_per_address: int = MAX_PER_ADDRESS
    """Connections that one address may have; more are reset. Loopback has no limit. 0: no limit.
    (Only the skin reads it.)"""
    log: LogForm = "text"
    """Form of the log on standard error: text, or json. (Only `logboom.deploy` reads it.)"""
    audit: bool = True
    """If true, refusals and management are written to the audit log. (Only the skin reads it.)"""
    audit_folder: str = ""
    """Folder of the audit log. Empty: `data`. (Only the skin reads it.)"""
    audit_files: int = 4
    """Files of 8 MiB that are kept of the audit log, and of that of administrators. (Only the skin reads
    it.)"""
    max_unsynced_bytes: int = 64 * 1024 * 1024
    """Bytes written and not yet on disk above which the node stops reading. (Only the skin reads
    it.)"""
    disk_reserve_bytes: int = 1024 * 1024 * 1024
    """Free bytes of the file system below which writes are refused (DISK_FULL). 0: only the
    percentage counts."""
    disk_reserve_percent: float = 5.0
    """The same limit in percent of the file system; the smaller limit counts. 0: only the bytes
    count."""
    fetch_bytes: int = 4 * 1024 * 1024
    """Maximum bytes of entries in one answer to a follower."""
    fetch_wait_ms: int = 500
    """Milliseconds that a leader holds a follower's REPLICATE if there is nothing new."""
    hw_news_ms: float = 2.0
    """Milliseconds that a mere HW update may wait for other news before it is sent to followers."""
    out_of_sync_ms: int = 3_000
    """Milliseconds after which a follower that is not caught up leaves the ISR. To join, it must
    have been caught up within half of this time."""
    replica_delete_grace_s: float = 60.0
    """Seconds after which a replica that was moved to another broker is deleted here."""
    retention_check_ms: int = 5_000
    """Milliseconds between two checks of what retention may remove."""
    scrub_bytes_per_s: int = 8 * 1024 * 1024
    """Bytes of stored entries that are continuously read and checked per second. 0: none."""
    scrub_every_s: float = 3_600.0
    """Minimum seconds from the start of one pass over everything to the start of the next."""
    compaction_messages_per_s: int = 25_000
    """Messages per second that compaction processes, over all queues."""
    dispatch_filters: list[str] = []
    """Plug-ins, as package.module:function, that decide about batches before they are delivered to
    subscriptions (`logboom.nodes.subscriptions.entry_filter`). (Only the skin reads it.)"""
    producer_expiry_ms: int = 7 * 86_400_000
    """Milliseconds after which an idle idempotent producer is forgotten."""
    transaction_timeout_ms: int = 15 * 60_000
    """Milliseconds that a batch may wait for its transaction before an abort is proposed. It is
    long, since readers do not wait meanwhile, while a Spark write may have to wait for lost
    executors."""
    half_check_after_ms: int = 6_000
    """Milliseconds after which the producer group of a half message is first asked about it."""
    half_check_every_ms: int = 30_000
    """Milliseconds between two of these checks."""
    half_checks: int = 15
    """Number of checks after which a half message waits for an operator."""


def listeners_of(config: BrokerConfig) -> list[ListenerConfig]:
    """Return the listeners of a broker; `listen` alone is one open listener, "main"."""
    main = ListenerConfig(
        name="main", listen=config.listen, security="none", advertise=config.advertise
    )
    return config.listeners or [main]


def check_config(config: BrokerConfig) -> None:
    """Check what the types alone cannot.

    Raises:
        StartError: BAD_CONFIG, with a text of one line.
    """
    if not _ID.fullmatch(config.id):
        raise StartError(f"id {config.id!r}: a broker's id matches {_ID.pattern}, e.g. broker-1")
    if not config.name_servers:
        raise StartError("name_servers is empty: list at least one name server as host:port")
    for endpoint in config.name_servers:
        fault = endpoint_fault(endpoint)
        if fault is not None:
            raise StartError(f"name_servers: {fault}")
    if config.out_of_sync_ms < 2 * config.fetch_wait_ms:
        raise StartError("out_of_sync_ms must be at least twice fetch_wait_ms")
    if config.scrub_bytes_per_s < 0 or config.scrub_every_s < 0:
        raise StartError("scrub_bytes_per_s and scrub_every_s must not be below 0")
    if config.replica_delete_grace_s < 0:
        raise StartError("replica_delete_grace_s must not be below 0 (seconds)")
    if config.compaction_messages_per_s <= 0:
        raise StartError("compaction_messages_per_s must be greater than 0")
    if not MIN_REQUEST_BYTES <= config.max_request_bytes <= MAX_BATCH_BYTES:
        raise StartError(
            f"max_request_bytes {config.max_request_bytes}: give {MIN_REQUEST_BYTES} to "
            f"{MAX_BATCH_BYTES} (bytes)"
        )
    if config.max_connections_per_address < 0:
        raise StartError("max_connections_per_address must not be below 0 (0: no limit)")
    for name in ("memory_bytes", "cache_bytes", "max_unsynced_bytes", "fetch_bytes"):
        if getattr(config, name) <= 0:
            raise StartError(f"{name} must be greater than 0 (bytes)")
    for name in ("transaction_timeout_ms", "half_check_after_ms", "half_check_every_ms"):
        if getattr(config, name) <= 0:
            raise StartError(f"{name} must be greater than 0 (milliseconds)")
    if config.disk_reserve_bytes < 0:
        raise StartError("disk_reserve_bytes must not be below 0")
    if not 0 <= config.disk_reserve_percent < 100:
        raise StartError("disk_reserve_percent must be from 0 to below 100")
    if config.half_checks < 0:
        raise StartError("half_checks must not be below 0")
    if config.listeners and (config.listen != _LISTEN or config.advertise):
        raise StartError("`listeners` stands in place of `listen` and `advertise`: remove these")
    listeners = listeners_of(config)
    check_listeners(listeners, credentials_file=config.credentials_file, insecure=config.insecure)
    check_metrics_listen(config.metrics_listen, config.metrics_tls_cert, config.metrics_tls_key)
    check_dialled(listeners)


def instance_config(config: BrokerConfig, number: int) -> BrokerConfig:
    """Return the settings of one of several brokers that share a machine and a config file.

    Args:
        config: The settings of the file.
        number: Which of the brokers it is, from 1 on: its id and its folder end with it, and it
            listens that many ports above the first.

    Raises:
        StartError: BAD_CONFIG; the number is below 1, or a port is invalid.
    """
    if number < 1:
        raise StartError(f"instance {number}: the brokers of a machine are numbered from 1 on")
    host = config.host or config.id
    return msgspec.structs.replace(
        config,
        id=f"{config.id}-{number}",
        listen=_port_above(config.listen, number - 1),
        advertise=config.advertise and _port_above(config.advertise, number - 1),
        listeners=[_listener_above(each, number - 1) for each in config.listeners],
        metrics_listen=(
            config.metrics_listen
            if config.metrics_listen in ("auto", "off")
            else _port_above(config.metrics_listen, number - 1)
        ),
        credentials_file=config.credentials_file and _numbered(config.credentials_file, number),
        data=config.data and f"{config.data}/{number}",
        audit_folder=config.audit_folder and f"{config.audit_folder}/{number}",
        zone=config.zone or host,
        host=host,
    )


def _listener_above(listener: ListenerConfig, count: int) -> ListenerConfig:
    advertise = listener.advertise and _port_above(listener.advertise, count)
    listen = _port_above(listener.listen, count)
    return msgspec.structs.replace(listener, listen=listen, advertise=advertise)


def _numbered(path: str, number: int) -> str:
    """Return the path with the number at the end of the file's stem: a.toml, a-1.toml."""
    folder, slash, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    return f"{folder}{slash}{stem}-{number}.{ending}" if dot else f"{path}-{number}"


def _port_above(endpoint: str, count: int) -> str:
    """Return the endpoint so many ports above; port 0 stays, because it takes a free one."""
    address, _, port = endpoint.rpartition(":")
    if not port.isdecimal() or int(port) + count > MAX_PORT:
        raise StartError(f"{endpoint} has no port {count} above it: give host:port")
    return f"{address}:{int(port) + count}" if int(port) else endpoint


def fill_advertised(config: BrokerConfig, endpoints: Mapping[str, str]) -> BrokerConfig:
    """Return the settings with each empty `advertise` set from the bound endpoints, by listener."""
    views = listener_views(listeners_of(config), endpoints)
    listeners = [
        msgspec.structs.replace(each, advertise=view.endpoint)
        for each, view in zip(config.listeners, views, strict=False)
    ]
    return msgspec.structs.replace(config, advertise=views[0].endpoint, listeners=listeners)


def announced_listeners(config: BrokerConfig) -> list[ListenerView]:
    """Return what this broker registers of its listeners; nothing if it has a single open one.

    `config` has been through `fill_advertised`.
    """
    if len(config.listeners) == 1 and config.listeners[0].security == "none":
        return []
    return listener_views(config.listeners, {})
