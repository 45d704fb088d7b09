"""What name servers promise one operation after the other: models for the linearizability checker.

A model is a state and a step. The step takes an operation with the answer it got and returns the
next state, or None where that answer is wrong in this state. With an unknown answer (`result` None)
the operation takes effect as far as it can: that it did not, is for the checker to try.

Not everybody writes into the history: brokers come, are fenced and elected, producers take ids.
What such a one may have done between two operations is legal in each model, nothing else.

| f | key | value | result |
|---|---|---|---|
| create | topic | queues, setting | code, version, id |
| alter | topic | queues, setting (None: as it is) | code, version |
| delete | topic | | code, version |
| read | topic | | version, and unless it is absent: id, queues, setting, isr (per queue) |
| cas | topic id/queue | expected, epoch, before, isr | code, version |
| allocate | producer ids | count | code, version, first |
| open | application id | | code, version, epoch, committed |
| decide | application id | sequence, attempt, commit, epoch | code, version, outcome, when |
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

from tests.sim.judges.operations import Operation

Step: TypeAlias = Callable[[Any, Operation], Hashable | None]


@dataclass(frozen=True, slots=True)
class Model:
    """The state that the first operation meets, and how each changes it."""

    initial: Hashable
    step: Step


class Topic(NamedTuple):
    """A topic that exists."""

    id: int | None
    """None: created by an operation whose answer nobody got."""
    queues: int
    setting: int


ABSENT: Final = "absent"


def _create(state: Topic | str, asked: Operation) -> Topic | str | None:
    result = asked.result
    made = Topic(None, asked.value["queues"], asked.value["setting"])
    if result is None:
        return made if isinstance(state, str) else state
    match result["code"]:
        case "":
            return made._replace(id=result["id"]) if isinstance(state, str) else None
        case "TOPIC_EXISTS":
            return None if isinstance(state, str) else state
        case "TOO_FEW_BROKERS":
            return state if isinstance(state, str) else None
    return None


def _alter(state: Topic | str, asked: Operation) -> Topic | str | None:
    code = None if asked.result is None else asked.result["code"]
    if isinstance(state, str):
        return state if code in (None, "UNKNOWN_TOPIC") else None
    queues = state.queues if asked.value["queues"] is None else asked.value["queues"]
    setting = state.setting if asked.value["setting"] is None else asked.value["setting"]
    altered = Topic(state.id, queues, setting)
    match code:
        case None:
            return state if queues < state.queues else altered
        case "":
            return None if queues < state.queues else altered
        case "INVALID_ARGUMENT":
            return state if queues < state.queues else None
        case "TOO_FEW_BROKERS":
            return state if queues > state.queues else None
    return None


def _delete(state: Topic | str, asked: Operation) -> Topic | str | None:
    match None if asked.result is None else asked.result["code"]:
        case None:
            return ABSENT
        case "":
            return None if isinstance(state, str) else ABSENT
        case "UNKNOWN_TOPIC":
            return state if isinstance(state, str) else None
    return None


def _read(state: Topic | str, asked: Operation) -> Topic | str | None:
    seen = asked.result
    if seen is None:
        return state
    if isinstance(state, str) or seen["id"] is None:
        return state if isinstance(state, str) and seen["id"] is None else None
    if state.id not in (None, seen["id"]):
        return None
    found = Topic(seen["id"], seen["queues"], seen["setting"])
    return found if found == state._replace(id=found.id) else None


_OF_TOPICS: Final[dict[str, Step]] = {
    "create": _create,
    "alter": _alter,
    "delete": _delete,
    "read": _read,
}


def _topic(state: Topic | str, asked: Operation) -> Hashable | None:
    return _OF_TOPICS[asked.f](state, asked)


class Isr(NamedTuple):
    """What is known of a queue: `version` and `epoch` are at least these, and the ISR is that one
    as long as the version is just this."""

    version: int
    epoch: int
    members: frozenset[str] | None
    """None: somebody else may have changed it."""


REFUSED: Final = frozenset(
    (
        "UNKNOWN_QUEUE",
        "NOT_LEADER",
        "STALE_EPOCH",
        "INVALID_ARGUMENT",
        "FENCED",
        "DATA_DAMAGED",
        "DISK_FULL",
    )
)
"""Answers to a compare-and-set that say nothing of the ISR as far as a model knows it."""


def _isr(state: Isr, asked: Operation) -> Isr | None:
    """Compare-and-set: nobody wins with a version that another has used up (Q6)."""
    result, value = asked.result, asked.value
    if asked.f == "read":
        return state if result is None else _isr_read(state, Isr(*_shown(result)))
    if result is None:
        # Somebody else may have done just this: whether it took effect can not be told.
        return state
    expected, wanted = value["expected"], frozenset(value["isr"])
    known = expected == state.version and state.members is not None
    match result["code"]:
        case "":
            if expected < state.version or value["epoch"] < state.epoch:
                return None
            before = state.members if known else frozenset(value["before"])
            grown = expected if before == wanted else expected + 1
            return Isr(grown, value["epoch"], wanted)
        case "CONFLICT":
            # The asker had seen this version: so now there is a greater one.
            return state if state.version > expected else Isr(expected + 1, state.epoch, None)
        case code if code in REFUSED:
            return state
    return None


def _isr_read(state: Isr, seen: Isr) -> Isr | None:
    if seen.version < state.version or seen.epoch < state.epoch:
        return None
    if seen.version == state.version and state.members is not None and seen != state:
        return None
    return seen


def _shown(result: Any) -> tuple[int, int, frozenset[str]]:
    return result["version"], result["epoch"], frozenset(result["isr"])


def _ids(state: int, asked: Operation) -> int | None:
    """Ids only grow and none is given twice; those in between went to somebody else."""
    result = asked.result
    if result is None:
        return state
    if result["code"] != "":
        # A topic that was not created, which others judge; producer ids are always given.
        return None if asked.f == "allocate" else state
    first, count = result.get("first", result.get("id")), asked.value.get("count", 1)
    assert isinstance(first, int), result
    assert isinstance(count, int), asked.value
    return first + count if first >= state else None


class Application(NamedTuple):
    """What is decided of an application's transactions (SAFETY T1)."""

    epoch: int
    committed: int
    aborted: frozenset[tuple[int, int]]
    """(sequence, attempt), of sequences above the committed one."""


