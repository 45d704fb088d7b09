"""The follower's side of REPLICATE: one request at a time per leader broker.

A cycle: send the positions that changed; append the answer, each entry exactly at the end (Q5);
wait until it is on disk; send again. A reported position therefore never exceeds what is on disk. A
request that the leader holds is replaced when there is something new to report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.compaction.survivor_copies import stage_copy_page
from logboom.nodes.log.body_references import lender_of, resolve_body
from logboom.nodes.log.keys import Position, log_key
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replica.replica_table import ReplicaTable
from logboom.nodes.replication.move_budget import (
    MoveBudget,
    ThrottledTime,
    is_moving,
    move_rate,
)
from logboom.nodes.turn import LOOKED_PER_STEP, BrokerTurn, Figures, Service
from logboom.wire.batch import validate_batch
from logboom.wire.errors import DamagedBatch, DataDamaged, TimedOut
from logboom.wire.frames import Frame
from logboom.wire.messages import FollowerPosition, QueueAnswer, Replicate, Replicated
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle
from logboom.wire.stats import Statistics

GRACE: Final = 1.0
"""Seconds beyond the hold after which a request is given up."""
MOST_LATE: Final = 3
"""Answers too late in a row, each of which doubles the grace of the next request."""
NAMED_AT_ONCE: Final = 128
"""Queues with which a leader is made acquainted by one request: each costs it work."""
STALE_PAUSE: Final = 0.05
"""Seconds before a queue is requested again from a leader that does not (yet) lead it in our epoch.
"""
TURN_S: Final = 0.02
"""Seconds around its return for which a request is waited for that has a better claim."""
YIELD_MS: Final = 5
"""Least wait of a request that allows nothing that moves."""
PAUSES: Final = (0.02, 0.05, 0.1, 0.25, 0.5)
"""Seconds before a leader is asked again after a failure."""


class ReplicaFetcher:
    """The queues that this broker follows from one leader broker."""

    def __init__(self, leader: str, endpoint: str, session: int, stats: Statistics) -> None:
        self.leader = leader
        self.endpoint = endpoint
        self.session = session
        self.number = -1
        self.heard = -1
        """Number of the last request whose answer was accepted."""
        self.replicas: dict[QueueKey, Replica] = {}
        self.changed: dict[QueueKey, None] = {}
        """Queues to name in the next request."""
        self.unnamed: dict[QueueKey, None] = {}
        """Queues that the leader does not know from this session in their epoch, so that it sends
        nothing of them: they are named some at a time."""
        self.gone: dict[QueueKey, None] = {}
        self.unsynced: dict[QueueKey, int] = {}
        """Queues whose appends must reach the disk first, and the token of their turn."""
        self.stale: dict[QueueKey, float] = {}
        """Queues that the leader does not lead in our epoch, and when to name them again."""
        self.whole: dict[QueueKey, None] = {}
        """Queues of which an entry could not be rebuilt: the leader is to send it whole."""
        self.moving: dict[QueueKey, None] = {}
        """Queues that this broker is getting, and for which nothing waits."""
        self.reserved = 0
        """Bytes of the budget of moves that the request under way may use."""
        self.served_at = float("-inf")
        """When the leader last was allowed some."""
        self.starved_until = float("-inf")
        """When the last request that allowed none is back."""
        self.waited = ThrottledTime(stats)
        self.asked: RequestHandle | None = None
        self.failures = 0
        self.curt = False
        """True if the request under way is not held by the leader, since more is to be named."""
        self.late = 0
        """Requests in a row whose answers came too late, if at all."""
        self.ask_at = float("-inf")


class ReplicaFetchers(Service):
    """The fetchers, one per leader broker."""

    def __init__(
        self, context: BrokerContext, on_damage: Callable[[Replica, DamagedEntry], None]
    ) -> None:
        """Create no fetcher yet.

        `on_damage` is called when our own log cannot be read at the position where the leader
        truncates it.
        """
        self.instance_epoch = -1
        self._config = context.config
        self._settings = context.settings
        self._queues = context.queues
        self._routes = context.routes
        self._links = context.links
        self._rng = context.rng
        self._space = context.space
        self._stats = context.stats
        self._on_damage = on_damage
        self._fetchers: dict[str, ReplicaFetcher] = {}
        self._budget = MoveBudget(
            lambda: move_rate(context.settings, context.disk_speed.bytes_per_s), float("-inf")
        )
        """What moves to this broker, over all leaders."""

    def renew(self, instance_epoch: int) -> None:
        """Begin new sessions: a new registration reports positions under its own epoch (Q6)."""
        self.instance_epoch = instance_epoch
        for fetcher in self._fetchers.values():
            self._abandon(fetcher)
            self._anew(fetcher)

    def _anew(self, fetcher: ReplicaFetcher) -> None:
        """Begin a new session, whose first request names all queues."""
        fetcher.session = self._rng.getrandbits(48)
        fetcher.number = fetcher.heard = -1

    # ── roles ───────────────────────────────────────────────────────────────────────────────────

    def follow(self, replica: Replica, leader: str, endpoint: str) -> None:
        """Follow a queue from a leader, or from the same leader in a new epoch."""
        self.unfollow(replica, keep=leader)
        fetcher = self._fetchers.get(leader) or self._begin(leader, endpoint)
        fetcher.replicas[replica.key] = replica
        fetcher.gone.pop(replica.key, None)
        fetcher.stale.pop(replica.key, None)
        self._note_move(fetcher, replica)
        if replica.synced < replica.end:
            # Entries of its last leader, or of its own leadership, are not on disk yet.
            fetcher.unsynced[replica.key] = self._queues.token_of(replica)
        else:
            fetcher.changed.pop(replica.key, None)
            fetcher.unnamed[replica.key] = None

    def name_anew(self, replica: Replica) -> None:
        """Name a followed queue in the next request, because there is something new to report."""
        for fetcher in self._fetchers.values():
            if replica.key in fetcher.replicas and replica.key not in fetcher.unsynced:
                fetcher.changed[replica.key] = None

    def unfollow(self, replica: Replica, keep: str | None = None) -> None:
        """Stop following a queue from any leader but `keep`."""
        for leader in list(self._fetchers):
            fetcher = self._fetchers[leader]
            if leader == keep or fetcher.replicas.pop(replica.key, None) is None:
                continue
            fetcher.changed.pop(replica.key, None)
            fetcher.unnamed.pop(replica.key, None)
            fetcher.stale.pop(replica.key, None)
            fetcher.unsynced.pop(replica.key, None)
            fetcher.whole.pop(replica.key, None)
            fetcher.moving.pop(replica.key, None)
            fetcher.gone[replica.key] = None
            if not fetcher.replicas:
                self._abandon(fetcher)
                del self._fetchers[leader]

    def fenced(self, turn: BrokerTurn) -> None:
        """Ask nobody before this broker is registered again."""
        self.renew(-1)

    def learned(self, topics: Sequence[str], groups: Sequence[str], turn: BrokerTurn) -> None:
        """Reconnect to brokers at new endpoints."""
        for fetcher in list(self._fetchers.values()):
            broker = self._routes.brokers.get(fetcher.leader)
            if broker is not None and broker.endpoint != fetcher.endpoint:
                self._abandon(fetcher)
                begun = self._begin(fetcher.leader, broker.endpoint)
                begun.replicas, begun.moving = fetcher.replicas, fetcher.moving

    def note_moves(self, topics: Iterable[str]) -> None:
        """Follow the moves of changed topics."""
        for replica in (each for name in topics for each in self._queues.held(name)):
            fetcher = self._fetchers.get(replica.leader or "")
            if fetcher is not None and replica.key in fetcher.replicas:
                self._note_move(fetcher, replica)

    def _begin(self, leader: str, endpoint: str) -> ReplicaFetcher:
        fetcher = ReplicaFetcher(leader, endpoint, self._rng.getrandbits(48), self._stats)
        self._fetchers[leader] = fetcher
        return fetcher

    def _note_move(self, fetcher: ReplicaFetcher, replica: Replica) -> None:
        """Note whether this broker is getting the queue, by the metadata."""
        topic = self._routes.topics.get(replica.topic)
        if (
            topic is not None
            and topic.id == replica.topic_id
            and replica.queue < len(topic.queues)
            and is_moving(topic.queues[replica.queue], self._config.id)
        ):
            fetcher.moving[replica.key] = None
        else:
            fetcher.moving.pop(replica.key, None)

    def _abandon(self, fetcher: ReplicaFetcher) -> None:
        if fetcher.asked is not None:
            fetcher.asked.cancel()
            fetcher.asked = None
            # At the time of the last change: nothing flows in by it.
            self._budget.give_back(fetcher.reserved)
            fetcher.reserved = 0

    # ── asking ──────────────────────────────────────────────────────────────────────────────────

    def ask(self, turn: BrokerTurn) -> None:
        """Send every request that is due."""
        for fetcher in self._fetchers.values():
            if fetcher.stale:
                self._wake_stale(fetcher, turn.mono)
            if fetcher.asked is not None:
                if fetcher.curt or not (fetcher.changed or fetcher.unnamed or fetcher.gone):
                    continue
                # The leader holds a request that does not include this.
                self._abandon(fetcher)
            if not fetcher.unsynced and turn.mono >= fetcher.ask_at and self.instance_epoch >= 0:
                self._ask(fetcher, turn)

    def _wake_stale(self, fetcher: ReplicaFetcher, now: float) -> None:
        for key in [key for key, at in fetcher.stale.items() if at <= now]:
            del fetcher.stale[key]
            fetcher.gone.pop(key, None)
            fetcher.unnamed[key] = None

    def deadline(self) -> float:
        """Return when `ask` is due next."""
        wanted = float("inf")
        for fetcher in self._fetchers.values():
            if fetcher.stale:
                wanted = min(wanted, *fetcher.stale.values())
            if fetcher.asked is None and not fetcher.unsynced and self.instance_epoch >= 0:
                wanted = min(wanted, fetcher.ask_at)
        return wanted

    def _ask(self, fetcher: ReplicaFetcher, turn: BrokerTurn) -> None:
        if self._space.check(turn.mono):
            # Without disk space a follower falls behind and leaves the ISR; it returns
            # automatically.
            fetcher.ask_at = turn.mono + PAUSES[-1]
            return
        if fetcher.number < 0:
            fetcher.changed.clear()
            fetcher.unnamed = dict.fromkeys(fetcher.replicas)
            fetcher.gone.clear()
            fetcher.stale.clear()
        fetcher.number += 1
        names = [
            _position(fetcher.replicas[key], rebuilds=key not in fetcher.whole)
            for key in self._take_named(fetcher)
        ]
        # While there are more to name, the leader is not to hold the request.
        fetcher.curt = bool(fetcher.unnamed)
        wait_ms, moving_bytes = 0 if fetcher.curt else self._config.fetch_wait_ms, -1
        grace_s = GRACE * 2 ** min(fetcher.late, MOST_LATE)
        if fetcher.moving:
            moving_bytes = fetcher.reserved = self._move_room(fetcher, turn.mono)
            self._budget.take(moving_bytes, turn.mono)
            fetcher.waited.note(waits=not moving_bytes, now=turn.mono)
            if not moving_bytes:
                # The leader answers when there is room again, and the next request says so. To
                # replace this one would lose what the leader answers meanwhile.
                soon_ms = math.ceil((self._budget.due() - turn.mono) * 1000)
                wait_ms = max(YIELD_MS, min(wait_ms, soon_ms))
                fetcher.starved_until = turn.mono + wait_ms / 1000
        message = Replicate(
            0,
            wait_ms + int(grace_s * 1000),
            self._config.id,
            self.instance_epoch,
            fetcher.session,
            fetcher.number,
            wait_ms,
            self._settings.fetch_bytes,
            names,
            list(fetcher.gone),
            fetcher.heard,
            moving_bytes,
        )
        fetcher.gone.clear()
        fetcher.asked = self._links.request(
            fetcher.endpoint,
            message,
            turn,
            lambda reply, later: self._answered(fetcher, reply, later),
            turn.mono + wait_ms / 1000 + grace_s,
        )

    @staticmethod
    def _take_named(fetcher: ReplicaFetcher) -> list[QueueKey]:
        """Take the queues to name in the next request: all that changed, and some unnamed ones."""
        named = list(fetcher.changed)
        fetcher.changed.clear()
        for key in named:
            fetcher.unnamed.pop(key, None)
        more = list(islice(fetcher.unnamed, max(0, NAMED_AT_ONCE - len(named))))
        for key in more:
            del fetcher.unnamed[key]
        return named + more

    def _move_room(self, fetcher: ReplicaFetcher, now: float) -> int:
        """Return how many bytes of moves a leader may send; leaders that wait take turns.

        All wait for the same moment, and what the first one sends may use up more than there is.
        """
        room = self._budget.room(now)
        if room and not any(
            other.moving
            and other.served_at < fetcher.served_at
            and abs(other.starved_until - now) < TURN_S
            for other in self._fetchers.values()
        ):
            fetcher.served_at = now
            return room
        return 0

    # ── answers ─────────────────────────────────────────────────────────────────────────────────

    def _answered(self, fetcher: ReplicaFetcher, reply: Reply, turn: BrokerTurn) -> None:
        fetcher.asked = None
        self._budget.give_back(fetcher.reserved)
        fetcher.reserved = 0
        if self._fetchers.get(fetcher.leader) is not fetcher:
            return
        if isinstance(reply.error, TimedOut):
            # The session goes on: what the leader has learned by it is not asked of it again.
            fetcher.ask_at = turn.mono + PAUSES[min(fetcher.late, len(PAUSES) - 1)]
            fetcher.late += 1
            return
        if not isinstance(reply.message, Replicated):
            self._failed(fetcher, turn)
            return
        answers = reply.message.answers
        if sum(map(_frames, answers)) != len(reply.batches):
            self._failed(fetcher, turn)
            return
        fetcher.failures = fetcher.late = 0
        self._stats.counters["replicated_bytes.in"] += sum(map(len, reply.batches))
        fetcher.heard = fetcher.number
        fetcher.ask_at = turn.mono
        at = 0
        for answer in answers:
            frames = reply.batches[at : at + _frames(answer)]
            at += len(frames)
            replica = fetcher.replicas.get((answer.topic_id, answer.queue))
            if replica is not None and replica.key in fetcher.moving:
                size = sum(map(len, frames))
                self._budget.take(size, turn.mono)
                self._stats.count("move_bytes_in", size)
            if replica is not None:
                self._take(fetcher, replica, answer, frames, turn)

    def _failed(self, fetcher: ReplicaFetcher, turn: BrokerTurn) -> None:
        """Begin a new session after a pause; it names all queues again."""
        pause = PAUSES[min(fetcher.failures, len(PAUSES) - 1)]
        fetcher.failures += 1
        self._anew(fetcher)
        fetcher.ask_at = turn.mono + pause

    def _take(
        self,
        fetcher: ReplicaFetcher,
        replica: Replica,
        answer: QueueAnswer,
        frames: Sequence[Frame],
        turn: BrokerTurn,
    ) -> None:
        if answer.status in ("STALE", "UNKNOWN", "DAMAGED"):
            # A leader that has yet to take over thousands is not asked for all of them all the time.
            pause_s = STALE_PAUSE * (1 + len(fetcher.stale) / NAMED_AT_ONCE)
            fetcher.stale[replica.key] = turn.mono + pause_s
            return
        if answer.leader_epoch != replica.leader_epoch:
            fetcher.changed[replica.key] = None
            return
        try:
            if answer.status == "OK":
                changed = self._append(fetcher, replica, frames[: answer.frames], turn)
                self._follow_hw(replica, answer)
                if answer.copied >= 0:
                    changed |= self._take_copies(fetcher, replica, answer, frames, turn)
            elif answer.status == "CUT":
                changed = self._cut(replica, answer, turn)
            else:
                self._reset(replica, answer, turn)
                changed = True
        except (DamagedBatch, DataDamaged):
            self._stats.count("bad_entries")
            # Otherwise the leader would send the same entries again at once.
            fetcher.gone[replica.key] = None
            fetcher.stale[replica.key] = turn.mono + PAUSES[-1]
            changed = replica.end != replica.written
        if changed:
            self._queues.touch(replica)
            fetcher.unsynced[replica.key] = self._queues.token_of(replica)

    def _append(
        self,
        fetcher: ReplicaFetcher,
        replica: Replica,
        frames: Sequence[Frame],
        turn: BrokerTurn,
    ) -> bool:
        """Append the leader's entries; True if there were any.

        The first one that cannot be rebuilt ends it. The next request asks for it as a whole, so
        the same entry fails only once.
        """
        done = 0
        for frame in frames:
            entry = bytes(frame)
            lender = lender_of(entry)
            if lender is None:
                replica.append_entry(entry, turn.writes, self._queues.cache)
            elif not self._append_rebuilt(replica, entry, lender, turn):
                if replica.key in fetcher.replicas:
                    fetcher.whole[replica.key] = fetcher.changed[replica.key] = None
                break
            self._space.wrote(len(entry))
            done += 1
        else:
            if frames:
                fetcher.whole.pop(replica.key, None)
        self._stats.count("replicated_entries", done)
        return done > 0

    def _append_rebuilt(
        self, replica: Replica, short: bytes, lender: Position, turn: BrokerTurn
    ) -> bool:
        """Append a released batch whose body is that of our own parked entry (Q4: the logs agree).

        The checksum of the whole entry is verified like that of any other, so a body that is not
        the leader's is never appended. Return False if the entry cannot be rebuilt here.
        """
        try:
            entry = resolve_body(short, self._parked(replica, lender))
            replica.append_entry(entry, turn.writes, self._queues.cache)
        except DamagedEntry as error:
            self._on_damage(replica, error)
        except DamagedBatch:
            pass
        else:
            self._stats.count("rebuilt_entries")
            return True
        self._stats.count("rebuilds_failed")
        return False

    def _parked(self, replica: Replica, at: Position) -> bytes | None:
        """Return our entry at a position; None if there is none.

        Raises:
            DamagedEntry: its checksum is wrong, or the store cannot be read.
        """
        held = replica.tail.get(at)
        if held is not None:
            return held[0]
        try:
            entry = self._queues.storage.get("log", log_key(*replica.key, *at))
            if entry is not None:
                validate_batch(entry)
        except (DamagedBatch, DataDamaged) as error:
            raise DamagedEntry(error.text, at) from None
        return entry

    def _take_copies(
        self,
        fetcher: ReplicaFetcher,
        replica: Replica,
        answer: QueueAnswer,
        frames: Sequence[Frame],
        turn: BrokerTurn,
    ) -> bool:
        """Stage a page of compaction's copies; True if it was accepted."""
        if replica.compaction.lacks is None or not replica.compaction.may_stage(turn.writes):
            fetcher.changed[replica.key] = None
            return False
        copies, storage = frames[answer.frames :], self._queues.storage
        stage_copy_page(
            replica,
            storage,
            turn.writes,
            copies,
            answer.survivors,
            answer.copied,
            turn.now.wall_ms,
        )
        self._space.wrote(sum(map(len, copies)))
        self._stats.count("copies_fetched", len(copies))
        return True

    def _follow_hw(self, replica: Replica, answer: QueueAnswer) -> None:
        replica.leader_start = answer.log_start
        replica.leader_compacts = answer.compacts
        replica.leader_hw = Position(answer.hw_offset, answer.hw_side)
        if replica.raise_hw(replica.leader_hw):
            self._queues.hw_moved(replica)

    def _cut(self, replica: Replica, answer: QueueAnswer, turn: BrokerTurn) -> bool:
        leader_end = Position(answer.cut_offset, answer.cut_side)
        hw = replica.hw
        self._stats.count("cuts")
        storage = self._queues.storage
        try:
            place = replica.truncate_to_leader(answer.cut_epoch, leader_end, turn.writes, storage)
        except (DamagedBatch, DataDamaged) as error:
            self._on_damage(replica, DamagedEntry(error.text, Position(replica.start)))
            return False
        if place < hw:
            self._stats.count("cuts_below_hw")
        return True

    def _reset(self, replica: Replica, answer: QueueAnswer, turn: BrokerTurn) -> None:
        hw = replica.hw
        self._stats.count("resets")
        replica.reset(answer.state, turn.writes)
        if replica.hw < hw:
            self._stats.count("cuts_below_hw")

    def synced(self, token: int, turn: BrokerTurn) -> None:
        """Note that everything up to `token` is on disk, so that those positions may be reported."""
        for fetcher in self._fetchers.values():
            for key in [key for key, at in fetcher.unsynced.items() if at <= token]:
                del fetcher.unsynced[key]
                if key in fetcher.replicas:
                    fetcher.changed[key] = None

    def endpoints(self) -> set[str]:
        """Return the endpoints from which this broker fetches."""
        return {fetcher.endpoint for fetcher in self._fetchers.values()}

    def gets_replicas(self) -> bool:
        """Return True while moves bring this broker replicas."""
        return any(fetcher.moving for fetcher in self._fetchers.values())

    def figures(self, now: float) -> Figures:
        """Return how far the followed queues are behind their leaders, and how many of them this
        broker is getting."""
        return {name: value for step in self.figure_steps(now) for name, value in step.items()}

    def figure_steps(self, now: float) -> Iterator[Figures]:
        """Yield the same in some steps, since each queue has to be looked at."""
        moving = sum(len(fetcher.moving) for fetcher in self._fetchers.values())
        yield {"moving_queues": moving}
        yield from replication_lag(self._queues)


