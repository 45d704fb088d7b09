"""`logboom cluster restart-check` and `roll`: restarts of nodes that nobody notices."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from logboom.cli.app import INTERRUPTED, TERMINATED
from logboom.cli.cluster_address import destination_of
from logboom.cli.cluster_status import read_cluster_status
from logboom.cli.confirmation import confirmed
from logboom.cli.connection import open_node_client
from logboom.cli.local_cluster import cluster_folder
from logboom.cli.output import note, show
from logboom.cli.parameters import ClusterFolder, Confirmed, Output, Servers
from logboom.cli.progress_bar import progress
from logboom.client.checks.cluster_health import ClusterStatus
from logboom.client.written_values import counted
from logboom.deploy import detached
from logboom.deploy.detached import DATA
from logboom.deploy.rolling import Interrupted, RollingRestart
from logboom.wire.errors import InvalidRequest, Unavailable
from logboom.wire.restart_check import majority_remains, restart_risks


def restart_check(node: str, *, servers: Servers = None, output: Output = "table") -> int:
    """Check whether a node may be stopped now. Exits with 1 if a queue would miss it.

    Shown are the queues that would have no leader, too few copies for writes, or whose only copy is
    there; of a name server, whether the others are a majority. Without such a risk the table is
    empty and the exit code 0. What a broker would be missed for cannot be told before it has
    registered since its start, so until then it may not be stopped either.

    For example:

        logboom cluster restart-check broker-2
        logboom cluster restart-check name-1 -o json

    Parameters
    ----------
    node
        The id of a broker or name server.
    """
    destination = destination_of(servers)
    with open_node_client(destination) as node_client:
        standing, _ = read_cluster_status(node_client, destination.endpoints)
    if standing is None:
        raise Unavailable("no node answers that knows the cluster: is a majority up?")
    rows = _risks(standing, node)
    show(rows, ["topic", "queue", "risk", "fix"], output)
    if rows:
        note(f"{node} is not safe to stop: {counted(len(rows), 'reason')}")
        return 1
    note(f"{node} may be stopped")
    return 0


def _risks(standing: ClusterStatus, node: str) -> list[dict[str, Any]]:
    view = standing.view
    servers = [server.id for server in view.name_servers]
    leaderless = standing.raft_leader is None
    if node in servers:
        touched = [n for n in standing.name_servers if standing.stats[n].counters.get("in_touch")]
        if majority_remains(servers, touched, node) and not leaderless:
            return []
        fix = "start the others, and wait until `logboom name-server list` shows them up"
        if not majority_remains(servers, servers, node):
            fix = "add name servers: three go on without one"
        return [{"topic": None, "queue": None, "risk": "no-majority", "fix": fix}]
    if node not in {broker.id for broker in view.brokers}:
        known = ", ".join([*servers, *sorted(broker.id for broker in view.brokers)])
        raise InvalidRequest(f"there is no node {node!r}: there are {known}")
    if standing.answers(node) and not standing.serves(node):
        # It holds what it held before its start, and may lead it in a moment.
        fix = "wait until it is: `logboom cluster status` shows it"
        return [{"topic": None, "queue": None, "risk": "not-registered", "fix": fix}]
    # What a dead broker led is known to be gone only once the Raft leader has fenced it.
    brokers = [
        msgspec.structs.replace(
            each, alive=each.alive and (each.id == node or standing.serves(each.id))
        )
        for each in view.brokers
    ]
    found = restart_risks(msgspec.structs.replace(view, brokers=brokers), node)
    rows: list[dict[str, Any]] = [
        {"topic": risk.topic, "queue": risk.queue, "risk": risk.kind, "fix": risk.remedy}
        for risk in found
    ]
    if leaderless:
        fix = "see `logboom doctor`: nobody could elect other leaders"
        rows.append({"topic": None, "queue": None, "risk": "no-raft-leader", "fix": fix})
    return rows


def roll(
    *,
    only: Annotated[
        Literal["brokers", "name-servers"] | None, Parameter(help="Only these nodes.")
    ] = None,
    accept_unavailable: Annotated[bool, Parameter(negative="")] = False,
    yes: Confirmed = False,
    data: ClusterFolder = None,
    output: Output = "table",
) -> int:
    """Restart the nodes of the cluster on this machine, one at a time, each when it is safe.

    A broker leads nothing when it is stopped, and the next one waits until all its replicas are in
    sync and it leads its queues again. Name servers are the last, and the raft leader is the very
    last; if the nodes run another release than this command, name servers are the first. Ctrl-C ends
    it between two nodes: none stays stopped.

    For example:

        logboom cluster roll
        logboom cluster roll --only brokers --yes

    Parameters
    ----------
    accept_unavailable
        Go on where a topic has too few replicas: its queues wait while their broker restarts.
    """
    folder = cluster_folder(data) or DATA
    begun = time.monotonic()
    with detached.rolling(folder, note, accept_unavailable=accept_unavailable) as rolling:
        order = rolling.order(only)
        rolling.check(order)
        show(
            [{"step": n, "node": each} for n, each in enumerate(order, 1)], ["step", "node"], output
        )
        refusal = "each node is stopped and started in this order: say --yes to do it"
        if not (yes or confirmed("Restart them in this order?", refusal, "nothing was stopped")):
            return 0
        done = []
        with _interruption(rolling) as signals, progress("rolling", len(order)) as bar:
            rolling.progress = bar
            try:
                done += [*rolling.run(only)]
            except Interrupted as interrupted:
                note(str(interrupted))
                return TERMINATED if signal.SIGTERM in signals else INTERRUPTED
    note(f"restarted {', '.join(done)} in {time.monotonic() - begun:.1f} s")
    return 0


@contextmanager
def _interruption(rolling: RollingRestart) -> Iterator[set[int]]:
    """Let Ctrl-C and SIGTERM end a rolling restart between two nodes; yield which of them came."""
    came: set[int] = set()

    def end(number: int, frame: FrameType | None) -> None:
        came.add(number)
        rolling.interrupt()
        note("this node comes back first; the others are left as they are")

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
