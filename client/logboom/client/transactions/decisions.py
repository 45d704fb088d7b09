"""Decisions on parked batches, as flows (see `logboom.client.flows`).

A decision is one command in the name servers' log. The leaders of the queues learn of it and apply
it. The client asks each of them to answer once it has. A decision is kept until all have reported
(see docs/SAFETY.md, T3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from logboom.client.calls import AskAll, AskLeader, ProposeCommand
from logboom.client.flows import Flow
from logboom.wire.base import WireMessage
from logboom.wire.batch import validate_batch
from logboom.wire.columns import Columns
from logboom.wire.commands import CommandResult
from logboom.wire.errors import (
    InternalError,
    InvalidRequest,
    Refused,
    TimedOut,
    TransactionError,
    UnknownResource,
)
from logboom.wire.transactions import (
    MAX_HANDLES,
    NOT_FENCED,
    AwaitDecided,
    CheckParked,
    Decide,
    EntryPosition,
    ParkedBatches,
    ParkedChecked,
    TransactionId,
    check_app_id,
)

READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes of parked batches to read at once."""
MAX_COMMAND_BYTES: Final = 58 * 1024
"""Maximum bytes of a decision: the name servers refuse commands over 60 KiB."""

_encode: Final = msgspec.msgpack.Encoder().encode


class ParkedHandle(Struct, frozen=True, gc=False):
    """A batch that is parked for a transaction, as `Client.decide` takes it.

    It can be pickled, and encoded as msgpack or JSON, because one process may park it and another
    decide on it.
    """

    app_id: str
    sequence: int
    attempt: int
    topic: str
    topic_id: int
    queue: int
    offset: int
    """Position in the queue's log, together with `side`. It is not the offset at which the batch
    will be read."""
    side: int
    count: int
    """Number of messages."""


class Decision(Struct, frozen=True, gc=False):
    """The final decision on a transaction."""

    outcome: Literal["commit", "abort"]
    number: int
    """Grows from one decision to the next."""
    again: bool
    """True if it was decided before: this call published nothing of this attempt."""


def decide(command: Decide, timeout: float) -> Flow[Decision]:
    """Put one decision into the log.

    Raises:
        InvalidRequest: TOO_LARGE; nothing is decided.
        Refused: FENCED, by a newer producer of this application.
        TransactionError: TRANSACTION_ABORTED: this attempt can no longer commit.
        TimedOut: no name server answered; the outcome is unknown.
    """
    check_app_id(command.app_id)
    check_size(command)
    result: CommandResult = yield ProposeCommand(command, timeout)
    return read_decision(result)


def check_size(command: Decide) -> None:
    """Check that a decision fits into the log.

    Raises:
        InvalidRequest: TOO_LARGE.
    """
    count = sum(len(each.places) for each in command.parked) if command.commit else 0
    size = len(_encode(command))
    if count > MAX_HANDLES or size > MAX_COMMAND_BYTES:
        text = (
            f"a transaction of {count} batches, whose decision takes {size} bytes; at most "
            f"{MAX_HANDLES} and {MAX_COMMAND_BYTES} are accepted: decide less at once, or park "
            "larger batches"
        )
        raise InvalidRequest(text, "TOO_LARGE", limit=MAX_HANDLES)


def read_decision(result: CommandResult) -> Decision:
    """Read the result of a `Decide`."""
    value = result.value
    if not isinstance(value, list) or len(value) < 3 or value[0] not in ("commit", "abort"):
        raise InternalError(f"unexpected answer to a decision: {value!r}; please report it")
    outcome: Literal["commit", "abort"] = "commit" if value[0] == "commit" else "abort"
    return Decision(outcome, int(value[1]), value[2] == "again")


