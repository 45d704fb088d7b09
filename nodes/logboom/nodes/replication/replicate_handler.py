"""The leader's side of REPLICATE: one held request per follower, answered when there is news.

A follower's session remembers the queues that it follows here and its position in each, so that a
request names only changes. Every reported position is first compared with our log (Q4). If both
agree, it counts as on the follower's disk; otherwise the answer says where to truncate.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.compaction.survivor_copies import CopyPage, read_copy_page
from logboom.nodes.log.body_references import shorten
from logboom.nodes.log.keys import Position
from logboom.nodes.replica.entry_reader import DamagedEntry, entries
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replication.move_budget import MoveBudget, ThrottledTime, move_rate
from logboom.nodes.turn import BrokerTurn, Figures, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.errors import DataDamaged, Refused, Unavailable
from logboom.wire.frames import Frame
from logboom.wire.messages import FetchStatus, FollowerPosition, QueueAnswer, Replicate, Replicated
from logboom.wire.stats import Statistics

UNSERVED: Final = (Position(0, -1), -1)
"""HW and start for a follower that was sent nothing yet."""
GATHERED_AT_ONCE: Final = 256
"""Queues with possible news that one answer looks at; some milliseconds. More go into the next ones."""
ENTRIES_AT_ONCE: Final = 500
"""Entries of one answer. Small ones take a leader 5 µs each to read, and a follower 16 µs to append."""
UNHEARD_S: Final = 1.2
"""Seconds of silence after which a follower counts as unheard; more than two of its long polls."""


class SessionQueue:
    """The position of one follower in one queue."""

    __slots__ = ("answer", "asked", "told")

    def __init__(self, asked: FollowerPosition) -> None:
        self.asked = asked
        self.answer: QueueAnswer | None = None
        """The answer that must precede any entries: CUT, RESET, STALE …; None if the logs agree."""
        self.told = UNSERVED
        """(HW, log start) as last sent."""


class FetchSession:
    """One follower broker's session."""

    def __init__(self, broker: str, session: int, now: float, stats: Statistics) -> None:
        self.broker = broker
        self.session = session
        self.number = -1
        self.instance_epoch = 0
        self.fetches: dict[QueueKey, SessionQueue] = {}
        self.news: dict[QueueKey, None] = {}
        """Queues with possible news, longest waiting first. A queue leaves when all of its news was
        sent or there proved to be none, but never for lack of room."""
        self.served: dict[QueueKey, None] = {}
        """Queues whose entries were in the last answer."""
        self.answered = -1
        """Number of the last request that was answered."""
        self.said: list[QueueKey] = []
        """Queues that the last answer mentioned."""
        self.heard_at = now
        self.held: tuple[PeerAddress, Replicate, float] | None = None
        """(address, request, deadline) of the request that waits for news."""
        self.hw_news_at = float("inf")
        """When news of HWs alone is sent; infinity if there is none."""
        self.withheld = False
        """True if entries of a move wait for the budget."""
        self.passed = 0
        """Queues among the news that were looked at in a row without anything to send."""
        self.waited = ThrottledTime(stats)


class _MoveRoom:
    """What an answer may hold of the queues that the follower is getting."""

    __slots__ = ("left", "sent", "throttled", "withheld")

    def __init__(self, of_budget: int, of_follower: int) -> None:
        self.left = of_budget if of_follower < 0 else min(of_budget, of_follower)
        self.throttled = of_budget == 0
        """True if the leader's budget is what allows nothing, so that waiting for it helps."""
        self.sent = 0
        self.withheld = False
        """True if there are entries that find no room."""

    def take(self, size: int) -> None:
        """Note that `size` bytes are sent."""
        self.left -= size
        self.sent += size


