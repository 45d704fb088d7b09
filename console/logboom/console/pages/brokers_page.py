"""The brokers, one broker, the moves of replicas and the planner behind them; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from logboom.client.balance_report import STATES, spread_text
from logboom.client.move_plans import broker_of, move_text
from logboom.client.written_values import bytes_text, counted
from logboom.console.cluster_history import ClusterHistory
from logboom.console.pages.replicas_page import is_only_copy
from logboom.console.widgets.chart_data import ChartModel, ChartSeries
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.formats import size_text
from logboom.console.widgets.page_query import PageQuery, link, path_of
from logboom.wire.messages import VersionsDescribed
from logboom.wire.operation_messages import BrokerLoad, ClusterDescribed, QueueMoveState
from logboom.wire.restart_check import RestartRisk, restart_risks
from logboom.wire.view import BrokerView, TopicView, View

FULL_PERCENT: Final = 85
"""Share of a disk above which it is marked."""
MAX_NAMED: Final = 5
"""Names in one sentence."""
MODE_TONES: Final[Mapping[str, Tone]] = {
    "active": "",
    "maintenance": "warning",
    "draining": "info",
    "drained": "info",
}
STATE_TONES: Final[Mapping[str, Tone]] = {"up": "ok", "full": "failed", "down": "failed"}
PLANNER_TONES: Final[Mapping[str, Tone]] = {"stalled": "failed", "moving": "info"}


@dataclass(frozen=True, slots=True)
class BrokersData:
    """What the cluster told of its brokers."""

    described: ClusterDescribed
    views: Sequence[BrokerView]
    versions: VersionsDescribed | None
    """None: not told to this user, or by a name server of an older release."""


@dataclass(frozen=True, slots=True)
class PageNotice:
    """Something that is wrong or unusual, and where to look."""

    text: str
    tone: Tone
    href: str = ""


@dataclass(frozen=True, slots=True)
class PlannerModel:
    """What moves, and why not more."""

    state: str
    tone: Tone
    text: str
    reasons: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BrokersModel:
    """The list of brokers, with the moves of replicas."""

    notices: tuple[PageNotice, ...]
    brokers: TableModel
    planner: PlannerModel
    moves: TableModel


def _mode_tone(row: Row) -> Tone:
    return MODE_TONES.get(row["mode"], "")


def _state_tone(row: Row) -> Tone:
    return STATE_TONES.get(row["state"], "")


def _disk_tone(row: Row) -> Tone:
    used = row["disk_percent"]
    return "warning" if used is not None and used >= FULL_PERCENT else ""


def _stuck_tone(row: Row) -> Tone:
    return "failed" if row["stuck"] else ""


def _displaced_tone(row: Row) -> Tone:
    return "info" if row["leads"] != row["preferred"] else ""


BROKER_COLUMNS: Final = (
    TableColumn("broker", "Broker", "code", href=lambda row: path_of("brokers", row["broker"])),
    TableColumn("state", "State", "badge", tone=_state_tone),
    TableColumn("mode", "Mode", "badge", tone=_mode_tone),
    TableColumn("zone", "Zone", wide_only=True),
    TableColumn("host", "Host", wide_only=True, hint="The machine that brokers share"),
    TableColumn("version", "Version", wide_only=True),
    TableColumn("replicas", "Replicas", "count"),
    TableColumn("leads", "Leads", "count", tone=_displaced_tone, hint="Queues that it leads now"),
    TableColumn(
        "preferred", "To lead", "count", wide_only=True, hint="Queues that it leads if all is well"
    ),
    TableColumn("size_bytes", "Size", "bytes", hint="Bytes of the logs of its replicas"),
    TableColumn("disk_percent", "Disk %", "count", tone=_disk_tone, hint="Used part of its disk"),
    TableColumn("free_bytes", "Free", "bytes", wide_only=True),
    TableColumn("in_bytes_per_s", "Written/s", "bytes", hint="Bytes appended, mean of 5 min"),
    TableColumn("out_bytes_per_s", "Read/s", "bytes", hint="Bytes read, mean of 5 min"),
    TableColumn("moves", "Moves", wide_only=True),
)
MOVE_COLUMNS: Final = (
    TableColumn(
        "queue_name",
        "Queue",
        "code",
        href=lambda row: link("/replicas", {"topic": row["topic"]}),
    ),
    TableColumn("change", "Change", "code", hint="+ is added first, - is given up at the end"),
    TableColumn("reason", "Reason", "badge", tone=lambda _: "info"),
    TableColumn("percent", "Done %", "count"),
    TableColumn("left_bytes", "Left", "bytes"),
    TableColumn("bytes_per_s", "Copied/s", "bytes"),
    TableColumn("left_ms", "Time left", "span"),
    TableColumn("stuck", "Stuck", tone=_stuck_tone, hint="Why it makes no progress"),
)


def build_brokers(data: BrokersData, query: PageQuery) -> BrokersModel:
    """Return the list that a URL asks for."""
    versions = version_by_node(data.versions)
    rows = [broker_row(each, versions) for each in data.described.brokers]
    columns = [
        column
        for column in BROKER_COLUMNS
        # A column that is empty everywhere says nothing.
        if column.name not in ("zone", "host", "version", "moves")
        or any(row[column.name] for row in rows)
    ]
    return BrokersModel(
        notices=tuple(_notices(data, rows)),
        brokers=build_table(
            columns, rows, query, sort="broker", empty="No broker has registered yet."
        ),
        planner=build_planner(data.described),
        moves=build_moves(data.described.moves, query),
    )


def version_by_node(versions: VersionsDescribed | None) -> dict[str, str]:
    """Return node → version of its software."""
    return {} if versions is None else {node.id: node.software for node in versions.nodes}


def known(value: int) -> int | None:
    """Return a figure, or None for -1, which stands for what is not known yet."""
    return None if value < 0 else value


def broker_row(broker: BrokerLoad, versions: Mapping[str, str]) -> dict[str, Any]:
    """Return what the list says of a broker."""
    moves = [(broker.moves_in, "in"), (broker.moves_out, "out")]
    used = None
    if broker.disk_bytes > 0:
        used = round(100 * (1 - broker.free_bytes / broker.disk_bytes))
    return {
        "broker": broker.broker,
        "state": state_of_broker(broker),
        "mode": broker.mode,
        "zone": broker.zone,
        "host": broker.host,
        "version": versions.get(broker.broker, ""),
        "replicas": broker.replicas,
        "leads": broker.leading,
        "preferred": broker.preferred,
        "size_bytes": known(broker.size_bytes),
        "disk_percent": used,
        "free_bytes": known(broker.free_bytes),
        "in_bytes_per_s": known(broker.in_bytes_per_s),
        "out_bytes_per_s": known(broker.out_bytes_per_s),
        "moves": ", ".join(f"{count} {way}" for count, way in moves if count),
    }


def state_of_broker(broker: BrokerLoad) -> str:
    """Return up, full (its disk accepts no writes) or down."""
    if not broker.alive:
        return "down"
    return "full" if broker.full else "up"


def _notices(data: BrokersData, rows: Sequence[Row]) -> list[PageNotice]:
    """Return what is wrong, the worst first."""
    found: list[PageNotice] = []

    def note(names: Sequence[str], text: str, tone: Tone) -> None:
        if names:
            verb = "is" if len(names) == 1 else "are"
            found.append(PageNotice(f"{some_of(names)} {verb} {text}", tone))

    note([row["broker"] for row in rows if row["state"] == "down"], "down", "failed")
    note(
        [row["broker"] for row in rows if row["state"] == "full"],
        "out of disk space: writes to it are refused",
        "failed",
    )
    if data.described.planner.state == "stalled":
        why = "; ".join(data.described.planner.reasons) or STATES["stalled"]
        found.append(PageNotice(f"Replicas should move and cannot: {why}", "failed", "#planner"))
    stuck = [each for each in data.described.moves if each.stuck]
    if stuck:
        text = f"{counted(len(stuck), 'move')} stuck: {stuck[0].stuck}"
        found.append(PageNotice(text, "failed", "#table-moves"))
    note(
        [
            row["broker"]
            for row in rows
            if row["state"] == "up" and (row["disk_percent"] or 0) >= FULL_PERCENT
        ],
        f"above {FULL_PERCENT} % of the disk",
        "warning",
    )
    note(
        [row["broker"] for row in rows if row["mode"] == "maintenance"], "in maintenance", "warning"
    )
    note([row["broker"] for row in rows if row["mode"] == "draining"], "draining", "info")
    note(
        [row["broker"] for row in rows if row["mode"] == "drained"],
        "drained: to be stopped and removed, or undrained",
        "info",
    )
    releases = sorted({row["version"] for row in rows if row["version"]})
    if len(releases) > 1:
        text = f"Brokers run different releases: {', '.join(releases)}"
        found.append(PageNotice(text, "info", "/name-servers"))
    return found


def some_of(names: Sequence[str]) -> str:
    """Return names in a sentence: the first few, and how many more."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def build_planner(described: ClusterDescribed) -> PlannerModel:
    """Return what the planner of moves does."""
    planner = described.planner
    throttle = (
        f"{bytes_text(planner.move_bytes_per_s)}/s" if planner.move_bytes_per_s else "automatic"
    )
    replaced = f"after {planner.replace_after_s:g} s" if planner.replace_after_s else "never"
    return PlannerModel(
        state=planner.state,
        tone=PLANNER_TONES.get(planner.state, ""),
        text=STATES[planner.state],
        reasons=tuple(planner.reasons),
        facts=(
            ("Balance", planner.balance_mode or "not known"),
            ("Spread", spread_text(described.brokers).removeprefix("spread: ")),
            ("Moves under way", f"{len(described.moves)}, {planner.waiting} more later"),
            ("Dead brokers are replaced", replaced),
            ("Throttle of moves", throttle),
        ),
    )


