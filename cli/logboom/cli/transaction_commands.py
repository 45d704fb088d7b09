"""`logboom transaction`: undecided transactions and half messages, and manual decisions.

Undecided transactions are aborted automatically, 15 minutes after they began. Half messages
whose producer group does not answer its checks wait for a manual decision.
"""

from __future__ import annotations

import time
from typing import Any, Final

from cyclopts import App

from logboom.cli.connection import open_client
from logboom.cli.group_tables import age_text
from logboom.cli.output import note, show
from logboom.cli.parameters import (
    ApplicationId,
    Apply,
    Attempt,
    ClusterAddress,
    Half,
    Output,
    SequenceNumber,
    Servers,
)
from logboom.client import Client
from logboom.client.admin_flows.open_transactions import (
    OpenTransaction,
    find_attempt,
    find_halves,
    place_text,
)
from logboom.client.written_values import counted
from logboom.wire.errors import InvalidRequest

app = App(name="transaction", help="Undecided transactions and half messages.")

QUEUES_SHOWN: Final = 3


@app.command(name="list")
def list_transactions(
    app_id: str = "", /, *, servers: Servers = None, output: Output = "table"
) -> None:
    """List what waits for a decision, the oldest first.

    For example:

        logboom transaction list
        logboom transaction list shop -o json

    Parameters
    ----------
    app_id
        Only those of this application id or producer group.
    """
    with open_client(servers) as boom:
        rows = [_row(each) for each in _found(boom, app_id)]
    columns = ["app_id", "kind", "sequence", "attempt", "messages", "queues", "age", "checks"]
    if output == "table":
        for row in rows:
            row["queues"] = _queues_text(row)
    show(rows, columns, output)


@app.command(name="show")
def show_transaction(
    app_id: ApplicationId,
    *,
    sequence: SequenceNumber = None,
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Show every parked batch of an application id or producer group.

    For example:

        logboom transaction show shop
        logboom transaction show mover --sequence 12 -o json
    """
    with open_client(servers) as boom:
        found = [each for each in _found(boom, app_id) if sequence in (None, each.sequence)]
    rows = [
        {
            "sequence": None if each.is_half else each.sequence,
            "attempt": None if each.is_half else each.attempt,
            "half": place_text(each) if each.is_half else None,
            "topic": batch.topic,
            "queue": batch.queue,
            "offset": batch.offset,
            "side": batch.side,
            "messages": batch.count,
            "bytes": batch.size,
            "age": age_text(_age_ms(batch.parked_ms)),
            "parked_ms": batch.parked_ms,
            "checks": batch.checks if each.is_half else None,
        }
        for each in found
        for batch in each.parked
    ]
    columns = ["half"] if any(each.is_half for each in found) else ["sequence", "attempt"]
    columns += ["topic", "queue", "messages", "bytes", "age", "checks"]
    show(rows, columns, output)


@app.command
def commit(
    app_id: ApplicationId,
    *,
    sequence: SequenceNumber = None,
    attempt: Attempt = None,
    half: Half = None,
    yes: Apply = False,
    servers: Servers = None,
) -> None:
    """Publish what is parked. Without --yes it only says what that is.

    For example:

        logboom transaction commit mover --sequence 12 --yes
        logboom transaction commit shop --half orders/0/17.2 --yes
    """
    _decide(app_id, sequence, attempt, half, servers, commit=True, yes=yes)


@app.command
def abort(
    app_id: ApplicationId,
    *,
    sequence: SequenceNumber = None,
    attempt: Attempt = None,
    half: Half = None,
    yes: Apply = False,
    servers: Servers = None,
) -> None:
    """Drop what is parked. Without --yes it only says what that is.

    For example:

        logboom transaction abort mover --sequence 12 --yes
        logboom transaction abort shop --half all --yes
    """
    _decide(app_id, sequence, attempt, half, servers, commit=False, yes=yes)


def _decide(
    app_id: str,
    sequence: int | None,
    attempt: int | None,
    half: str | None,
    servers: ClusterAddress | None,
    *,
    commit: bool,
    yes: bool,
) -> None:
    if (sequence is None) == (half is None):
        raise InvalidRequest("say --sequence of a transaction, or --half of a half message")
    word = "published" if commit else "dropped"
    with open_client(servers) as boom:
        if half is not None:
            chosen = find_halves(_found(boom, app_id), app_id, half)
        else:
            chosen = [find_attempt(_found(boom, app_id, whole=True), app_id, sequence, attempt)]
        messages = sum(each.messages for each in chosen)
        queues = sorted({queue for each in chosen for queue in each.queues})
        where = ", ".join(f"{topic}/{queue}" for topic, queue in queues)
        if not yes:
            ask = "; its producer may still be sending" if commit and half is None else ""
            would = f"{counted(messages, 'message')} in {where} would be {word}"
            note(f"{would}{ask}; say --yes to do it")
            return
        done = sum(_end(boom, each, commit=commit) for each in chosen)
    note(f"{word} {counted(done, 'message')} in {where}")
    if done < messages:
        note(f"{counted(messages - done, 'message')} decided otherwise meanwhile")


def _end(boom: Client, chosen: OpenTransaction, *, commit: bool) -> int:
    """Decide one transaction or half message, and return the number of its messages."""
    wanted = "committed" if commit else "aborted"
    if chosen.is_half:
        return chosen.messages if boom.admin.end_half(chosen.half, commit=commit) == wanted else 0
    decision = boom.decide(chosen.app_id, chosen.sequence, chosen.handles(), commit=commit)
    same = decision.outcome == ("commit" if commit else "abort")
    return chosen.messages if same and not (commit and decision.again) else 0


def _found(boom: Client, app_id: str, *, whole: bool = False) -> list[OpenTransaction]:
    found = boom.admin.transactions(app_id)
    if found.more and whole:
        text = f"more batches of {app_id!r} wait than are listed at once: let its producer decide"
        raise InvalidRequest(text)
    if found.more:
        note("there are more: name an application id or producer group")
    return found.transactions


def _row(each: OpenTransaction) -> dict[str, Any]:
    return {
        "app_id": each.app_id,
        "kind": "half" if each.is_half else "transaction",
        "sequence": None if each.is_half else each.sequence,
        "attempt": None if each.is_half else each.attempt,
        "half": place_text(each) if each.is_half else None,
        "messages": each.messages,
        "bytes": each.size,
        "queues": [f"{topic}/{queue}" for topic, queue in each.queues],
        "age": age_text(_age_ms(each.since_ms)),
        "since_ms": each.since_ms,
        "checks": each.checks if each.is_half else None,
    }


def _queues_text(row: dict[str, Any]) -> str:
    queues: list[str] = row["queues"]
    if row["half"] is not None:
        return str(row["half"])
    rest = len(queues) - QUEUES_SHOWN
    return ", ".join(queues[:QUEUES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _age_ms(since_ms: int) -> int:
    return max(0, time.time_ns() // 1_000_000 - since_ms)