class ReplicateHandler(Service):
    """The sessions of all followers that fetch from this broker."""

    def __init__(
        self,
        context: BrokerContext,
        on_position: Callable[[Replica, str], None],
        on_damage: Callable[[Replica, DamagedEntry], None],
    ) -> None:
        """Create the handler without sessions.

        Args:
            context: what all parts of the broker share.
            on_position: called when a follower's counted position may have moved.
            on_damage: called when an entry could not be read.
        """
        self._config = context.config
        self._queues = context.queues
        self._routes = context.routes
        self._stats = context.stats
        self._on_position = on_position
        self._on_damage = on_damage
        self._followers: dict[str, FetchSession] = {}

        def rate() -> int:
            return move_rate(context.settings, context.disk_speed.bytes_per_s)

        self._rate = rate
        self._budgets: dict[str, MoveBudget] = {}
        """Follower → the budget of what moves to it. It outlives sessions."""
        self._ready: dict[str, None] = {}
        """Followers to look at before the turn ends."""

    def heard(self) -> dict[str, float]:
        """Return when each follower broker last sent a request."""
        return {broker: f.heard_at for broker, f in self._followers.items()}

    def unheard(self, now: float) -> list[str]:
        """Return brokers that follow a queue led here and have sent no request for `UNHEARD_S`."""
        led = self._queues.led
        return [
            broker
            for broker, follower in self._followers.items()
            if now - follower.heard_at > UNHEARD_S and any(key in led for key in follower.fetches)
        ]

    def forgive(self, now: float, away: float) -> None:
        """Exclude the seconds for which this loop was stalled and could hear nobody."""
        for follower in self._followers.values():
            follower.heard_at = min(now, follower.heard_at + away)

    # ── a request ───────────────────────────────────────────────────────────────────────────────

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of REPLICATE."""
        return {Replicate: self.replicate}

    def replicate(self, peer: PeerSession, message: Replicate, turn: BrokerTurn) -> None:
        """Take the positions in a follower's request, and answer or hold it."""
        address, client_id = peer.address, peer.client_id
        if message.broker != client_id:
            text = (
                f"REPLICATE for {message.broker!r} from {client_id!r}: nodes speak for themselves"
            )
            turn.refuse(address, message.id, Refused(text, "UNAUTHENTICATED"))
            return
        known = self._routes.brokers.get(message.broker)
        if known is not None and message.instance_epoch < known.instance_epoch:
            # An older process, whose disk may have been replaced since: it does not count.
            text = f"{client_id} is registered under a newer instance epoch: this process is over"
            turn.refuse(address, message.id, Refused(text, "FENCED"))
            return
        follower = self._session(message, turn)
        if follower is None:
            text = "unknown replication session: begin a new one that names all queues"
            turn.refuse(address, message.id, Unavailable(text, "CONFLICT"))
            return
        if message.heard < follower.answered:
            self._not_heard(follower)
        follower.number = message.number
        follower.instance_epoch = message.instance_epoch
        follower.heard_at = turn.mono
        # Queues that were served and are not named again did not move: they are served again.
        follower.news.update(follower.served)
        follower.served.clear()
        for key in message.gone:
            follower.fetches.pop(key, None)
            follower.news.pop(key, None)
        for asked in message.queues:
            self._take(follower, asked, turn)
        deadline = turn.mono + min(max(0, message.wait_ms), 30_000) / 1000
        follower.held = (address, message, deadline)
        self._ready[follower.broker] = None

    @staticmethod
    def _not_heard(follower: FetchSession) -> None:
        """Send everything again, because the last answer arrived after its request was replaced."""
        for key in follower.said:
            fetch = follower.fetches.get(key)
            if fetch is not None:
                fetch.told = UNSERVED
                follower.news[key] = None
        follower.said.clear()

    def _session(self, message: Replicate, turn: BrokerTurn) -> FetchSession | None:
        follower = self._followers.get(message.broker)
        if message.number == 0 and (follower is None or follower.session != message.session):
            if follower is not None and message.instance_epoch < follower.instance_epoch:
                return None
            follower = self._followers[message.broker] = FetchSession(
                message.broker, message.session, turn.mono, self._stats
            )
            return follower
        if follower is None or follower.session != message.session:
            return None
        # The same number again: the request was repeated over a new connection.
        return follower if message.number in (follower.number, follower.number + 1) else None

    def _take(self, follower: FetchSession, asked: FollowerPosition, turn: BrokerTurn) -> None:
        key = (asked.topic_id, asked.queue)
        fetch = follower.fetches.get(key)
        if fetch is None or fetch.asked.leader_epoch != asked.leader_epoch:
            # Whoever begins in a new epoch has forgotten what it was told of the HW in another.
            fetch = follower.fetches[key] = SessionQueue(asked)
        fetch.asked = asked
        follower.news[key] = None
        self._compare(follower, fetch, turn)

    def _compare(self, follower: FetchSession, fetch: SessionQueue, turn: BrokerTurn) -> None:
        """Set the fetch's answer, or count its position if the logs agree (Q4)."""
        asked = fetch.asked
        replica = self._queues.replicas.get((asked.topic_id, asked.queue))
        leading = replica.leading if replica is not None else None
        if replica is None or leading is None:
            fetch.answer = _plain(asked, "UNKNOWN", -1)
        elif asked.leader_epoch != leading.epoch or follower.broker not in leading.followers:
            fetch.answer = _plain(asked, "STALE", leading.epoch)
        else:
            fetch.answer = compare_position(replica, asked)
            if fetch.answer is None:
                position = Position(asked.offset, asked.side)
                leading.followers[follower.broker].lacks = asked.lacks is not None
                leading.report(
                    follower.broker, follower.instance_epoch, position, replica.end, turn.mono
                )
                self._on_position(replica, follower.broker)
            else:
                leading.forget_position(follower.broker)

    # ── news ────────────────────────────────────────────────────────────────────────────────────

    def appended(self, replica: Replica) -> None:
        """Serve the followers of a queue at once: its log grew, or its role changed."""
        for broker, follower in self._followers.items():
            if replica.key in follower.fetches:
                follower.news[replica.key] = None
                if follower.held is not None:
                    self._ready[broker] = None

    def hw_moved(self, replica: Replica, turn: BrokerTurn) -> None:
        """Tell followers of a moved HW or log start soon, together with other news."""
        for follower in self._followers.values():
            if replica.key in follower.fetches:
                follower.news[replica.key] = None
                soon = turn.mono + self._config.hw_news_ms / 1000
                follower.hw_news_at = min(follower.hw_news_at, soon)

    def role_changed(self, replica: Replica, turn: BrokerTurn) -> None:
        """Compare all positions again: this broker's role in the queue has changed."""
        for follower in self._followers.values():
            fetch = follower.fetches.get(replica.key)
            if fetch is not None:
                self._compare(follower, fetch, turn)
        self.appended(replica)

    def answer(self, turn: BrokerTurn) -> None:
        """Answer held requests that have news or have expired."""
        for broker in self._ready:
            self._answer(self._followers[broker], turn)
        self._ready.clear()
        for follower in self._followers.values():
            held = follower.held
            if held is not None and self._due(follower, held[2]) <= turn.mono:
                self._answer(follower, turn)

    def deadline(self) -> float:
        """Return when `answer` is due next."""
        wanted = float("inf")
        for follower in self._followers.values():
            if follower.held is not None:
                wanted = min(wanted, self._due(follower, follower.held[2]))
        return wanted

    def _due(self, follower: FetchSession, deadline: float) -> float:
        """Return when a held request is to be looked at."""
        if follower.passed:
            return float("-inf")
        due = min(deadline, follower.hw_news_at)
        return min(due, self._budgets[follower.broker].due()) if follower.withheld else due

    def figures(self, now: float) -> Figures:
        """Return the most bytes per second that move from here to each other broker."""
        return {"move_limit_bytes_per_s": self._rate()}

    def _answer(self, follower: FetchSession, turn: BrokerTurn) -> None:
        if follower.held is None:
            return
        address, message, deadline = follower.held
        budget = self._budgets.get(follower.broker)
        if budget is None:
            budget = self._budgets[follower.broker] = MoveBudget(self._rate, turn.mono)
        moves = _MoveRoom(budget.room(turn.mono), message.moving_bytes)
        answers, frames, urgent = self._gather(follower, message.max_bytes, moves)
        self._note_moves(follower, budget, moves, turn.mono)
        if not urgent and turn.mono < deadline and (not answers or turn.mono < follower.hw_news_at):
            follower.hw_news_at = float("inf") if not answers else follower.hw_news_at
            if answers:
                # Only HWs: they wait for other news, but not for long.
                soon = turn.mono + self._config.hw_news_ms / 1000
                follower.hw_news_at = min(follower.hw_news_at, soon)
            return
        for answer in answers:
            self._told(follower, answer)
        follower.answered = message.number
        follower.said = [(answer.topic_id, answer.queue) for answer in answers]
        follower.held = None
        follower.hw_news_at = float("inf")
        self._stats.count("replicate_answers")
        self._stats.counters["replicated_bytes.out"] += sum(map(len, frames))
        turn.answer(address, Replicated(message.id, answers), frames)

    def _note_moves(
        self, follower: FetchSession, budget: MoveBudget, moves: _MoveRoom, now: float
    ) -> None:
        """Count what an answer holds of moves, and for how long some of it had to wait."""
        follower.withheld = moves.withheld and moves.throttled
        follower.waited.note(waits=follower.withheld, now=now)
        if moves.sent:
            budget.take(moves.sent, now)
            self._stats.count("move_bytes_out", moves.sent)

    def _gather(
        self, follower: FetchSession, max_bytes: int, moves: _MoveRoom
    ) -> tuple[list[QueueAnswer], list[Frame], bool]:
        """Collect the pending answers and their frames.

        The flag is true if any answer carries more than a high-watermark update, or there are more than
        one answer holds. What moves has room of its own, so that the others find theirs as if nothing
        moved.
        """
        answers: list[QueueAnswer] = []
        frames: list[Frame] = []
        room, most, urgent = max(1, max_bytes), ENTRIES_AT_ONCE, False
        first = True
        """No entry of a queue that does not move was found yet."""
        looked = list(islice(follower.news, GATHERED_AT_ONCE))
        more = len(follower.news) - len(looked)
        waiting: list[QueueKey] = []
        for key in looked:
            fetch = follower.fetches.get(key)
            if fetch is None:
                del follower.news[key]
                continue
            replica = self._queues.replicas.get(key)
            if replica is not None and fetch.answer is None and fetch.asked.offset < replica.start:
                # Retention overtook the follower.
                fetch.answer = _reset(replica, fetch.asked)
            moving = replica is not None and _is_moving(replica, follower.broker)
            if most <= 0 or (room <= 0 and not moving):
                continue
            if fetch.answer is not None:
                answers.append(fetch.answer)
                room -= len(fetch.answer.state)
                urgent = True
                continue
            if replica is None:
                waiting.append(key)
                continue
            if moving:
                found, complete, copies = self._moved(replica, fetch.asked, moves, most)
            else:
                found, size, complete = self._entries(replica, fetch.asked, room, most, first=first)
                room -= size
                copies = self._copies(replica, fetch.asked, room)
                first = first and not found
            most -= len(found)
            told = (replica.hw, replica.start)
            if found or copies is not None or told != fetch.told:
                answers.append(_flowing(replica, fetch.asked, len(found), copies))
                frames += found
                urgent = urgent or bool(found) or copies is not None
                if copies is not None:
                    frames += copies.frames
                    room -= 0 if moving else sum(map(len, copies.frames))
            elif complete and fetch.asked.lacks is None:
                del follower.news[key]
            elif moving or complete or first:
                waiting.append(key)
        if more:
            # What has nothing to send, such as moves without room, waits behind the others; entries
            # that only find no room in this answer keep their place.
            for key in waiting:
                del follower.news[key]
                follower.news[key] = None
        follower.passed = follower.passed + len(looked) if more and not answers else 0
        if follower.passed >= len(follower.news):
            follower.passed = 0
        return answers, frames, urgent or (more > 0 and bool(answers))

    def _moved(
        self, replica: Replica, asked: FollowerPosition, moves: _MoveRoom, most: int
    ) -> tuple[list[Frame], bool, CopyPage | None]:
        """Return entries and copies for a replica that is being added, as far as there is room."""
        behind = Position(asked.offset, asked.side) < replica.end or asked.lacks is not None
        if behind and moves.left <= 0:
            moves.withheld = True
            return [], False, None
        found, size, complete = self._entries(
            replica, asked, moves.left, most, first=not moves.sent
        )
        moves.take(size)
        copies = self._copies(replica, asked, moves.left) if moves.left > 0 else None
        if copies is not None:
            moves.take(sum(map(len, copies.frames)))
        return found, complete, copies

    def _told(self, follower: FetchSession, answer: QueueAnswer) -> None:
        """Note that an answer was sent."""
        key = (answer.topic_id, answer.queue)
        fetch = follower.fetches[key]
        if answer.status == "OK":
            fetch.told = (Position(answer.hw_offset, answer.hw_side), answer.log_start)
            if not answer.frames and answer.copied < 0:
                # Entries may wait for room, or copies for our compaction: the queue stays among the
                # news.
                return
            follower.served[key] = None
        follower.news.pop(key, None)

    def _entries(
        self, replica: Replica, asked: FollowerPosition, room: int, most: int, *, first: bool
    ) -> tuple[list[Frame], int, bool]:
        """Return at most `most` entries from the requested position, their size, and whether these are all.

        If they are the answer's `first`, at least one is returned. A body that is left out counts
        for the size, because the follower's turn has to write the whole entry all the same.
        """
        begin = Position(asked.offset, asked.side)
        found: list[Frame] = []
        size = 0
        if begin >= replica.end:
            return found, size, True
        try:
            for entry, _ in entries(replica, self._queues.storage, begin, replica.end):
                if size + len(entry) > room and (found or not first):
                    break
                short = shorten(entry, replica.tail) if asked.rebuilds else None
                found.append(entry if short is None else short)
                size += len(entry)
                if size >= room or len(found) >= most:
                    break
        except DamagedEntry as error:
            self._on_damage(replica, error)
        return found, size, False

    def _copies(self, replica: Replica, asked: FollowerPosition, room: int) -> CopyPage | None:
        """Return compaction's copies from before the follower's log, if it lacks them."""
        if asked.lacks is None or replica.damage is not None:
            return None
        try:
            return read_copy_page(replica, self._queues.storage, asked.lacks, max(1, room))
        except DamagedEntry as error:
            self._on_damage(replica, error)
        except DataDamaged as error:
            self._on_damage(replica, DamagedEntry(error.text, Position(replica.start)))
        return None


