"""`logboom store`: the content of a stopped broker's store, and recovery from a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from cyclopts import App, Parameter

from logboom.cli.cluster_address import Destination, destination_of
from logboom.cli.connection import open_node_client
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import Apply, Output, Servers
from logboom.cli.progress_bar import progress
from logboom.client.written_values import bytes_text, counted
from logboom.deploy.installed import check_installed
from logboom.wire.errors import InvalidRequest, LogboomError, Unavailable
from logboom.wire.private_files import restrict_umask
from logboom.wire.view import View

if TYPE_CHECKING:
    from logboom.nodes.salvage.found_queues import EntryChain
    from logboom.nodes.salvage.journal_segments import SegmentReport
    from logboom.nodes.salvage.store_recovery import RecoveryPlan, StoreFolder

ASK_S: Final = 2.0
SHOWN_GAPS: Final = 5
OF_THE_EXTRA: Final = ("xxhash",)

Folder: TypeAlias = Annotated[
    Path,
    Parameter(
        help="The broker's data folder, as `data` in its config file names it. The broker should "
        "be stopped."
    ),
]

app = App(
    name="store", help="The store of a stopped broker: inspect it, recover data of a damaged one."
)


@app.command(name="inspect")
def inspect_stores(
    folder: Folder,
    *,
    servers: Annotated[
        Servers,
        Parameter(
            help="Any nodes, host:port, comma-separated, that know the names of the topics; "
            "without them, ids are shown."
        ),
    ] = None,
    output: Output = "table",
) -> None:
    """List what the stores in a broker's data folder hold, queue by queue.

    For example:

        logboom store inspect /var/lib/logboom/broker
        logboom store inspect /var/lib/logboom/broker -s 10.0.0.1:7701 -o json

    The broker's own store is `db`. The journal holds its newest writes, until the database has them
    in files of its own. A store that it found damaged is kept beside it as `damaged-1`
    and so on. Every file is read separately and nothing is changed, so it does not matter which
    files are damaged. A message counts as held if the checksum of its batch is correct; `lost` are
    the offsets in between for which no intact batch was found.

    """
    check_installed("logboom store", OF_THE_EXTRA)
    # Imported late, because they need the extra.
    from logboom.nodes.salvage.store_recovery import inspect, read_store_folder

    found = read_store_folder(folder)
    names = (
        {}
        if servers is None
        else {topic.id: topic.name for topic in _view(destination_of(servers)).topics}
    )
    with progress("reading MiB", found.size >> 20) as bar:
        stores = inspect(found, lambda done: bar.to(done >> 20))
    if output == "json":
        show_json(
            [
                {
                    "store": store.name,
                    "broker": found.broker,
                    "format": found.format,
                    "store_id": store.store_id,
                    "bytes": store.bytes,
                    "newest_may_be_missing": store.torn,
                    "journal": [segment._asdict() for segment in store.journal],
                    "queues": [
                        _row(names.get(key[0], ""), key, chain)
                        for key, chain in store.queues.items()
                    ],
                }
                for store in stores
            ]
        )
        return
    note(f"{folder}: of {found.broker}, format {found.format}")
    for store in stores:
        note(f"{store.name}: store {store.store_id}, {bytes_text(store.bytes)} of files")
        for segment in store.journal:
            note(_told_segment(segment))
        if store.torn:
            note(TORN)
        rows = [
            _told(_row(names.get(key[0], ""), key, chain)) for key, chain in store.queues.items()
        ]
        show(rows, COLUMNS, output)


TORN: Final = (
    "a part of the journal cannot be read: if something was written there last, queues were "
    "longer than is shown here"
)
COLUMNS: Final = ("topic", "queue", "start", "end", "messages", "size", "lost", "lost_offsets")


def _told_segment(segment: SegmentReport) -> str:
    """Describe a segment of the journal."""
    if segment.ordinal < 0:
        return "journal: a segment whose header cannot be read"
    if not segment.records:
        return f"journal, segment {segment.ordinal}: empty"
    said = f"journal, segment {segment.ordinal}: writes {segment.first} to {segment.last}"
    missing = segment.last - segment.first + 1 - segment.records
    if missing:
        return f"{said}, {missing} of them cannot be read"
    return f"{said}, the one after them cannot be read" if segment.torn else said


def _row(name: str, key: tuple[int, int], chain: EntryChain) -> dict[str, Any]:
    """Return one queue for JSON output."""
    return {
        "topic": name,
        "topic_id": key[0],
        "queue": key[1],
        "start": chain.start,
        "end": chain.end.offset,
        "entries": len(chain.entries),
        "messages": chain.messages,
        "bytes": chain.size,
        "lost": chain.lost,
        "lost_offsets": [[gap.first, gap.end] for gap in chain.gaps],
        "lost_control_entries": chain.controls,
    }


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """Return one queue for a table."""
    gaps = [f"{first}-{end - 1}" for first, end in row["lost_offsets"]]
    more = [f"and {len(gaps) - SHOWN_GAPS} more"] if len(gaps) > SHOWN_GAPS else []
    return row | {
        "topic": row["topic"] or f"id {row['topic_id']}",
        "size": bytes_text(row["bytes"]),
        "lost_offsets": ", ".join([*gaps[:SHOWN_GAPS], *more]) or "-",
    }


@app.command
def recover(
    folder: Folder, *, servers: Servers = None, output: Output = "table", yes: Apply = False
) -> None:
    """Bring back the queues whose only copy was in a store that was set aside as damaged.

    For example:

        logboom store recover /var/lib/logboom/broker -s 10.0.0.1:7701
        logboom store recover /var/lib/logboom/broker -s 10.0.0.1:7701 --yes

    Stop the broker first, but keep the name servers running. Without `--yes` it only prints the
    plan. With it, every intact batch is written into the broker's current store at its old offsets.
    Then start the broker: it leads these queues again, and they continue after the recovered
    messages.

    Messages without an intact batch are lost. The plan names their offsets. Readers skip
    them like messages that retention removed, and no offset is ever used again.

    Some queues are left unchanged: those that have a leader, or another replica that may hold
    everything (they recover automatically), and those that hold anything newer. The damaged store
    is not changed. Delete it when you no longer need it.

    """
    check_installed("logboom store", OF_THE_EXTRA)
    # Imported late, because they need the extra.
    from logboom.nodes.salvage.store_recovery import RecoveryPlan, read_store_folder

    restrict_umask()
    found = read_store_folder(folder)
    view = _view(destination_of(servers))
    _check_cluster(found, view)
    alive = any(broker.id == found.broker and broker.alive for broker in view.brokers)
    if alive and yes:
        raise InvalidRequest(f"{found.broker} runs: stop it, then recover, then start it again")
    topics = {topic.id: topic for topic in view.topics}
    with progress("reading MiB", found.size >> 20) as bar:
        plan = RecoveryPlan(found, topics, lambda done: bar.to(done >> 20))
    try:
        if yes and plan.wanted:
            with progress("writing MiB", plan.size >> 20) as bar:
                plan.carry_out(lambda done: bar.to(done >> 20))
    finally:
        plan.close()
    rows = [
        _row(queue.topic, queue.key, queue.chain)
        | {
            "compacted": queue.beyond[0],
            "compacted_lost": queue.beyond[1],
            "newest_may_be_missing": plan.torn,
            "result": queue.left or ("recovered" if yes else "to recover"),
        }
        for queue in plan.queues
    ]
    if output == "json":
        show_json(rows)
    else:
        show(list(map(_told, rows)), [*COLUMNS, "result"], output)
    if any(sum(queue.beyond) for queue in plan.wanted):
        here, gone = (sum(queue.beyond[n] for queue in plan.wanted) for n in (0, 1))
        note(f"of what compaction kept beyond retention: {here} come back, {gone} lost")
    if plan.torn:
        note(TORN)
    _conclude(plan, yes=yes, alive=alive)


def _conclude(plan: RecoveryPlan, *, yes: bool, alive: bool) -> None:
    """Print what was done, and what to do next."""
    broker, wanted = plan.folder.broker, plan.wanted
    if not wanted:
        note("no queue to recover: see `result`; nothing was changed")
        return
    messages, lost = (
        sum(queue.chain.messages for queue in wanted),
        sum(queue.chain.lost for queue in wanted),
    )
    said = f"{counted(messages, 'message')} in {counted(len(wanted), 'queue')}, {lost} lost"
    if yes:
        note(f"recovered {said}; start {broker}: it leads these queues again")
    elif alive:
        note(f"would recover {said}; stop {broker}, then say it again with --yes")
    else:
        note(f"would recover {said}; do it with --yes")


def _view(destination: Destination) -> View:
    """Return the newest metadata that any node has.

    Raises:
        Unavailable: no node answers.
    """
    ends = list(destination.endpoints)
    with open_node_client(destination) as node_client:
        views = node_client.views(ends, ASK_S)
        if views:
            known = max(views.values(), key=lambda view: view.version)
            views |= node_client.views([each.endpoint for each in known.name_servers], ASK_S)
    if not views:
        text = f"nothing answers at {', '.join(ends)}"
        raise Unavailable(f"{text}: start the name servers, or say --servers")
    return max(views.values(), key=lambda view: view.version)


def _check_cluster(folder: StoreFolder, view: View) -> None:
    if folder.cluster and folder.cluster != view.cluster_id:
        raise LogboomError(
            f"{folder.path} belongs to cluster {folder.cluster}, the servers are of "
            f"{view.cluster_id}: correct --servers",
            "WRONG_DATA_FOLDER",
        )
