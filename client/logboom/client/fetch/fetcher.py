"""Reading ahead: one long poll per queue at its leader.

Batches go to the reader's `FetchBuffer` until the queue's share of the prefetch limit is used up. A
position only moves forward by what was read. After a fail-over, the new leader may not know yet how
far readers were, and the fetcher waits for it (see docs/SAFETY.md, Q8).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from logboom.client.calls import CallHandlers, MessageTime, Start
from logboom.client.cluster.connections import Connections
from logboom.client.cluster.leader_cache import LeaderCache
from logboom.client.cluster.metadata_updater import MetadataUpdater, unknown_topic
from logboom.client.core_context import CoreTurn, Timer
from logboom.client.fetch.fetch_buffer import (
    CloseFetch,
    CompletedFetch,
    FetchBuffer,
    OpenFetch,
    QueueFetch,
    SeekFetch,
    WakeBuffer,
    WakeFetch,
)
from logboom.wire.backoff import backoff
from logboom.wire.base import WireMessage
from logboom.wire.batch import validate_batch
from logboom.wire.columns import Columns
from logboom.wire.errors import DamagedBatch, LogboomError
from logboom.wire.frames import Frame
from logboom.wire.messages import (
    OffsetForTime,
    OffsetForTimeResult,
    Offsets,
    OffsetsResult,
    Pull,
    Pulled,
)
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle

LOG = logging.getLogger("logboom.client")

WAIT_MS: Final = 10_000
"""Time for which a leader holds a pull."""
SLACK: Final = 3.0
"""Seconds beyond the hold before an unanswered pull is repeated."""
IN_TROUBLE: Final = 3
"""Failed pulls in a row after which the queue is reported to be in trouble."""
MAX_DAMAGED: Final = 3
"""Attempts to read a damaged batch before the reader is told."""


class _QueueFetcher:
    """The core's side of one fetch."""

    def __init__(self, fetch: QueueFetch, owner: Fetcher) -> None:
        self.fetch = fetch
        self.owner = owner
        self.offset: int | None = None
        self.generation = fetch.generation
        self.start: Start = fetch.start
        self.copies_to: int | None = None
        """End of the copies that are being requested; None: the log is."""
        self.topic_id: int | None = None
        self.valid_from = -1
        """Epoch of the queue's last loss that the position knows (see docs/SAFETY.md, Q15); -1 while
        the topic is not known."""
        self.endpoint = ""
        self.suggested = ""
        self.ticket: RequestHandle | None = None
        self.pause: Timer | None = None
        self.attempts = 0
        self.damaged = 0
        self.expected = 0
        """Bytes that the pull under way is counted with in the buffer."""
        self.last_bytes = 0
        """Size of the last answer that had messages."""
        self.eager = False
        """True if its last pull was taken back because the buffer was full: there may be a backlog."""
        self.closed = False