def carried_out(
    decision: Decision, queues: Mapping[tuple[int, int], str], timeout: float
) -> Flow[None]:
    """Wait until the leader of each queue has applied a decision.

    Args:
        decision: the decision.
        queues: (topic id, queue) → topic.
        timeout: seconds.

    Raises:
        TimedOut: a leader has not applied it yet, but will.
    """
    asked = []
    for (topic_id, queue), topic in queues.items():
        asked.append(
            AskLeader(topic, queue, _awaiting(topic, queue, decision.number, topic_id), timeout)
        )
    yield AskAll(asked)
    for each in asked:
        error = each.outcome.error
        if error is None or isinstance(error, UnknownResource):
            continue  # a topic that was deleted meanwhile has nothing to release
        if isinstance(error, TimedOut):
            text = (
                f"the transaction's {decision.outcome} is decided, and {each.topic}/{each.queue} "
                f"will carry it out, but has not yet; nothing is to be repeated: {error.text}"
            )
            raise TimedOut(text, decided=decision.outcome, topic=each.topic, queue=each.queue)
        raise error


def _awaiting(topic: str, queue: int, number: int, topic_id: int) -> Callable[[int], WireMessage]:
    return lambda left: AwaitDecided(0, left, topic, queue, number, topic_id)


def decide_handles(
    app_id: str,
    sequence: int,
    handles: Sequence[ParkedHandle],
    wall_ms: int,
    timeout: float,
    *,
    commit: bool,
    epoch: int | None = None,
) -> Flow[Decision]:
    """Decide on batches that `Client.park` has parked, and wait until the decision is applied.

    Args:
        app_id: the application id.
        sequence: the sequence of the transaction.
        handles: the parked batches.
        wall_ms: ms since 1970.
        timeout: seconds.
        commit: publish the batches; otherwise drop them.
        epoch: of a commit, the epoch in which the application id was taken over; None: it was
            not.

    Raises:
        Refused: FENCED, the application id was taken over since.
        TransactionError: UNKNOWN_HANDLES: a batch is not parked (any longer), and the sequence
        was not committed; the attempt is aborted then. TRANSACTION_ABORTED.
        InvalidRequest: handles of another transaction, or of two attempts; TOO_LARGE.
        TimedOut: not decided or not applied in time; the field `decided` says which.
    """
    check_app_id(app_id)
    attempt = check_handles(app_id, sequence, handles)
    parked = parked_in(handles)
    queues = {(each.topic_id, each.queue): each.topic for each in handles}
    if commit:
        fence = NOT_FENCED if epoch is None else epoch
        command = Decide(app_id, fence, sequence, attempt, True, parked, [], wall_ms)
        check_size(command)
        unknown = yield from _unknown(handles, timeout)
        if unknown:
            return (yield from _refused(command, unknown, queues, timeout))
    else:
        parked = [ParkedBatches(each.topic_id, each.queue, []) for each in parked]
        command = Decide(app_id, NOT_FENCED, sequence, attempt, False, parked, [], wall_ms)
    decision = yield from decide(command, timeout)
    if commit and decision.again:
        # Committed before, by this attempt or another: drop what is left of this one at once.
        return (yield from _cleared(command, queues, timeout))
    yield from carried_out(decision, queues, timeout)
    return decision


def check_handles(app_id: str, sequence: int, handles: Sequence[ParkedHandle]) -> int:
    """Return the attempt that parked these batches, or 0 if there are none.

    Raises:
        InvalidRequest: they belong to another transaction, or to two attempts.
    """
    for each in handles:
        if (each.app_id, each.sequence) != (app_id, sequence):
            text = (
                f"a handle belongs to transaction {each.sequence} of {each.app_id!r}, not to "
                f"{sequence} of {app_id!r}"
            )
            raise InvalidRequest(text)
    attempts = {each.attempt for each in handles}
    if len(attempts) > 1:
        text = f"handles of {len(attempts)} attempts: one transaction commits what one has parked"
        raise InvalidRequest(text)
    return attempts.pop() if attempts else 0


def parked_in(handles: Sequence[ParkedHandle]) -> list[ParkedBatches]:
    """Group the positions by queue, each once, in the order of the handles."""
    found: dict[tuple[int, int], dict[EntryPosition, None]] = {}
    for each in handles:
        places = found.setdefault((each.topic_id, each.queue), {})
        places[each.offset, each.side] = None
    return [ParkedBatches(*queue, list(places)) for queue, places in sorted(found.items())]


