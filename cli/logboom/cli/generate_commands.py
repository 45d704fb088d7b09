"""`logboom generate`: dashboards, alerts and scrape jobs for Grafana and Prometheus."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

from logboom.cli.connection import open_client
from logboom.cli.exporter_command import EXPORTER_PORT
from logboom.cli.options import names
from logboom.cli.output import note
from logboom.cli.parameters import Servers
from logboom.client.results import NodeConfig
from logboom.console.observability.alert_rules import RUNBOOKS, rules_file
from logboom.console.observability.dashboard_panels import DASHBOARDS, DashboardName
from logboom.console.observability.grafana_dashboards import dashboard_json
from logboom.console.observability.scrape_config import (
    ScrapeTargets,
    is_local,
    scrape_file,
    target_of,
)
from logboom.wire.errors import InvalidRequest
from logboom.wire.listeners import metrics_address

app = App(name="generate", help="Write dashboards, alerts and scrape jobs for Grafana, Prometheus.")

OutputFile = Annotated[
    Path | None,
    Parameter(name=["--output", "-o"], help="The file to write; by default standard output."),
]
ALL: Final = "all"


@app.command
def grafana(
    dashboard: Annotated[
        DashboardName | Literal["all"],
        Parameter(help="The dashboard, or all of them into a folder."),
    ] = "all",
    *,
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help="The file to write, or the folder for all; by default standard output.",
        ),
    ] = None,
) -> None:
    """Write dashboards for Grafana: cluster, broker, topic, group, name servers.

    Import the files in Grafana (Dashboards, New, Import), or put them where it provisions
    dashboards from. The data source is chosen there.

    For example:

        logboom generate grafana --output dashboards
        logboom generate grafana group --output group.json
    """
    if dashboard != ALL:
        _write(dashboard_json(DASHBOARDS[dashboard]), output)
        return
    if output is None:
        raise InvalidRequest(
            "all dashboards go into a folder: say --output FOLDER, or name one of them: "
            + ", ".join(DASHBOARDS)
        )
    output.mkdir(parents=True, exist_ok=True)
    for name, each in DASHBOARDS.items():
        _write(dashboard_json(each), output / f"logboom-{name}.json")


@app.command
def alerts(
    *,
    runbooks: Annotated[
        str, Parameter(help="The address at which your people read docs/RUNBOOKS.md.")
    ] = RUNBOOKS,
    output: OutputFile = None,
) -> None:
    """Write sixteen alerts as a rules file of Prometheus.

    Each has a severity, a summary, and a link to what to do: docs/RUNBOOKS.md.

    For example:

        logboom generate alerts --output logboom-alerts.yml
        promtool check rules logboom-alerts.yml
    """
    _write(rules_file(runbooks), output)


@app.command
def prometheus(
    *,
    name: Annotated[
        str, Parameter(help="Value of the label `cluster`; by default the id of the cluster.")
    ] = "",
    brokers: Annotated[
        str | None,
        Parameter(help="host:port of metrics of brokers, instead of asking the cluster."),
    ] = None,
    name_servers: Annotated[str | None, Parameter(help="The same of name servers.")] = None,
    exporter: Annotated[
        str, Parameter(help="host:port of the exporter; empty for none.")
    ] = f"127.0.0.1:{EXPORTER_PORT}",
    rules: Annotated[
        str, Parameter(help="The file with the alerts, beside the configuration; empty for none.")
    ] = "logboom-alerts.yml",
    output: OutputFile = None,
    servers: Servers = None,
) -> None:
    """Write a configuration of Prometheus that scrapes the nodes of a cluster and its exporter.

    The cluster is asked where its nodes serve their metrics (`metrics_listen`), which needs
    `describe` on the cluster. With --brokers or --name-servers nobody is asked.

    For example:

        logboom generate prometheus --output prometheus.yml
        logboom generate prometheus --brokers 10.0.0.1:8711,10.0.0.2:8711 --name-servers 10.0.0.1:8701
        promtool check config --syntax-only prometheus.yml
    """
    exporters = names(exporter)
    if brokers is not None or name_servers is not None:
        targets = ScrapeTargets(names(brokers or ""), names(name_servers or ""), exporters)
        _write(scrape_file(targets, name or "logboom", rules), output)
        return
    with open_client(servers) as boom:
        cluster = name or boom.admin.cluster_id()
        endpoints = {each.id: each.endpoint for each in boom.admin.brokers()}
        endpoints |= {each.id: each.endpoint for each in boom.admin.name_servers()}
        found = boom.admin.describe_config()
    _write(scrape_file(_targets(found, endpoints, exporters), cluster, rules), output)


def _targets(
    nodes: list[NodeConfig], endpoints: dict[str, str], exporters: list[str]
) -> ScrapeTargets:
    """Return where the nodes serve their metrics, by what they say of themselves."""
    found: dict[str, list[str]] = {"broker": [], "name server": []}
    remarks: list[str] = []
    for node in nodes:
        entries = {each.name: each.value for each in node.entries}
        if node.error:
            remarks.append(f"{node.node} did not answer, and is missing: {node.error}")
            continue
        address = metrics_address(entries.get("metrics_listen", "off"), _first_listen(entries))
        if not address:
            remarks.append(f"{node.node} serves no metrics: set its metrics_listen")
            continue
        target = target_of(address, endpoints[node.node])
        found[node.role].append(target)
        if entries.get("metrics_tls_cert"):
            remarks.append(
                f"{target} of {node.node} speaks HTTPS: give its job scheme and tls_config"
            )
        if is_local(target) and not is_local(endpoints[node.node]):
            remarks.append(f"only its own machine reaches {target} of {node.node}: metrics_listen")
    return ScrapeTargets(found["broker"], found["name server"], exporters, remarks)


def _first_listen(entries: dict[str, str]) -> str:
    """Return host:port of a node's first listener."""
    listed = re.search(r"\blisten=(\S+)", entries.get("listeners", ""))
    return listed[1] if listed is not None else entries["listen"]


def _write(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="")
        return
    output.write_text(text, encoding="utf-8")
    note(f"{output} written")