def build_moves(moves: Sequence[QueueMoveState], query: PageQuery) -> TableModel:
    """Return the table of moves under way."""
    return build_table(
        MOVE_COLUMNS,
        [move_row(each) for each in moves],
        query,
        name="moves",
        title="Moves under way",
        empty="No queue is moved.",
    )


def move_row(move: QueueMoveState) -> dict[str, Any]:
    """Return what the table says of a move."""
    added = [f"+{each}" for each in move.adding]
    removed = [f"-{each}" for each in move.removing]
    is_known = move.total_bytes > 0 and move.done_bytes >= 0
    return {
        "topic": move.topic,
        "queue": move.queue,
        "queue_name": f"{move.topic}/{move.queue}",
        "change": " ".join([*added, *removed]),
        "reason": move.reason,
        "percent": 100 * move.done_bytes // move.total_bytes if is_known else None,
        "done_bytes": known(move.done_bytes),
        "total_bytes": known(move.total_bytes),
        "left_bytes": max(0, move.total_bytes - move.done_bytes) if is_known else None,
        "bytes_per_s": known(move.bytes_per_s),
        "left_ms": move.left_s * 1000 if move.left_s >= 0 else None,
        "stuck": move.stuck,
    }


# One broker.

HELD_TONES: Final[Mapping[str, Tone]] = {"in sync": "ok", "only copy": "failed", "down": "failed"}
HELD_COLUMNS: Final = (
    TableColumn(
        "queue_name", "Queue", "code", href=lambda row: link("/replicas", {"topic": row["topic"]})
    ),
    TableColumn(
        "role", "Role", "badge", tone=lambda row: "info" if row["role"] == "leader" else ""
    ),
    TableColumn(
        "sync",
        "In sync",
        "badge",
        tone=lambda row: HELD_TONES.get(row["sync"], "warning"),
    ),
    TableColumn("others", "Others", "code", wide_only=True, hint="The other replicas"),
    TableColumn("move", "Move", "code"),
)
RISK_COLUMNS: Final = (
    TableColumn("queue_name", "Queue", "code"),
    TableColumn("risk", "Risk", "badge", tone=lambda _: "warning"),
    TableColumn("fix", "What to do"),
)