def _unknown(handles: Sequence[ParkedHandle], timeout: float) -> Flow[int]:
    """Ask the queues' leaders how many of these batches are not parked for their transaction."""
    by_queue: dict[tuple[str, int, int], list[ParkedHandle]] = {}
    for handle in handles:
        by_queue.setdefault((handle.topic, handle.topic_id, handle.queue), []).append(handle)
    asked = [
        AskLeader(topic, queue, _checking(topic, topic_id, queue, some), timeout)
        for (topic, topic_id, queue), some in by_queue.items()
    ]
    yield AskAll(asked)
    count = 0
    for each, some in zip(asked, by_queue.values(), strict=True):
        if isinstance(each.outcome.error, UnknownResource):
            count += len(some)
            continue
        answer, _ = each.outcome.get()
        if isinstance(answer, ParkedChecked):
            count += len(answer.unknown)
    return count


def read_parked(handles: Sequence[ParkedHandle], timeout: float) -> Flow[list[Columns]]:
    """Read the first of some parked batches of one queue, as many as come at once.

    Raises:
        TransactionError: UNKNOWN_HANDLES: the first is not parked (any longer).
        Refused: UNSUPPORTED_VERSION: the broker is too old to send parked batches.
    """
    one = handles[0]
    asked = handles[:MAX_HANDLES]
    message = _checking(one.topic, one.topic_id, one.queue, asked, READ_BYTES)
    answer, batches = yield AskLeader(one.topic, one.queue, message, timeout)
    if not isinstance(answer, ParkedChecked):
        raise InternalError(f"unexpected answer {type(answer).__name__}: please report it")
    if (one.offset, one.side) in {(offset, side) for offset, side in answer.unknown}:
        text = (
            f"{len(answer.unknown)} of the handles of transaction {one.sequence} of {one.app_id!r} "
            "are not parked (any more): park again under a new attempt"
        )
        raise TransactionError(text, "UNKNOWN_HANDLES", unknown=len(answer.unknown))
    if not batches:
        text = f"the broker of {one.topic}/{one.queue} does not send what is parked: upgrade it"
        raise Refused(text, "UNSUPPORTED_VERSION")
    return [Columns(validate_batch(batch, stamped=False), batch) for batch in batches]


def _checking(
    topic: str,
    topic_id: int,
    queue: int,
    handles: Sequence[ParkedHandle],
    read_bytes: int = 0,
) -> Callable[[int], WireMessage]:
    first = handles[0]
    whose = TransactionId(first.app_id, first.sequence, first.attempt)
    places = [(each.offset, each.side) for each in handles]
    return lambda left: CheckParked(0, left, topic, queue, whose, places, topic_id, read_bytes)


def _refused(
    command: Decide, unknown: int, queues: Mapping[tuple[int, int], str], timeout: float
) -> Flow[Decision]:
    """Handle unknown handles: look up whether the sequence was committed, or end the attempt."""
    decision = yield from _cleared(command, queues, timeout)
    if decision.outcome == "abort":
        text = (
            f"{unknown} of the handles of transaction {command.sequence} of {command.app_id!r} are "
            "not parked (any more): nothing of it is published; park again under a new attempt"
        )
        raise TransactionError(text, "UNKNOWN_HANDLES", unknown=unknown)
    return decision


def _cleared(
    command: Decide, queues: Mapping[tuple[int, int], str], timeout: float
) -> Flow[Decision]:
    """Drop what an attempt has left behind; return the decision on its sequence."""
    found = yield from clear(
        command.app_id, command.sequence, command.attempt, queues, command.time_ms, timeout
    )
    yield from carried_out(found, queues, timeout)
    return Decision(found.outcome, found.number, again=True)


def clear(
    app_id: str,
    sequence: int,
    attempt: int,
    queues: Mapping[tuple[int, int], str],
    wall_ms: int,
    timeout: float,
) -> Flow[Decision]:
    """Abort an attempt in the queues in which it may have parked batches.

    The outcome is "commit" if its sequence was committed before; uncommitted batches are dropped
    all the same.
    """
    parked = [ParkedBatches(*queue, []) for queue in sorted(queues)]
    command = Decide(app_id, NOT_FENCED, sequence, attempt, False, parked, [], wall_ms)
    return (yield from decide(command, timeout))