def _open(state: Application, asked: Operation) -> Application | None:
    result = asked.result
    after = state._replace(epoch=state.epoch + 1)
    told = (after.epoch, state.committed)
    return after if result is None or (result["epoch"], result["committed"]) == told else None


def _decide(state: Application, asked: Operation) -> Application | None:
    """The first commit of a sequence wins, and closes all below; an abort ends one attempt."""
    after, *told = _decided(state, asked)
    result = asked.result
    if result is not None and [result["code"], result["outcome"], result["when"]] != told:
        return None
    return after


def _decided(state: Application, asked: Operation) -> tuple[Application, str, str, str]:
    """What follows, and how it is answered: code, outcome, first or again."""
    value, sequence = asked.value, asked.value["sequence"]
    key = (sequence, value["attempt"])
    if value["epoch"] >= 0 and value["epoch"] != state.epoch:
        never = value["epoch"] > state.epoch
        return state, "INVALID_ARGUMENT" if never else "FENCED", "", ""
    if sequence <= state.committed:
        return state, "", "commit", "again"
    if not value["commit"]:
        when = "again" if key in state.aborted else "first"
        return state._replace(aborted=state.aborted | {key}), "", "abort", when
    if key in state.aborted:
        return state, "TRANSACTION_ABORTED", "", ""
    left = frozenset(known for known in state.aborted if known[0] > sequence)
    return Application(state.epoch, sequence, left), "", "commit", "first"


def _application(state: Application, asked: Operation) -> Hashable | None:
    return _open(state, asked) if asked.f == "open" else _decide(state, asked)


def _version(state: int, asked: Operation) -> int | None:
    """The metadata version never goes back, and topics that come or go make it grow."""
    result = asked.result
    if result is None:
        return state
    version = result["version"]
    assert isinstance(version, int), result
    grows = asked.f in ("create", "delete") and result["code"] == ""
    return version if version > state or (version == state and not grows) else None


TOPIC: Final = Model(ABSENT, _topic)
ISR: Final = Model(Isr(0, 0, None), _isr)
IDS: Final = Model(0, _ids)
APPLICATION: Final = Model(Application(0, -1, frozenset()), _application)
VERSION: Final = Model(0, _version)


def parts(operations: Iterable[Operation]) -> dict[str, tuple[Model, Sequence[Operation]]]:
    """The history in parts that are linearizable each by itself, or it is not: by what they ask for
    (linearizability is local), and the ids and versions of all answers."""
    found: dict[str, tuple[Model, list[Operation]]] = {}

    def put(part: str, model: Model, operation: Operation) -> None:
        found.setdefault(part, (model, []))[1].append(operation)

    for operation in operations:
        if operation.result is not None:
            put("metadata version", VERSION, operation)
        if operation.f == "allocate":
            put(operation.key, IDS, operation)
        elif operation.f in ("open", "decide"):
            put(f"application {operation.key}", APPLICATION, operation)
        elif operation.f == "cas":
            put(f"queue {operation.key}", ISR, operation)
        elif operation.f in _OF_TOPICS:
            put(f"topic {operation.key}", TOPIC, operation)
            if operation.f == "create" and operation.result is not None:
                put("topic ids", IDS, operation)
            for queue, seen in _queues_seen(operation):
                put(f"queue {queue}", ISR, seen)
        else:
            raise ValueError(f"nothing is known of operation {operation.f!r}")
    return {part: (model, chosen) for part, (model, chosen) in found.items()}


def _queues_seen(operation: Operation) -> Iterable[tuple[str, Operation]]:
    result = operation.result
    if operation.f != "read" or result is None or result["id"] is None:
        return
    for number, (version, epoch, isr) in enumerate(result["isr"]):
        seen = {"version": version, "epoch": epoch, "isr": isr}
        yield f"{result['id']}/{number}", replace(operation, result=seen)
