"""Commands on transactions: producers open them, decide them, and queues report (SAFETY T1-T3).

COMMIT closes its sequence and all lower ones for ever; ABORT ends one attempt. If the log holds a
commit and an abort of the same attempt, the first one wins.
"""

from __future__ import annotations

from typing import Final

from logboom.metadata.tables.cluster_state import ClusterState, find_registration
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, fenced, refused
from logboom.metadata.tables.transaction_table import ApplicationState
from logboom.metadata.transactions.transaction_offsets import refuse_offsets, take_offsets
from logboom.wire.errors import InvalidRequest
from logboom.wire.group_view import MAX_OFFSET
from logboom.wire.transactions import (
    MAX_HANDLES,
    Decide,
    OpenApplication,
    ParkedBatches,
    ReportDecided,
    check_app_id,
)

MAX_WAITING: Final = 10_000
"""Queues that all open decisions together may wait for. Deleting a topic ends those on its queues
in one command, which may take 50 ms."""
MAX_NAMED: Final = 200_000
"""Parked batches that all open decisions together may name; every snapshot holds them."""
MAX_ABORTED: Final = 10_000
"""Aborted attempts of one application that are remembered until a commit passes them."""
NUMBERS: Final = 1 << 63
"""Upper bound of sequences and attempts."""
SIDES: Final = 1 << 32

FIRST: Final = "first"
AGAIN: Final = "again"


def open_transaction(cluster: ClusterState, command: OpenApplication) -> CommandOutcome:
    """Open an application id for a producer; the producer that used it before is fenced.

    Two owners would both number from 0, and each would take what the other has committed for its
    own. So another owner is refused, and fences nobody.
    """
    owner = command.owner
    refusal = _refuse_app_id(command.app_id) or (_refuse_app_id(owner) if owner else None)
    if refusal is not None:
        return refusal
    cluster.transactions.end_unused(cluster.clock_ms)
    known = cluster.transactions.apps.get(command.app_id)
    if owner and known is not None and known.owner not in ("", owner, command.replaces):
        return _taken(command.app_id, known)
    app = cluster.transactions.used(command.app_id, cluster.clock_ms)
    app.epoch = max(app.epoch + 1, cluster.first_epoch)
    app.owner = owner or app.owner
    return CommandOutcome(value=[str(app.epoch), str(app.committed)])


def decide(cluster: ClusterState, command: Decide) -> CommandOutcome:
    """Commit or abort; see `Decide` for the value and the codes."""
    refusal = _refuse_app_id(command.app_id) or _refuse_fields(command)
    if refusal is not None:
        return refusal
    app = cluster.transactions.apps.get(command.app_id) or ApplicationState()
    if command.epoch >= 0 and command.epoch != app.epoch:
        return _fenced_producer(command, app)
    if command.sequence <= app.committed:
        return _decided_before(cluster, command, app)
    return _commit(cluster, command, app) if command.commit else _abort(cluster, command, app)


def report_decided(cluster: ClusterState, command: ReportDecided) -> CommandOutcome:
    """Note that queues have executed decisions, and that this is committed in their logs."""
    if find_registration(cluster, command.broker, command.instance_epoch) is None:
        return fenced(command.broker)
    for done in command.done:
        cluster.transactions.reported(done.number, (done.topic_id, done.queue))
    return DONE


# ── decisions ───────────────────────────────────────────────────────────────────────────────────


def _decided_before(
    cluster: ClusterState, command: Decide, app: ApplicationState
) -> CommandOutcome:
    """Answer for a closed sequence: an abort lets its queues drop what is left there (T1)."""
    if command.commit:
        return _committed_before(command, app)
    parked = _existing(cluster, command.parked)
    full = _refuse_full(cluster, parked, commit=False)
    if full is not None:
        return full
    nothing = [ParkedBatches(p.topic_id, p.queue, []) for p in parked]
    number = cluster.transactions.decide(
        command.app_id, command.sequence, command.attempt, nothing, commit=True
    )
    return CommandOutcome(value=["commit", str(number), AGAIN])


def _committed_before(command: Decide, app: ApplicationState) -> CommandOutcome:
    """Return the number of that commit and the queues to wait for, if it is still being executed."""
    for number, decision in app.open.items():
        if decision.commit and decision.sequence == command.sequence:
            queues = [f"{topic_id}/{queue}" for topic_id, queue in decision.queues]
            return CommandOutcome(value=["commit", str(number), AGAIN, *queues])
    return CommandOutcome(value=["commit", "0", AGAIN])


def _commit(cluster: ClusterState, command: Decide, app: ApplicationState) -> CommandOutcome:
    if (command.sequence, command.attempt) in app.aborted:
        text = (
            f"attempt {command.attempt} of sequence {command.sequence} of {command.app_id!r} was "
            "aborted: nothing of it is published, send it again as a new attempt"
        )
        return refused("TRANSACTION_ABORTED", text, sequence=command.sequence)
    refusal = (
        _refuse_queues(cluster, command.parked)
        or _refuse_full(cluster, command.parked, commit=True)
        or refuse_offsets(cluster, command.consumed)
    )
    if refusal is not None:
        return refusal
    table = cluster.transactions
    table.close(table.used(command.app_id, cluster.clock_ms), command.sequence)
    take_offsets(cluster, command.consumed)
    number = table.decide(
        command.app_id, command.sequence, command.attempt, command.parked, commit=True
    )
    return CommandOutcome(value=["commit", str(number), FIRST])


