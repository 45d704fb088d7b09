"""`logboom top`: brokers, topics and groups, live."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any, Final

from cyclopts import Parameter

from logboom.cli.connection import open_client
from logboom.cli.options import check_interval
from logboom.cli.output import show_json
from logboom.cli.parameters import Output, Servers
from logboom.cli.top_sample import (
    ClusterSample,
    broker_rows,
    group_rows,
    headline,
    sample_of,
    topic_rows,
)
from logboom.client import Client
from logboom.wire.errors import LogboomError, error_for

MIN_INTERVAL_S: Final = 0.5
SHARE: Final = 0.5
"""Part of an interval that a node has for an answer; what only those know that do not is left out."""


def top(
    *,
    interval: Annotated[
        float, Parameter(name=["--interval", "-i"], help="Seconds between two samples.")
    ] = 2.0,
    once: Annotated[
        bool, Parameter(negative="", help="Print one screen, after two samples, and end.")
    ] = False,
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Show brokers, topics and groups live: rates, lag, what is in sync, leaders, disks.

    A wider terminal shows more columns, from 60 on. The topics with the most messages per second
    and the groups that are the most behind come first. Ctrl-C ends it.

    For example:

        logboom top
        logboom top --interval 5
        logboom top --once -o json
    """
    check_interval(interval, MIN_INTERVAL_S)
    with open_client(servers) as boom:
        before = take_sample(boom, interval)
        if output == "json" or once or not sys.stdout.isatty():
            # Rates are those between two samples.
            time.sleep(interval)
            now = take_sample(boom, interval)
            if output == "json":
                show_json(as_json(now, before))
            else:
                _print(now, before)
        else:
            _follow(boom, before, interval)


def take_sample(boom: Client, interval_s: float) -> ClusterSample:
    """Ask all nodes at once, each for as long as a part of the interval."""
    began = time.monotonic()
    return sample_of(began, boom.admin.survey_cluster(interval_s * SHARE))


def as_json(now: ClusterSample, before: ClusterSample) -> dict[str, Any]:
    """Return everything that the screen may show."""
    return {
        "cluster": headline(now, before),
        "brokers": broker_rows(now, before),
        "topics": topic_rows(now, before),
        "groups": group_rows(now, before),
    }


def _print(now: ClusterSample, before: ClusterSample) -> None:
    from rich.console import Console

    from logboom.cli.top_layout import layout

    console = Console()
    rows = 16 + len(now.nodes) + len(now.topics) + len(now.groups)
    console.print(layout(now, before, console.width, rows))


def _follow(boom: Client, before: ClusterSample, interval_s: float) -> None:
    """Show sample after sample until Ctrl-C.

    Raises:
        LogboomError: the cluster does not answer any more.
    """
    from rich.console import Console
    from rich.live import Live

    from logboom.cli.top_layout import layout

    console = Console()
    first = layout(before, None, *console.size)
    with Live(first, console=console, screen=True, auto_refresh=False) as live:
        previous: ClusterSample | None = None
        now = before
        fault: LogboomError | None = None
        while fault is None:
            live.update(layout(now, previous, *console.size), refresh=True)
            # Paces the samples; Ctrl-C ends it.
            time.sleep(max(0.0, now.at_s + interval_s - time.monotonic()))
            try:
                previous, now = now, take_sample(boom, interval_s)
            except LogboomError as error:
                fault = error
    # Only here, where the terminal shows again what it showed before.
    text = f"{fault.text}: `logboom doctor` looks for the cause"
    raise error_for(fault.code, text, fault.fields)
