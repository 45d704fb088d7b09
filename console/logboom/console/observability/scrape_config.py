"""The scrape jobs of Prometheus for a cluster: its nodes, and its exporter; pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

BROKERS_JOB: Final = "logboom-brokers"
NAME_SERVERS_JOB: Final = "logboom-name-servers"
EXPORTER_JOB: Final = "logboom-exporter"
SCRAPE_INTERVAL_S: Final = 15
EVERYWHERE: Final = ("0.0.0.0", "::", "*")
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class ScrapeTargets(Struct, frozen=True):
    """What is scraped: host:port of each endpoint of metrics."""

    brokers: list[str]
    name_servers: list[str]
    exporters: list[str]
    remarks: list[str] = []
    """What somebody has to know who uses the file, in words."""


def target_of(metrics_address: str, endpoint: str) -> str:
    """Return where Prometheus finds the metrics of a node.

    Args:
        metrics_address: host:port that the node binds for them.
        endpoint: host:port at which others find the node.
    """
    host, _, port = metrics_address.rpartition(":")
    if host.strip("[]") in EVERYWHERE:
        host = endpoint.rpartition(":")[0]
    return f"{host}:{port}"


def is_local(target: str) -> bool:
    """Return True for a target that only its own machine reaches."""
    return target.rpartition(":")[0].strip("[]") in LOOPBACK


def scrape_file(targets: ScrapeTargets, cluster: str, rules: str = "logboom-alerts.yml") -> str:
    """Return a configuration of Prometheus.

    Args:
        targets: what is scraped.
        cluster: value of the label `cluster`, which dashboards and alerts go by.
        rules: the file with the alerts, relative to this one; "" for none.
    """
    lines = ["# Scrape jobs of logboom, written by `logboom generate prometheus`."]
    lines += [f"# {remark}" for remark in targets.remarks]
    lines += ["global:", f"  scrape_interval: {SCRAPE_INTERVAL_S}s", "  evaluation_interval: 15s"]
    if rules:
        lines += ["rule_files:", f"  - {json.dumps(rules)}"]
    lines.append("scrape_configs:")
    for job, addresses in (
        (BROKERS_JOB, targets.brokers),
        (NAME_SERVERS_JOB, targets.name_servers),
        (EXPORTER_JOB, targets.exporters),
    ):
        lines += _job(job, addresses, cluster)
    return "\n".join(lines) + "\n"


def _job(job: str, addresses: Sequence[str], cluster: str) -> list[str]:
    if not addresses:
        return []
    return [
        f"  - job_name: {job}",
        "    static_configs:",
        "      - targets:",
        *(f"          - {json.dumps(address)}" for address in addresses),
        "        labels:",
        f"          cluster: {json.dumps(cluster)}",
    ]