def replication_lag(queues: ReplicaTable) -> Iterator[Figures]:
    """Yield in some steps how far all followed queues are behind their leaders' last answers, for STATS.

    `catching_up`: queues that lack entries below the leader's HW, or whose leader has not answered
    yet in its epoch; `behind_messages` of `followed_messages` are missing.
    """
    catching_up = missing = whole = 0
    for number, replica in enumerate([*queues]):
        if number % LOOKED_PER_STEP == LOOKED_PER_STEP - 1:
            yield {}
        if replica.role != "follower":
            continue
        hw = replica.leader_hw
        catching_up += hw is None or replica.synced < hw
        if hw is not None:
            start = max(replica.leader_start, replica.start)
            missing += max(0, hw.offset - max(start, replica.synced.offset))
            whole += max(0, hw.offset - start)
    yield {
        "catching_up": catching_up,
        "behind_messages": missing,
        "followed_messages": whole,
    }


def _frames(answer: QueueAnswer) -> int:
    """Return the number of frames that belong to an answer."""
    return answer.frames + len(answer.survivors)


def _position(replica: Replica, *, rebuilds: bool) -> FollowerPosition:
    """Return a replica's position on disk (Q4)."""
    at, lacks = replica.synced, replica.compaction.lacks
    return FollowerPosition(
        replica.topic_id,
        replica.queue,
        replica.leader_epoch,
        at.offset,
        at.side,
        replica.epochs.before(at),
        None if lacks is None else (lacks, replica.start),
        rebuilds,
    )
