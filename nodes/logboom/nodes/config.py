"""Settings of one broker, as its configuration file or `logboom.deploy` gives them."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Struct

from logboom.wire.errors import StartError

HEARTBEAT: Final = 1.0
"""Seconds between heartbeats to the raft leader."""

_ID: Final = re.compile(r"[a-z0-9-]{1,64}")


class BrokerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that one broker must know before it starts."""

    id: str
    """Its own id, e.g. "broker-1"."""
    name_servers: list[str]
    """Endpoints (host:port) of the name servers to begin with; WATCH tells of others."""
    data: str = ""
    """Folder of the store. (Only the skin reads it.)"""
    listen: str = "127.0.0.1:7711"
    """host:port to bind; port 0 takes a free one."""
    advertise: str = ""
    """host:port that clients and other brokers dial; empty: `listen` as bound. (The skin fills it
    in before it makes the core.)"""
    zone: str = ""
    """Where the machine stands; replicas of a queue are spread over zones."""
    cluster_key_file: str = ""
    """File with the key that all nodes share. (Only the skin reads it.)"""
    memory_bytes: int = 1024 * 1024 * 1024
    """Memory that this broker may count on; a reader further behind than 40 % of it is slow."""
    cache_bytes: int = 32 * 1024 * 1024
    """Most recent entries kept in memory, so that reads at the tail need no store."""
    follower_reads: bool = False
    """Whether followers answer pulls below the HW they know, and slow readers are sent to them."""
    max_unsynced_bytes: int = 64 * 1024 * 1024
    """Written and not yet on disk; past it the node stops reading. (Only the skin reads it.)"""
    disk_reserve_bytes: int = 1024 * 1024 * 1024
    """Free bytes of the file system below which writes are refused (DISK_FULL); 0: the share alone
    holds."""
    disk_reserve_percent: float = 5.0
    """The same as a share of the file system, in percent; the smaller of the two holds. 0: the bytes
    alone hold."""
    fetch_bytes: int = 4 * 1024 * 1024
    """Most bytes of entries in one answer to a follower."""
    fetch_wait_ms: int = 500
    """How long a leader holds a follower's REPLICATE without news, in milliseconds."""
    hw_news_ms: float = 2.0
    """How long news of the HW alone may wait for company before it goes to followers, in ms."""
    out_of_sync_ms: int = 3_000
    """Milliseconds without being caught up after which a follower leaves the ISR; who joins was caught
    up within half of it."""
    retention_check_ms: int = 5_000
    """Milliseconds between two looks for what retention may delete."""
    scrub_bytes_per_s: int = 8 * 1024 * 1024
    """Bytes per second of stored entries that are read and checked, all the time; 0: none."""
    scrub_every_s: float = 3_600.0
    """Seconds from the beginning of one pass over everything to the next, at least."""
    compaction_messages_per_s: int = 25_000
    """Messages per second that the passes of compaction take in, all queues together."""
    dispatch_filters: list[str] = []
    """Plug-ins, as package.module:function, that judge batches before they are delivered to
    subscriptions (`logboom.nodes.subscriptions.entry_filter`). (Only the skin reads it.)"""
    producer_expiry_ms: int = 7 * 86_400_000
    """Milliseconds after which an idle idempotent producer is forgotten."""
    transaction_timeout_ms: int = 15 * 60_000
    """Milliseconds that a batch waits for its transaction, until an abort is proposed. Long, since
    readers do not wait for it meanwhile, and a Spark write may: for executors that were lost."""
    half_check_after_ms: int = 6_000
    """Milliseconds after which the producer group of a half message is first asked for it."""
    half_check_every_ms: int = 30_000
    """Milliseconds between two such questions."""
    half_checks: int = 15
    """Questions after which a half message waits for a person."""


def check_config(config: BrokerConfig) -> None:
    """Check what the types alone do not.

    Raises:
        StartError: BAD_CONFIG, one line.
    """
    if not _ID.fullmatch(config.id):
        raise StartError(f"id {config.id!r}: a broker's id matches {_ID.pattern}, e.g. broker-1")
    if not config.name_servers:
        raise StartError("name_servers is empty: list at least one name server as host:port")
    if config.out_of_sync_ms < 2 * config.fetch_wait_ms:
        raise StartError("out_of_sync_ms must be at least twice fetch_wait_ms")
    if config.scrub_bytes_per_s < 0 or config.scrub_every_s < 0:
        raise StartError("scrub_bytes_per_s and scrub_every_s must not be below 0")
    if config.compaction_messages_per_s <= 0:
        raise StartError("compaction_messages_per_s must be greater than 0")
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


def fill_advertised(config: BrokerConfig, endpoint: str) -> BrokerConfig:
    """The settings with `advertise` filled in from the bound endpoint."""
    return config if config.advertise else msgspec.structs.replace(config, advertise=endpoint)