class Fetcher:
    """All queues that this client reads."""

    def __init__(
        self,
        connections: Connections,
        leaders: LeaderCache,
        watching: MetadataUpdater,
        turn: CoreTurn,
    ) -> None:
        self._connections = connections
        self._leaders = leaders
        self._watching = watching
        self._turn = turn
        self._readings: dict[int, _QueueFetcher] = {}
        self._held: dict[int, dict[int, _QueueFetcher]] = {}
        """id of a buffer → the queues that wait for room in it, the first first."""
        watching.listen(self._rerouted)

    def register(self, handlers: CallHandlers) -> None:
        """Register the handlers of readers' calls."""
        handlers.register(OpenFetch, lambda call: self.open(call.fetch))
        handlers.register(SeekFetch, self._seek)
        handlers.register(WakeFetch, lambda call: self.wake(call.fetch))
        handlers.register(WakeBuffer, lambda call: self._fill(call.inbox))
        handlers.register(CloseFetch, lambda call: self.close(call.fetch))

    def open(self, fetch: QueueFetch) -> None:
        """Start reading; the topic is known already."""
        reading = _QueueFetcher(fetch, self)
        self._readings[id(fetch)] = reading
        reading.valid_from = self._last_loss(fetch)
        self._pull(reading)

    def _seek(self, call: SeekFetch) -> None:
        """Continue reading at another position."""
        fetch = call.fetch
        reading = self._readings.get(id(fetch))
        if reading is None:
            return
        self._cancel(reading)
        reading.offset, reading.start, reading.generation = None, call.start, call.generation
        reading.valid_from = self._last_loss(fetch)
        reading.attempts = reading.damaged = 0
        fetch.void()
        self._pull(reading)
        self._fill(fetch.inbox)

    def wake(self, fetch: QueueFetch) -> None:
        """Continue to pull: there is room again."""
        reading = self._readings.get(id(fetch))
        if reading is not None and reading.ticket is None and reading.pause is None:
            self._pull(reading)

    def curb(self, fetch: QueueFetch) -> None:
        """Repeat a pull under way with the room that is left."""
        reading = self._readings.get(id(fetch))
        if reading is not None and reading.ticket is not None and fetch.asks_too_much:
            self._cancel(reading)
            self._pull(reading)

    def close(self, fetch: QueueFetch) -> None:
        """Stop reading."""
        reading = self._readings.pop(id(fetch), None)
        if reading is not None:
            reading.closed = True
            self._cancel(reading)
            fetch.close()
            self._held.get(id(fetch.inbox), {}).pop(id(fetch), None)
            self._fill(fetch.inbox)

    def _cancel(self, reading: _QueueFetcher) -> None:
        if reading.ticket is not None:
            reading.ticket.cancel()
            reading.ticket = None
            self._release(reading)
        if reading.pause is not None:
            reading.pause.cancel()
            reading.pause = None

    # One bound for all queues of a reader. Pulls of queues with a backlog count with what they are
    # likely to bring; those that a leader holds until there is news do not, and are taken back when
    # the buffer is full.

    def _release(self, reading: _QueueFetcher) -> None:
        reading.fetch.asked = (0, 0)
        reading.fetch.inbox.expected -= reading.expected
        reading.expected = 0

    def _hold(self, reading: _QueueFetcher) -> None:
        inbox = reading.fetch.inbox
        self._held.setdefault(id(inbox), {})[id(reading.fetch)] = reading
        inbox.blocked = True

    def _fill(self, inbox: FetchBuffer) -> None:
        """Send the pulls that were held back, as far as there is room."""
        held = self._held.get(id(inbox))
        if held is None:
            return
        while held:
            # Set before each look, so that a reader that makes room meanwhile wakes us.
            inbox.blocked = True
            if not inbox.has_room:
                return
            self._pull(held.pop(next(iter(held))), in_turn=True)
        inbox.blocked = False
        self._held.pop(id(inbox), None)

    def _take_back(self, inbox: FetchBuffer) -> None:
        """Take back the pulls that may bring anything at any time."""
        for reading in [*self._readings.values()]:
            asks = reading.ticket is not None and reading.offset is not None
            if reading.fetch.inbox is inbox and asks and not reading.expected:
                self._cancel(reading)
                reading.eager = True
                self._hold(reading)

    # Requests.

    def _pull(self, reading: _QueueFetcher, *, in_turn: bool = False) -> None:
        """Send the next request, unless its reader, or all queues together, want none; `in_turn`:
        others that are held back have had their turn."""
        fetch = reading.fetch
        if reading.closed or reading.ticket is not None:
            return
        # Set before the last check, so that a reader that makes room meanwhile wakes us.
        fetch.stalled = True
        if fetch.paused or fetch.full:
            return
        fetch.stalled = False
        if not in_turn and (id(fetch.inbox) in self._held or not fetch.inbox.has_room):
            self._hold(reading)
            self._fill(fetch.inbox)
            return
        if not self._notice_topic(reading):
            return  # an update of the topic pulls again
        try:
            leader = self._leaders.endpoint(fetch.topic, fetch.queue)
        except LogboomError as error:
            if fetch.group and error.code == "UNKNOWN_QUEUE":
                return  # the group knows newer metadata, and an update of the topic pulls again
            self._fail(reading, error)
            return
        endpoint = reading.suggested or leader
        if endpoint is None:
            return  # a new leader pulls again
        reading.endpoint = endpoint
        message = self._next_question(reading)
        wait = WAIT_MS / 1000 if isinstance(message, Pull) else 0.0
        reading.ticket = self._connections.request(
            endpoint,
            message,
            (),
            lambda reply: self._answered(reading, reply),
            wait + SLACK,
            # A leader that delays it because of a quota loses it no more than one that holds it.
            float("inf"),
        )

    def _notice_topic(self, reading: _QueueFetcher) -> bool:
        """Detect a topic that was deleted and recreated, which has other messages at the same
        offsets.

        Read it from its start, or return False if only the old topic is wanted.
        """
        fetch = reading.fetch
        topic = self._watching.routes.topics.get(fetch.topic)
        if fetch.topic_id and topic is not None and topic.id != fetch.topic_id:
            return False
        if topic is None or topic.id == reading.topic_id:
            return True
        if reading.topic_id is not None:
            LOG.warning("topic %s was recreated: reading it from the first offset", fetch.topic)
            fetch.corrections += 1
            fetch.max_offset = -1
            reading.offset, reading.start = None, "first"
        if reading.topic_id is not None or reading.valid_from < 0:
            reading.valid_from = self._last_loss(fetch)
        reading.topic_id = topic.id
        return True

    def _next_question(self, reading: _QueueFetcher) -> WireMessage:
        fetch, timeout_ms = reading.fetch, int((WAIT_MS / 1000 + SLACK) * 1000)
        meant = reading.topic_id or 0
        if reading.offset is None:
            start = reading.start
            if start == "last":
                return Offsets(0, int(SLACK * 1000), fetch.topic, [fetch.queue], meant)
            if isinstance(start, MessageTime):
                left_ms = int(SLACK * 1000)
                return OffsetForTime(0, left_ms, fetch.topic, fetch.queue, int(start), meant)
            self._place(reading, start if isinstance(start, int) else 0)
        offset = reading.offset or 0
        reading.copies_to = fetch.log_start if offset < fetch.log_start else None
        fetch.asked = (fetch.wanted_messages, fetch.pull_bytes)
        eager = fetch.inbox.bounded and reading.eager
        if eager or (fetch.inbox.bounded and offset < fetch.max_offset):
            reading.expected = reading.last_bytes or fetch.asked[1]
            fetch.inbox.expected += reading.expected
        return Pull(
            0,
            timeout_ms,
            fetch.topic,
            fetch.queue,
            offset,
            fetch.asked[1],
            # Do not wait behind the last copy, because the log continues there; nor while others
            # wait for what this one may bring.
            WAIT_MS if reading.copies_to is None and not eager else 0,
            fetch.asked[0],
            fetch.tags,
            meant,
            fetch.group,
            fetch.owner_epoch,
            fetch.filter,
            fetch.uncommitted,
            fetch.compacted or reading.copies_to is not None,
            fetch.owner_proof,
        )

    def _place(self, reading: _QueueFetcher, offset: int) -> None:
        reading.offset = offset
        if reading.generation == reading.fetch.generation:
            reading.fetch.reader_offset = offset

    # Answers.

    def _answered(self, reading: _QueueFetcher, reply: Reply) -> None:
        reading.ticket = None
        self._release(reading)
        message = reply.message
        match message:
            case Pulled():
                self._pulled(reading, message, reply.batches)
            case OffsetsResult() if message.offsets:
                self._place(reading, message.offsets[0][1])
                self._pull(reading)
            case OffsetForTimeResult():
                self._place(reading, message.offset)
                self._pull(reading)
            case _:
                self._failed(reading, reply.error)
        inbox = reading.fetch.inbox
        if inbox.is_full and inbox.arrivals:
            self._take_back(inbox)
        elif inbox.blocked:
            self._fill(inbox)

    def _failed(self, reading: _QueueFetcher, error: LogboomError | None) -> None:
        fetch = reading.fetch
        reading.suggested = ""
        if error is not None and reading.attempts + 1 >= IN_TROUBLE:
            fetch.trouble = error.code
        if error is not None and not self._leaders.learn(fetch.topic, fetch.queue, error):
            self._fail(reading, error)
            return
        reading.attempts += 1
        self._pause(reading)

    def _fail(self, reading: _QueueFetcher, error: LogboomError) -> None:
        """Report an error to the reader, and retry slowly: the cause may be repaired."""
        fetch = reading.fetch
        fetch.inbox.put(CompletedFetch(fetch, reading.generation, None, 0, error))
        reading.attempts = 6
        self._pause(reading)

    def _pause(self, reading: _QueueFetcher) -> None:
        def resume() -> None:
            reading.pause = None
            self._pull(reading)

        if reading.pause is None:
            reading.pause = self._turn.after(backoff(reading.attempts, self._turn.rng), resume)

    def _pulled(self, reading: _QueueFetcher, message: Pulled, batches: Sequence[Frame]) -> None:
        fetch = reading.fetch
        fetch.inbox.throttled_ms += message.throttled_ms
        reading.attempts = 0
        reading.eager = False
        reading.last_bytes = sum(map(len, batches)) or reading.last_bytes
        fetch.trouble = ""
        if message.status == "OFFSET_ILLEGAL":
            self._correct(reading, message)
            return
        fetch.max_offset = max(fetch.max_offset, message.max_offset)
        matches, survivors = message.matches or [], message.survivors or []
        end = message.next_offset
        if reading.copies_to is not None:
            end = min(end, reading.copies_to)
        for place, batch in enumerate(batches):
            said = matches[place] if place < len(matches) else None
            alive = survivors[place] if place < len(survivors) else None
            if not self._take(reading, batch, said, alive):
                return
        if reading.offset is not None:
            # Skip batches that were left out because of their tags.
            self._pass_to(reading, end)
        reading.suggested = self._suggestion(message)
        self._pull(reading)

    def _pass_to(self, reading: _QueueFetcher, offset: int) -> None:
        """Move forward without a batch; the reader has to know, because it commits."""
        if reading.offset is None or offset <= reading.offset:
            return
        fetch = reading.fetch
        reading.offset = offset
        if fetch.topic_id:
            fetch.inbox.put(CompletedFetch(fetch, reading.generation, None, 0, None, offset))
        else:
            fetch.inbox.pass_to(fetch, reading.generation, offset)

    def _take(
        self, reading: _QueueFetcher, batch: Frame, matches: bytes | None, survivors: bytes | None
    ) -> bool:
        """Put one batch into the buffer; return False if it is damaged and requested again."""
        fetch, offset = reading.fetch, reading.offset or 0
        try:
            head = validate_batch(batch)
        except DamagedBatch as error:
            reading.damaged += 1
            LOG.warning("%s/%s at %s: %s", fetch.topic, fetch.queue, offset, error)
            if reading.damaged >= MAX_DAMAGED:
                reading.damaged = 0
                self._fail(reading, error)
            else:
                reading.attempts += 1
                self._pause(reading)
            return False
        reading.damaged = 0
        if head.next_offset <= offset or head.is_control:
            return True  # a repeated batch, or one without messages
        if reading.copies_to is not None and head.base_offset >= reading.copies_to:
            return True  # the log contains it, with more than the latest of each key
        columns = Columns(head, batch)
        if head.base_offset < offset:
            columns = columns.from_offset(offset)
        reading.offset = head.next_offset
        fetch.took(len(columns), head.length)
        arrival = CompletedFetch(fetch, reading.generation, columns, head.length)
        arrival.matches, arrival.survivors = matches, survivors
        fetch.inbox.put(arrival)
        return True

    def _suggestion(self, message: Pulled) -> str:
        broker = self._watching.routes.brokers.get(message.suggested or "")
        return broker.endpoint if broker is not None and broker.alive else ""

    def _correct(self, reading: _QueueFetcher, message: Pulled) -> None:
        """Correct a position that does not exist, as the leader says."""
        fetch, offset = reading.fetch, reading.offset or 0
        if fetch.log_start <= offset < message.min_offset and self._keeps_copies(fetch):
            fetch.log_start = message.min_offset
            self._pull(reading)
            return
        if message.next_offset < offset <= fetch.max_offset and not self._may_lose(fetch):
            # The queue was seen to reach further, so this node does not know it yet (see
            # docs/SAFETY.md, Q8).
            reading.attempts = max(reading.attempts, 3)
            self._pause(reading)
            return
        if reading.start != "first" or fetch.corrections or message.next_offset < offset:
            LOG.warning(
                "%s/%s: offset %s does not exist (%s to %s); continuing at %s",
                fetch.topic,
                fetch.queue,
                offset,
                message.min_offset,
                message.max_offset,
                message.next_offset,
            )
            fetch.corrections += 1
        fetch.max_offset = message.max_offset
        self._move(reading, message.next_offset)
        self._pull(reading)

    def _move(self, reading: _QueueFetcher, offset: int) -> None:
        """Continue at an offset that the position is not at; what was fetched before it stays."""
        self._pass_to(reading, offset)
        reading.offset = offset
        if reading.fetch.fetched == reading.fetch.consumed:
            self._place(reading, offset)

    def _keeps_copies(self, fetch: QueueFetch) -> bool:
        topic = self._watching.routes.topics.get(fetch.topic)
        return fetch.copies and topic is not None and topic.config.compaction

    def _may_lose(self, fetch: QueueFetch) -> bool:
        topic = self._watching.routes.topics.get(fetch.topic)
        return topic is not None and topic.config.unclean_election

    # Metadata.

    def _last_loss(self, fetch: QueueFetch) -> int:
        """Return the epoch of a queue's last loss, which a position that is chosen now knows."""
        view = self._watching.routes.known_queue(fetch.topic, fetch.queue)
        return -1 if view is None else view.valid_from()

    def _follow_losses(self, reading: _QueueFetcher) -> None:
        """Go back to where new messages begin, if the queue has lost what the reader was at (Q15).

        A member of a group begins again from the group's commit, which the name servers have cut.
        """
        fetch = reading.fetch
        view = self._watching.routes.known_queue(fetch.topic, fetch.queue)
        if view is None or not view.losses or reading.valid_from < 0:
            return
        end = view.valid_end(reading.valid_from)
        if end is None:
            return
        reading.valid_from = view.valid_from()
        fetch.max_offset = min(fetch.max_offset, end)
        at = reading.offset
        if (
            at is None
            and isinstance(reading.start, int)
            and not isinstance(reading.start, MessageTime)
        ):
            at = reading.start
        if fetch.group or at is None or at <= end:
            return
        text = "%s/%s: the messages from offset %s on were lost: going back there from %s"
        LOG.warning(text, fetch.topic, fetch.queue, end, at)
        self._cancel(reading)
        fetch.corrections += 1
        reading.start = "first" if reading.start == "first" else end
        self._move(reading, end)

    def _rerouted(self) -> None:
        live = {each.endpoint for each in self._watching.routes.brokers.values() if each.alive}
        for reading in list(self._readings.values()):
            fetch = reading.fetch
            if reading.suggested not in live:
                reading.suggested = (
                    ""  # back to the leader, instead of waiting for a node that is gone
                )
            if fetch.topic not in self._watching.routes.topics:
                if reading.ticket is not None:
                    self._cancel(reading)
                    self._fail(reading, unknown_topic(fetch.topic))
                continue
            if reading.topic_id in (None, self._watching.routes.topics[fetch.topic].id):
                self._follow_losses(reading)
            try:
                endpoint = self._leaders.endpoint(fetch.topic, fetch.queue)
            except LogboomError:
                continue
            moved = endpoint not in (None, reading.endpoint)
            anew = self._watching.routes.topics[fetch.topic].id != reading.topic_id
            if anew or (moved and not reading.suggested):
                self._cancel(reading)
            if reading.ticket is None and (reading.pause is None or moved):
                self._cancel(reading)
                self._pull(reading)