def _abort(cluster: ClusterState, command: Decide, app: ApplicationState) -> CommandOutcome:
    key = (command.sequence, command.attempt)
    again = key in app.aborted
    if not again and len(app.aborted) >= MAX_ABORTED:
        text = (
            f"{len(app.aborted)} attempts of {command.app_id!r} were aborted since its last "
            "commit: commit a sequence, or use another application id"
        )
        return refused("TOO_LARGE", text)
    parked = _existing(cluster, command.parked)
    full = _refuse_full(cluster, parked, commit=False)
    if full is not None:
        return full
    cluster.transactions.used(command.app_id, cluster.clock_ms).aborted[key] = None
    number = cluster.transactions.decide(command.app_id, *key, parked, commit=False)
    return CommandOutcome(value=["abort", str(number), AGAIN if again else FIRST])


def _existing(cluster: ClusterState, parked: list[ParkedBatches]) -> list[ParkedBatches]:
    return [p for p in parked if _refuse_queue(cluster, p) is None]


# ── refusals ────────────────────────────────────────────────────────────────────────────────────


def _refuse_app_id(app_id: str) -> CommandOutcome | None:
    try:
        check_app_id(app_id)
    except InvalidRequest as error:
        return refused("INVALID_ARGUMENT", error.text)
    return None


def _refuse_fields(command: Decide) -> CommandOutcome | None:
    """Refuse fields that are invalid whatever the tables hold; brokers write them to their logs."""
    return decision_fault(command.sequence, command.attempt, command.parked)


def decision_fault(
    sequence: int, attempt: int, parked: list[ParkedBatches]
) -> CommandOutcome | None:
    """Refuse a decision that no log can hold, whatever the tables say, or return None."""
    if not (0 <= sequence < NUMBERS and -NUMBERS <= attempt < NUMBERS):
        text = f"sequence {sequence}, attempt {attempt}: a sequence is 0 or more, both have 64 bits"
        return refused("INVALID_ARGUMENT", text)
    places = sum(len(p.places) for p in parked)
    if places > MAX_HANDLES:
        text = (
            f"{places} parked batches in one decision: {MAX_HANDLES} at most, send larger batches"
        )
        return refused("TOO_LARGE", text)
    if len({(p.topic_id, p.queue) for p in parked}) != len(parked):
        return refused("INVALID_ARGUMENT", "a queue is named twice: name all its batches together")
    for p in parked:
        if len(set(p.places)) != len(p.places):
            return refused("INVALID_ARGUMENT", "a parked batch is named twice: name it once")
        if not all(0 <= offset < MAX_OFFSET and 0 <= side < SIDES for offset, side in p.places):
            return refused("INVALID_ARGUMENT", "a place that no log has: name what was parked")
    return None


def _taken(app_id: str, app: ApplicationState) -> CommandOutcome:
    text = (
        f"application id {app_id!r} belongs to {app.owner}, which has committed its sequences up to "
        f"{app.committed}: take another id, or name that owner as the one to replace"
    )
    return refused("APPLICATION_TAKEN", text, owner=app.owner, committed=app.committed)


def _fenced_producer(command: Decide, app: ApplicationState) -> CommandOutcome:
    if command.epoch > app.epoch:
        text = f"epoch {command.epoch} of {command.app_id!r} was never given: open it first"
        return refused("INVALID_ARGUMENT", text)
    text = (
        f"another producer has opened {command.app_id!r} since, in epoch {app.epoch}: two must not "
        "use one application id at a time"
    )
    return refused("FENCED", text, epoch=app.epoch)


def _refuse_queues(cluster: ClusterState, parked: list[ParkedBatches]) -> CommandOutcome | None:
    for p in parked:
        refusal = _refuse_queue(cluster, p)
        if refusal is not None:
            return refusal
    return None


def _refuse_queue(cluster: ClusterState, parked: ParkedBatches) -> CommandOutcome | None:
    topic = cluster.topics_by_id.get(parked.topic_id)
    if topic is None:
        text = f"the topic of id {parked.topic_id} does not exist (any more): abort, and send anew"
        return refused("UNKNOWN_TOPIC", text)
    if 0 <= parked.queue < len(topic.queues):
        return None
    text = f"topic {topic.name!r} has queues 0 to {len(topic.queues) - 1}, not {parked.queue}"
    return refused("UNKNOWN_QUEUE", text, topic=topic.name, queue=parked.queue)


def _refuse_full(
    cluster: ClusterState, parked: list[ParkedBatches], *, commit: bool
) -> CommandOutcome | None:
    """Refuse a decision if too much waits for queues without a leader, or with a slow one."""
    table = cluster.transactions
    named = sum(len(p.places) for p in parked) if commit else 0
    if not parked:
        return None
    if table.waiting + len(parked) <= MAX_WAITING and table.named + named <= MAX_NAMED:
        return None
    text = (
        f"{table.waiting} decisions on queues, {table.named} parked batches in all, wait to be "
        "carried out: try again later; `logboom cluster status` shows queues without leader"
    )
    return refused("BUSY", text)
