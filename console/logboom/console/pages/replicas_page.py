"""The replica matrix: a row for each queue, a column for each broker, and what is where; pure.

Large clusters have tens of thousands of queues and hundreds of brokers: rows and columns are cut into
pages, and only what a page shows is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from logboom.client.move_plans import move_text, target_of
from logboom.client.move_progress import progress_text
from logboom.console.widgets.data_table import (
    TableColumn,
    TableModel,
    Tone,
    build_table,
)
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.wire.names import is_reserved
from logboom.wire.operation_messages import BrokerLoad, ClusterDescribed, QueueMoveState
from logboom.wire.view import QueueView, TopicView

MATRIX_ROWS: Final = 50
"""Queues of a page."""
MATRIX_BROKERS: Final = 24
"""Brokers of a page."""
ReplicaState: TypeAlias = Literal[
    "", "leader", "in sync", "only copy", "catching up", "down", "adding", "removing"
]
SHOWS: Final = (
    ("", "all queues"),
    ("wrong", "no leader or not in sync"),
    ("moving", "being moved"),
    ("displaced", "led by another than the first"),
)
"""Choices of the filter `show`: value and label."""
MARKS: Final[dict[str, str]] = {
    "": "",
    "leader": "L",
    "in sync": "●",
    "only copy": "!",
    "catching up": "◐",
    "down": "✕",
    "adding": "+",
    "removing": "-",
}
TONES: Final[dict[str, Tone]] = {
    "": "",
    "leader": "info",
    "in sync": "ok",
    "only copy": "failed",
    "catching up": "warning",
    "down": "failed",
    "adding": "info",
    "removing": "",
}


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """What a broker has of a queue."""

    state: ReplicaState
    mark: str
    tone: Tone
    words: str
    label: str
    """In words, with the broker."""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A queue."""

    topic: str
    queue: int
    topic_url: str
    has_leader: bool
    cells: tuple[MatrixCell, ...]
    move: str
    """What it gets and loses, and how far that is."""
    stuck: str
    is_moving: bool


@dataclass(frozen=True, slots=True)
class MatrixBroker:
    """A column."""

    broker: str
    url: str
    state: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class ReplicasModel:
    """The matrix."""

    brokers: tuple[MatrixBroker, ...]
    rows: tuple[MatrixRow, ...]
    topic: str
    """The filter: a part of a topic's name."""
    show: str
    shows: tuple[tuple[str, str], ...]
    hidden_topics: bool
    total: int
    matched: int
    page: int
    pages: int
    first_url: str
    previous_url: str
    next_url: str
    last_url: str
    broker_pages: tuple[tuple[str, str, bool], ...]
    """Of the columns: label, link, and whether it is shown; empty if all brokers fit."""
    csv_url: str
    json_url: str
    table: TableModel
    """For CSV and JSON: without rows, unless they were asked for."""


COLUMNS: Final = (
    TableColumn("topic", "Topic"),
    TableColumn("queue", "Queue", "count"),
    TableColumn("leader", "Leader"),
    TableColumn("leader_epoch", "Leader epoch", "count"),
    TableColumn("replicas", "Replicas"),
    TableColumn("in_sync", "In sync"),
    TableColumn("adding", "Adding"),
    TableColumn("removing", "Removing"),
    TableColumn("progress", "Progress"),
    TableColumn("stuck", "Stuck"),
)


