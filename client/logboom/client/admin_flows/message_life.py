"""The life of one message, computed from what the cluster told; pure.

`message_facts` gathers `MessageFacts`: the batch as stored, how it waited before, the progress of
each group and subscription of its topic, and the copies of the message that failed. `message_life`
joins them, and says what nobody can know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from logboom.client.results import Message
from logboom.wire.batch import encode_batch, open_batch
from logboom.wire.errors import InvalidRequest
from logboom.wire.filters.filter import Filter
from logboom.wire.head import NO_PRODUCER, BatchHead, sequence_after
from logboom.wire.names import DLQ_PREFIX, RETRY_PREFIX
from logboom.wire.transactions import HALF, TransactionId

TRACEPARENT: Final = "traceparent"
"""The header of W3C Trace Context that names the trace of a message."""

ReaderKind: TypeAlias = Literal["group", "subscription"]
MessageState: TypeAlias = Literal["stored", "removed", "missing", "not yet"]
"""Where the offset is: in the log; below its start; in it without a message; behind its end."""
ReaderState: TypeAlias = Literal[
    "finished",
    "held",
    "waits",
    "retries",
    "dead letter",
    "not wanted",
    "unknown",
]
"""What a group or subscription has done with the message.

finished: handled, itself or a copy of it. held: somebody has its queue or its message, and is not
done. waits: nobody has it. retries: it failed, and a copy is delivered later. dead letter: it was
given up. not wanted: the filter leaves it out.
"""


class FinishedOffsets(Struct, frozen=True):
    """What a group or subscription has finished of one queue."""

    floor: int | None
    """Everything below is finished; None: not known yet."""
    ranges: list[tuple[int, int]]
    """Finished (start, stop) above it."""
    complete: bool = True
    """False if there are more ranges than listed."""

    def finished(self, offset: int) -> bool | None:
        """Return whether an offset is finished; None: not known."""
        if self.floor is None:
            return None
        if offset < self.floor or any(start <= offset < stop for start, stop in self.ranges):
            return True
        last = self.ranges[-1][1] if self.ranges else self.floor
        return False if self.complete or offset < last else None


class CopyFacts(Struct, frozen=True):
    """A copy of the message in a retry or dead-letter topic."""

    topic: str
    queue: int
    offset: int
    """-1: it waits for its time, and has no offset yet."""
    attempt: int
    cause: str
    stored_ms: int
    """When it was stored, or could be read if it had waited: by the leader's clock."""
    due_ms: int | None = None
    """If it waits: until when."""

    @property
    def dead(self) -> bool:
        """True for a dead letter."""
        return self.topic.startswith(DLQ_PREFIX)


class ReaderFacts(Struct, frozen=True):
    """A group or a subscription of the message's topic."""

    kind: ReaderKind
    name: str
    filter: str
    progress: dict[tuple[str, int], FinishedOffsets]
    """By (topic, queue): of the message's queue, and of those of its copies."""
    holder: str = ""
    """Who has the queue, or the message; "": nobody, or it is not reported."""
    why: str = ""
    """Why there is no progress, as far as anybody reported."""
    deliveries: int = 0
    """Deliveries of the message that came to nothing, as far as they are counted where it is."""
    copies: list[CopyFacts] = []
    unsearched: str = ""
    """Why not all copies were looked for; "" if they were."""
    own_offsets: bool = False
    """True if each member keeps its offsets itself (broadcasting)."""


class ParkedFacts(Struct, frozen=True):
    """How the batch of the message waited before it could be read."""

    parked_ms: int | None
    """When it was stored first, by the leader's clock; None: that is not known."""
    due_ms: int | None
    """The time for which it was sent; None: it waited for a decision."""
    transaction: TransactionId | None


class MessageFacts(Struct, frozen=True):
    """All that was told about one offset."""

    topic: str
    queue: int
    offset: int
    first: int
    """First offset of the queue."""
    end: int
    """Offset after the last that can be read."""
    message: Message | None
    head: BatchHead | None
    """Head of its batch."""
    released: bool
    """True if the batch waited for a time or a decision."""
    parked: ParkedFacts | None
    """How it waited; None: it did not, or that is not known."""
    readers: list[ReaderFacts]
    gaps: list[str]
    """What could not be asked, in words."""