@dataclass(frozen=True, slots=True)
class BrokerModel:
    """One broker."""

    broker: str
    state: str
    state_tone: Tone
    mode: str
    mode_tone: Tone
    is_alive: bool
    facts: tuple[tuple[str, str], ...]
    notices: tuple[PageNotice, ...]
    charts: tuple[ChartModel, ...]
    risks: TableModel
    """What stopping it now would cost; no rows: it may be stopped."""
    held: TableModel


def build_broker(
    data: BrokersData,
    topics: Sequence[TopicView],
    broker: str,
    history: ClusterHistory,
    query: PageQuery,
) -> BrokerModel:
    """Return the page of one broker.

    Raises:
        InvalidRequest: UNKNOWN_BROKER: there is none of this id.
    """
    load = broker_of(data.described, broker)
    view = next((each for each in data.views if each.id == broker), None)
    row = broker_row(load, version_by_node(data.versions))
    held = [
        held_row(topic.name, number, topic, broker, alive=load.alive)
        for topic in topics
        for number, queue in enumerate(topic.queues)
        if broker in queue.replicas
    ]
    alone = [each["queue_name"] for each in held if each["sync"] == "only copy"]
    notices = []
    if alone:
        notices.append(PageNotice(f"Only {broker} is in sync in {some_of(alone)}", "failed"))
    if load.mode == "drained":
        text = f"{broker} holds no replica: stop it, then remove it"
        notices.append(PageNotice(text, "info"))
    if load.filling:
        notices.append(PageNotice(f"{broker} is new and does not hold its share yet", "info"))
    risks = [risk_row(each) for each in broker_risks(data.views, topics, broker)]
    times = history.times_s()
    charts = (
        ChartModel(
            "written",
            "Bytes",
            "bytes_rate",
            times,
            [
                ChartSeries("produced", history.rates("produced_bytes", broker)),
                ChartSeries("consumed", history.rates("bytes_out", broker)),
            ],
        ),
        ChartModel(
            "messages",
            "Messages",
            "rate",
            times,
            [
                ChartSeries("produced", history.rates("produced_messages", broker)),
                ChartSeries("consumed", history.rates("messages_out", broker)),
            ],
        ),
    )
    return BrokerModel(
        broker=broker,
        state=row["state"],
        state_tone=STATE_TONES[row["state"]],
        mode=load.mode,
        mode_tone=MODE_TONES.get(load.mode, ""),
        is_alive=load.alive,
        facts=tuple(_facts(load, row, "" if view is None else view.endpoint)),
        notices=tuple(notices),
        charts=charts,
        risks=build_table(
            RISK_COLUMNS,
            risks,
            query,
            name="risks",
            title="If it were stopped now",
            empty=f"{broker} may be stopped: every queue has another copy that can serve."
            if load.alive
            else f"{broker} does not run.",
        ),
        held=build_table(
            HELD_COLUMNS,
            held,
            query,
            name="held",
            title="Replicas",
            sort="queue_name",
            empty=f"{broker} has no replicas.",
        ),
    )