def build_replicas(
    described: ClusterDescribed, topics: Sequence[TopicView], query: PageQuery
) -> ReplicasModel:
    """Return the part of the matrix that a URL asks for."""
    find = query.text("topic")
    show = query.text("show")
    show = show if show in dict(SHOWS) else ""
    hidden = query.text("hidden") == "1"
    shown = [
        each for each in topics if hidden or find.startswith("%") or not is_reserved(each.name)
    ]
    found = [
        (topic, number, queue)
        for topic in sorted(_named(shown, find), key=lambda each: each.name)
        for number, queue in enumerate(topic.queues)
        if not show or _is_shown(queue, show)
    ]
    pages = max(1, -(-len(found) // MATRIX_ROWS))
    page = min(max(1, query.number("page", 1)), pages)
    of_page = found[(page - 1) * MATRIX_ROWS : page * MATRIX_ROWS]
    moves = {(each.topic, each.queue): each for each in described.moves}
    brokers, broker_pages = _brokers_of_page(described.brokers, query)
    asked = query.text("format") in ("csv", "json")
    rows = [_plain_row(*each, moves) for each in found] if asked else []
    return ReplicasModel(
        brokers=tuple(_column(each) for each in brokers),
        rows=tuple(_row(*each, brokers, moves) for each in of_page),
        topic=find,
        show=show,
        shows=SHOWS,
        hidden_topics=hidden,
        total=sum(len(topic.queues) for topic in shown),
        matched=len(found),
        page=page,
        pages=pages,
        first_url=query.url(page=None),
        previous_url=query.url(page=page - 1) if page > 1 else "",
        next_url=query.url(page=page + 1) if page < pages else "",
        last_url=query.url(page=pages),
        broker_pages=broker_pages,
        csv_url=query.url(format="csv"),
        json_url=query.url(format="json"),
        table=build_table(COLUMNS, rows, query),
    )


def _named(topics: Sequence[TopicView], find: str) -> Iterator[TopicView]:
    """Yield the topics of exactly this name, or else those with a part of it."""
    exact = [topic for topic in topics if topic.name == find]
    if exact:
        yield from exact
        return
    part = find.casefold()
    yield from (topic for topic in topics if part in topic.name.casefold())


def _is_shown(queue: QueueView, show: str) -> bool:
    if show == "moving":
        return bool(queue.adding or queue.removing)
    if show == "displaced":
        return queue.leader != next(iter(queue.replicas), None)
    return queue.leader is None or not {*queue.replicas} - {*queue.adding} <= {*queue.isr}


def _brokers_of_page(
    brokers: Sequence[BrokerLoad], query: PageQuery
) -> tuple[Sequence[BrokerLoad], tuple[tuple[str, str, bool], ...]]:
    """Return the brokers that are shown, and the links to the others."""
    if len(brokers) <= MATRIX_BROKERS:
        return brokers, ()
    parts = [brokers[at : at + MATRIX_BROKERS] for at in range(0, len(brokers), MATRIX_BROKERS)]
    part = min(max(1, query.number("brokers", 1)), len(parts))
    links = tuple(
        (
            f"{each[0].broker} to {each[-1].broker}",
            query.url(brokers=number if number > 1 else None),
            number == part,
        )
        for number, each in enumerate(parts, 1)
    )
    return parts[part - 1], links


def _column(broker: BrokerLoad) -> MatrixBroker:
    state = "" if broker.mode == "active" else broker.mode
    tone: Tone = "warning" if state else ""
    if not broker.alive:
        state, tone = "down", "failed"
    return MatrixBroker(broker.broker, path_of("brokers", broker.broker), state, tone)


def _row(
    topic: TopicView,
    number: int,
    queue: QueueView,
    brokers: Sequence[BrokerLoad],
    moves: dict[tuple[str, int], QueueMoveState],
) -> MatrixRow:
    move = moves.get((topic.name, number))
    told = [move_text(queue), progress_text(move) or ""]
    stuck = "" if move is None else move.stuck
    return MatrixRow(
        topic=topic.name,
        queue=number,
        topic_url=path_of("topics", topic.name),
        has_leader=queue.leader is not None,
        cells=tuple(_cell(queue, each) for each in brokers),
        move=" ".join(filter(None, told)),
        stuck=stuck,
        is_moving=bool(queue.adding or queue.removing),
    )


def _cell(queue: QueueView, broker: BrokerLoad) -> MatrixCell:
    name = broker.broker
    state = replica_state(queue, name, alive=broker.alive)
    words: list[str] = [state]
    tone = TONES[state]
    if state == "leader" and is_only_copy(queue, name):
        words.append("only copy")
        tone = "failed"
    if state == "down" and queue.leader == name:
        words.insert(0, "leader")
    if state == "down" and is_only_copy(queue, name):
        words.append("only copy")
    if state == "leader" and name in queue.removing:
        words.append("removed at the end of the move")
    told = ", ".join(words)
    return MatrixCell(state, MARKS[state], tone, told, f"{name}: {told}" if state else "")


def is_only_copy(queue: QueueView, broker: str) -> bool:
    """Return True if a broker alone is in sync, although the queue is to have other replicas."""
    return queue.isr == [broker] and len(target_of(queue)) > 1


def replica_state(queue: QueueView, broker: str, *, alive: bool) -> ReplicaState:
    """Return what a broker has of a queue. One that is down serves nothing, whatever it has."""
    if broker not in queue.replicas:
        return ""
    if not alive:
        return "down"
    if queue.leader == broker:
        return "leader"
    if broker in queue.adding:
        return "adding"
    if is_only_copy(queue, broker):
        return "only copy"
    if broker in queue.removing:
        return "removing"
    return "in sync" if broker in queue.isr else "catching up"


def _plain_row(
    topic: TopicView,
    number: int,
    queue: QueueView,
    moves: dict[tuple[str, int], QueueMoveState],
) -> dict[str, Any]:
    move = moves.get((topic.name, number))
    return {
        "topic": topic.name,
        "queue": number,
        "leader": queue.leader,
        "leader_epoch": queue.leader_epoch,
        "replicas": queue.replicas,
        "in_sync": queue.isr,
        "adding": queue.adding,
        "removing": queue.removing,
        "progress": progress_text(move),
        "stuck": "" if move is None else move.stuck,
    }