class Origin(Struct, frozen=True):
    """Who sent the message, when, and in which batch."""

    message_ms: int
    """Message time, which the producer gave."""
    stored_ms: int
    """When the leader appended it."""
    leader_epoch: int
    producer_id: int | None
    """None: the producer is not idempotent, and has no id."""
    producer_epoch: int | None
    sequence: int | None
    """Its number among the messages that the producer sent to the queue, which wraps at 2³¹."""
    batch_first: int
    """Offset of the first message of its batch."""
    batch_messages: int
    batch_bytes: int
    traceparent: str | None
    """The context of its trace, if it has one."""


class Waited(Struct, frozen=True):
    """Why and how long the message waited before it could be read."""

    kind: Literal["delayed", "transaction", "half message", "delayed or transaction"]
    parked_ms: int | None
    due_ms: int | None
    """delayed: the time for which it was sent."""
    released_ms: int
    """When it got its offset."""
    app_id: str = ""
    """transaction: its application id; half message: its producer group."""
    sequence: int | None = None
    attempt: int | None = None


class LifeEvent(Struct, frozen=True):
    """One step of the life."""

    at_ms: int | None
    """By a leader's clock, ms since 1970 UTC; None: not recorded."""
    what: Literal[
        "produced",
        "parked",
        "released",
        "stored",
        "retry",
        "retry waits",
        "dead letter",
        "redrive",
        "finished",
        "removed",
    ]
    reader: str
    """The group or subscription; "" for what concerns none."""
    text: str


class ReaderLife(Struct, frozen=True):
    """What one group or subscription has done with the message."""

    kind: ReaderKind
    name: str
    state: ReaderState
    attempts: int | None
    """Deliveries as far as they are counted; None: not known."""
    holder: str
    detail: str
    copies: list[CopyFacts]
    redriven: int
    """Number of times that its dead letter was sent again."""


class MessageLife(Struct, frozen=True):
    """The life of one message."""

    topic: str
    queue: int
    offset: int
    state: MessageState
    first: int
    end: int
    message: Message | None
    origin: Origin | None
    waited: Waited | None
    readers: list[ReaderLife]
    events: list[LifeEvent]
    """Oldest first; those whose time is not recorded come last."""
    unknown: list[str]
    """What cannot be known, and why."""


def message_life(facts: MessageFacts) -> MessageLife:
    """Compute the life of a message."""
    state = _state(facts)
    origin = _origin(facts)
    waited = _waited(facts)
    readers = [_reader(facts, each) for each in facts.readers]
    events = [*_own_events(facts, state, origin, waited)]
    for told, each in zip(facts.readers, readers, strict=True):
        events += _reader_events(told, each)
    events.sort(key=lambda event: (event.at_ms is None, event.at_ms or 0))
    return MessageLife(
        facts.topic,
        facts.queue,
        facts.offset,
        state,
        facts.first,
        facts.end,
        facts.message,
        origin,
        waited,
        readers,
        events,
        [*_unknown(facts, state), *facts.gaps],
    )


def _state(facts: MessageFacts) -> MessageState:
    if facts.message is not None:
        return "stored"
    if facts.offset >= facts.end:
        return "not yet"
    return "removed" if facts.offset < facts.first else "missing"


def _origin(facts: MessageFacts) -> Origin | None:
    head, message = facts.head, facts.message
    if head is None or message is None:
        return None
    named = head.producer_id != NO_PRODUCER
    traceparent = (message.headers or {}).get(TRACEPARENT)
    return Origin(
        message.timestamp_ms,
        head.append_time_ms,
        head.leader_epoch,
        head.producer_id if named else None,
        head.producer_epoch if named else None,
        sequence_after(head.base_sequence, facts.offset - head.base_offset) if named else None,
        head.base_offset,
        head.count,
        head.length,
        None if traceparent is None else traceparent.decode("ascii", "replace"),
    )


def _waited(facts: MessageFacts) -> Waited | None:
    if facts.head is None or not facts.released:
        return None
    released_ms = facts.head.append_time_ms
    parked = facts.parked
    if parked is None:
        return Waited("delayed or transaction", None, None, released_ms)
    whose = parked.transaction
    if whose is None:
        return Waited("delayed", parked.parked_ms, parked.due_ms, released_ms)
    if whose.sequence == HALF:
        return Waited("half message", parked.parked_ms, None, released_ms, whose.app_id)
    place = (whose.app_id, whose.sequence, whose.attempt)
    return Waited("transaction", parked.parked_ms, None, released_ms, *place)