def _is_moving(replica: Replica, broker: str) -> bool:
    return replica.leading is not None and replica.leading.is_moving(broker)


def compare_position(replica: Replica, asked: FollowerPosition) -> QueueAnswer | None:
    """Compare a follower's position with the leader's log; None if the logs agree.

    They agree if ours reaches the position and has the named epoch just before it (Q4).
    """
    position = Position(asked.offset, asked.side)
    if position.offset < replica.start:
        return _reset(replica, asked)
    if position <= replica.end and replica.epochs.before(position) == asked.last_epoch:
        return None
    floor = replica.epochs.floor(asked.last_epoch, replica.end)
    if floor is None:
        # An empty log that does not begin where ours does, or one that agrees with ours at most
        # below our start. If it were told to truncate, its HW would go back until the log is reset.
        return _reset(replica, asked)
    return _cut(replica, asked, *floor)


def _plain(asked: FollowerPosition, status: FetchStatus, epoch: int) -> QueueAnswer:
    return QueueAnswer(asked.topic_id, asked.queue, epoch, status, 0, 0, 0)


def _cut(replica: Replica, asked: FollowerPosition, epoch: int, end: Position) -> QueueAnswer:
    return QueueAnswer(
        asked.topic_id,
        asked.queue,
        asked.leader_epoch,
        "CUT",
        *replica.hw,
        replica.start,
        cut_epoch=epoch,
        cut_offset=end.offset,
        cut_side=end.side,
    )


def _reset(replica: Replica, asked: FollowerPosition) -> QueueAnswer:
    at = Position(replica.start)
    return QueueAnswer(
        asked.topic_id,
        asked.queue,
        asked.leader_epoch,
        "RESET",
        *replica.hw,
        replica.start,
        cut_offset=at.offset,
        cut_side=at.side,
        state=replica.snapshot(at),
    )


def _flowing(
    replica: Replica, asked: FollowerPosition, frames: int, copies: CopyPage | None = None
) -> QueueAnswer:
    return QueueAnswer(
        asked.topic_id,
        asked.queue,
        asked.leader_epoch,
        "OK",
        *replica.hw,
        replica.start,
        frames=frames,
        compacts=replica.compaction.on,
        survivors=[] if copies is None else copies.bits,
        copied=-1 if copies is None else copies.next_offset,
    )