def _facts(load: BrokerLoad, row: Row, endpoint: str) -> list[tuple[str, str]]:
    disk = "not known yet"
    if load.disk_bytes > 0:
        disk = f"{row['disk_percent']} % of {size_text(load.disk_bytes)}, {size_text(load.free_bytes)} free"
    rates = "not known yet"
    if load.in_bytes_per_s >= 0:
        rates = f"{bytes_text(load.in_bytes_per_s)}/s written, {bytes_text(load.out_bytes_per_s)}/s read"
    facts = [
        ("Endpoint", endpoint),
        ("Version", row["version"]),
        ("Zone", load.zone),
        ("Host", load.host),
        ("Replicas", f"{counted(load.replicas, 'replica')}, {size_text(row['size_bytes'])}"),
        ("Leads", f"{load.leading} of the {load.preferred} that it is to lead"),
        ("Disk", disk),
        ("Last 5 min", rates),
    ]
    if load.moves_in or load.moves_out:
        came, went = (
            bytes_text(max(0, rate))
            for rate in (load.moved_in_bytes_per_s, load.moved_out_bytes_per_s)
        )
        facts.append(("Moves", f"{load.moves_in} in ({came}/s), {load.moves_out} out ({went}/s)"))
    return [(label, text) for label, text in facts if text]


def held_row(
    name: str, number: int, topic: TopicView, broker: str, *, alive: bool
) -> dict[str, Any]:
    """Return what the table says of a replica of a broker."""
    queue = topic.queues[number]
    sync = "being added" if broker in queue.adding else "catching up" if alive else "down"
    if broker in queue.isr:
        sync = "in sync" if alive else "down"
    if is_only_copy(queue, broker):
        sync = "only copy"
    return {
        "topic": name,
        "queue": number,
        "queue_name": f"{name}/{number}",
        "role": "leader" if queue.leader == broker else "follower",
        "sync": sync,
        "others": [each for each in queue.replicas if each != broker],
        "move": move_text(queue),
    }


def broker_risks(
    brokers: Sequence[BrokerView], topics: Sequence[TopicView], broker: str
) -> list[RestartRisk]:
    """Return what queues lose while a broker is down; nothing for one that is down already."""
    view = View(0, True, "", list(brokers), list(topics), [], [], [], None)
    return restart_risks(view, broker)


def risk_row(risk: RestartRisk) -> dict[str, Any]:
    """Return what the table says of a risk."""
    return {
        "queue_name": f"{risk.topic}/{risk.queue}",
        "risk": risk.kind,
        "fix": risk.remedy.replace(": --accept-unavailable", ""),
    }