# ── readers ─────────────────────────────────────────────────────────────────────────────────────


def _reader(facts: MessageFacts, told: ReaderFacts) -> ReaderLife:
    copies = sorted(told.copies, key=_order)
    state, detail = _reader_state(facts, told, copies)
    return ReaderLife(
        told.kind,
        told.name,
        state,
        _attempts(told, copies, state),
        told.holder if state == "held" else "",
        detail,
        copies,
        sum(map(_is_redrive, copies)),
    )


def _order(copy: CopyFacts) -> tuple[int, bool, bool]:
    """Sort copies by time, and those of one millisecond as one follows from the other."""
    return copy.stored_ms, _is_redrive(copy), copy.dead


def _reader_state(
    facts: MessageFacts, told: ReaderFacts, copies: list[CopyFacts]
) -> tuple[ReaderState, str]:
    if told.own_offsets:
        return "unknown", "each member keeps its own offsets"
    finished = _progress(told, facts.topic, facts.queue).finished(facts.offset)
    if not _wanted(told.filter, facts.message):
        return "not wanted", f"the filter leaves it out: {told.filter}"
    if finished is None:
        return "unknown", told.why or "its progress here is not known"
    if copies:
        state, detail = _copied_state(told, copies[-1])
        again = "" if finished else "; its offset is not committed yet, or was reset"
        return state, detail + again
    if not finished:
        if facts.offset >= facts.end:
            return "waits", "it is not stored yet"
        if facts.offset < facts.first:
            return "finished", "retention has removed it, so nobody gets it any more"
        if told.holder:
            return "held", told.why
        return "waits", told.why
    return "finished", "or a copy of it waits: not all were looked for" if told.unsearched else ""


def _copied_state(told: ReaderFacts, last: CopyFacts) -> tuple[ReaderState, str]:
    """Return the state that the latest copy shows."""
    if last.offset < 0:
        return "retries", f"attempt {last.attempt} waits for its time"
    done = _progress(told, last.topic, last.queue).finished(last.offset)
    if last.dead:
        again = "; it was sent again, and that copy is not found" if done else ""
        return "dead letter", f"{last.topic}/{last.queue}/{last.offset}: {last.cause}{again}"
    if done is None:
        return "unknown", f"a copy in {last.topic} was not settled as far as reported"
    if not done:
        return "retries", f"attempt {last.attempt} can be read at {_place(last)}"
    return "finished", f"by its copy {_place(last)}"


def _place(copy: CopyFacts) -> str:
    return f"{copy.topic}/{copy.queue}/{copy.offset}"


def _progress(told: ReaderFacts, topic: str, queue: int) -> FinishedOffsets:
    return told.progress.get((topic, queue), FinishedOffsets(None, []))


def _wanted(text: str, message: Message | None) -> bool:
    """Return False if a filter leaves the message out; True if that is not known either."""
    if message is None or not text:
        return True
    try:
        wanted = Filter.read(text)
    except InvalidRequest:
        return True  # of a later version
    return wanted.takes_all or matches_message(wanted, message)


def _is_redrive(copy: CopyFacts) -> bool:
    """Return True for a dead letter that was sent again: its attempts begin anew."""
    return not copy.dead and copy.attempt == 1


def _attempts(told: ReaderFacts, copies: list[CopyFacts], state: ReaderState) -> int | None:
    if state in ("unknown", "not wanted"):
        return None
    if not copies:
        return told.deliveries + (state == "finished")
    last = copies[-1]
    # A retry bears the number of the delivery that it will be.
    return last.attempt if last.dead or state == "finished" else last.attempt - 1


def _reader_events(told: ReaderFacts, reader: ReaderLife) -> Iterator[LifeEvent]:
    for copy in reader.copies:
        cause = f": {copy.cause}" if copy.cause else ""
        if copy.dead:
            text = f"given up after attempt {copy.attempt}, at {_place(copy)}{cause}"
            yield LifeEvent(copy.stored_ms, "dead letter", told.name, text)
        elif copy.offset < 0:
            text = f"attempt {copy.attempt} waits in {copy.topic}/{copy.queue}{cause}"
            yield LifeEvent(copy.stored_ms, "retry waits", told.name, text)
        elif _is_redrive(copy):
            yield LifeEvent(copy.stored_ms, "redrive", told.name, f"sent again, {_place(copy)}")
        else:
            text = f"attempt {copy.attempt} from {_place(copy)}{cause}"
            yield LifeEvent(copy.stored_ms, "retry", told.name, text)
    if reader.state == "finished":
        yield LifeEvent(None, "finished", told.name, reader.detail)


def _own_events(
    facts: MessageFacts, state: MessageState, origin: Origin | None, waited: Waited | None
) -> Iterator[LifeEvent]:
    if origin is not None:
        who = "a producer without an id"
        if origin.producer_id is not None:
            who = f"producer {origin.producer_id}, epoch {origin.producer_epoch}, "
            who += f"sequence {origin.sequence}"
        yield LifeEvent(origin.message_ms, "produced", "", f"by {who}; message time")
    if waited is not None:
        text = _waited_text(waited)
        if waited.parked_ms is not None:
            yield LifeEvent(waited.parked_ms, "parked", "", text)
        yield LifeEvent(waited.released_ms, "released", "", text)
    elif origin is not None:
        text = f"in a batch of {origin.batch_messages} at {origin.batch_first}, "
        text += f"leader epoch {origin.leader_epoch}"
        yield LifeEvent(origin.stored_ms, "stored", "", text)
    if state == "removed":
        text = f"retention has removed everything below {facts.first}"
        yield LifeEvent(None, "removed", "", text)


def _waited_text(waited: Waited) -> str:
    text: str = waited.kind
    if waited.app_id:
        text += f" of {waited.app_id}"
    if waited.sequence is not None:
        text += f", sequence {waited.sequence}, attempt {waited.attempt}"
    return text


def _unknown(facts: MessageFacts, state: MessageState) -> Iterator[str]:
    if state == "removed":
        yield "who produced it and when: retention has removed it, and its content with it"
    elif state == "missing":
        yield "its content: compaction has removed it, or a damaged store has lost it"
    elif state == "not yet":
        yield (
            f"anything: the queue ends at {facts.end}; what waits for its time or for a decision "
            "has no offset yet"
        )
    elif facts.message is not None:
        if facts.head is not None and facts.head.producer_id == NO_PRODUCER:
            yield "the producer: it is not idempotent, so its batches carry no id"
        yield "the user who produced it: brokers check it, and do not store it"
        if facts.released and facts.parked is None:
            yield (
                "why it waited, for a time or a transaction: the entry that parked it is no longer "
                "in the log, or is read with the cluster key or the right `admin cluster` only"
            )
        if facts.parked is not None and facts.parked.parked_ms is None:
            yield "when it was parked: the entry was moved to the end of the log meanwhile"
    if facts.readers and state != "not yet":
        yield (
            "when a group or subscription finished it, and whether it was handled or passed over "
            "(by a start, a reset or a skip): only progress is stored"
        )
    reasons: dict[str, list[str]] = {}
    for told in facts.readers:
        if told.unsearched:
            reasons.setdefault(told.unsearched, []).append(f"{told.kind} {told.name}")
    for reason, names in reasons.items():
        yield f"all retries and dead letters of {', '.join(names)}: {reason}"
    for told in facts.readers:
        if told.own_offsets:
            yield f"the progress of group {told.name}: each member keeps its own offsets"


def matches_message(wanted: Filter, message: Message) -> bool:
    """Return True if a filter takes a message."""
    headers = None if message.headers is None else [message.headers]
    tags = None if message.tag is None else [message.tag]
    keys = None if message.key is None else [message.key]
    time_ms = message.timestamp_ms
    batch = encode_batch([message.value], keys, tags, headers, time_ms, now_ms=time_ms)
    return wanted.matcher().match(open_batch(batch)).passed == 1


def owned_topics(name: str) -> tuple[str, str]:
    """Return the retry and the dead-letter topic of a group, or of `topic%subscription`."""
    return RETRY_PREFIX + name, DLQ_PREFIX + name
