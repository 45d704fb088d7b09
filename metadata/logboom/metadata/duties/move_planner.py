"""The planning of moves at the Raft leader: what it has seen, one slice per turn, and its proposals.

Nothing of it is replicated but the moves themselves and the modes and settings that it goes by. A new
leader looks again at all of them, so a plan needs no resumption.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from logboom.metadata.planning.cluster_picture import PlannedMoveOf, PlanningRules
from logboom.metadata.planning.description import SILENT_S, ClusterDescription, MoveNotes
from logboom.metadata.planning.load_table import LoadTable, QueueKey
from logboom.metadata.planning.move_round import Attendance, BalanceRun, MoveRound
from logboom.metadata.raft.log_commands import AnyLogCommand, decode_result
from logboom.metadata.raft.raft_config import SubmitOutcome
from logboom.metadata.raft.submissions import OnResult
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables.cluster_state import Queue
from logboom.wire.actor import Instant, Note, note
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.operation_commands import (
    CancelReassign,
    EndFilling,
    QueueMove,
    Reassign,
    SetBrokerMode,
)
from logboom.wire.operation_messages import (
    BalancePlanned,
    ClusterDescribed,
    PlanBalance,
    PlannerStatus,
    ReportLoad,
)
from logboom.wire.settings import LiveSettings

ROUND_S: Final = 1.0
"""Seconds from the start of one round to that of the next."""
IDLE_ROUND_S: Final = 10.0
"""The same while nothing changes and nothing is to be done."""
REFUSED_S: Final = 30.0
"""Seconds after which a move that was refused is planned again."""
MAX_RUNS: Final = 8
"""Requests for a plan of balance that may wait."""
MAX_DESCRIPTIONS: Final = 100
"""Requests for a description that may wait."""
Planned: TypeAlias = Callable[[BalancePlanned | LogboomError], None]
Described: TypeAlias = Callable[[ClusterDescribed | LogboomError], None]
_ENDED: Final = object()


class _Asked(NamedTuple):
    """A request for a description."""

    shown: Callable[[str], bool]
    sizes_of: str
    answer: Described


class MovePlannerHost(Protocol):
    """The name server, as the planner sees it."""

    state: StateMachine
    settings: LiveSettings

    def submit(self, command: AnyLogCommand, on_result: OnResult) -> None:
        """Submit a command of this node's own to the log."""

    def log_time_ms(self, now: float) -> int:
        """Return the time of the Raft log at a monotonic time of this node."""


class MovePlanner:
    """The planner of one name server; only that of the Raft leader works."""

    def __init__(self, node: MovePlannerHost) -> None:
        self._node = node
        self.loads = LoadTable()
        self._notes = MoveNotes()
        self._stuck: dict[QueueKey, float] = {}
        """Queue whose move makes no progress → since when."""
        self._events: list[Note] = []
        """What is for the log of this turn."""
        self._died: dict[str, float] = {}
        """Dead broker → when this leader has first seen it dead."""
        self._returned: dict[str, float] = {}
        """Live broker → when this leader has seen it come back."""
        self._refused: dict[QueueKey, tuple[float, str]] = {}
        """Queue → until when its move is not planned again, and why it was refused."""
        self._status = PlannerStatus("waiting", ["it has not looked yet"], 0, "", 0.0, 0)
        self._round: MoveRound | None = None
        self._steps: Iterator[int] = iter(())
        self._runs: list[tuple[PlanBalance, Planned]] = []
        self._run: BalanceRun | None = None
        self._run_steps: Iterator[int] = iter(())
        self._asked: deque[_Asked] = deque()
        self._description: ClusterDescription | None = None
        """That of the first of these."""
        self._description_steps: Iterator[None] = iter(())
        self._described = False
        """True if the last slice was one of a description: others come next."""
        self._rounds = self._skipped = 0
        """Rounds so far; queues in which the last ones looked for balance in vain."""
        self._pending = 0
        """Proposals whose outcome is not known yet."""
        self._worked = False
        """True if this turn has done a slice."""
        self._look_at = 0.0
        self._looked_at = float("-inf")
        self._seen: tuple[int, int] = (-1, -1)
        """Versions of the metadata and of the loads that the last round went by."""
        self._now = 0.0

    def restart(self, now: float) -> None:
        """Begin anew, when a new leadership of the Raft group begins."""
        self.loads.clear()
        self._notes.clear()
        self._stuck.clear()
        self._refused.clear()
        self._died.clear()
        self._returned.clear()
        self._round = self._run = None
        self._pending = 0
        self._seen = (-1, -1)
        self._skipped = 0
        self._look_at = now + ROUND_S
        self._description = None
        asked, self._asked = self._asked, deque()
        for waiting in [answer for _, answer in self._take_runs()]:
            waiting(Unavailable("the raft leader has changed: ask again"))
        for each in asked:
            each.answer(Unavailable("the raft leader has changed: ask again"))
        self.follow(now)
        self._returned.clear()

    def follow(self, now: float) -> None:
        """Follow a change of brokers in the replicated state."""
        brokers = self._node.state.cluster.brokers
        for name, broker in brokers.items():
            if not broker.alive:
                self._died.setdefault(name, now)
                self._returned.pop(name, None)
            elif self._died.pop(name, None) is not None:
                self._returned[name] = now
        for known in (self._died, self._returned):
            for name in [each for each in known if each not in brokers]:
                del known[name]
        self.loads.keep_only(brokers)

    def wake(self, now: float) -> None:
        """Begin a turn, which may do one slice."""
        self._worked = False
        self._now = now

    def reported(self, message: ReportLoad, now: float) -> None:
        """Take a broker's report of its load."""
        self.loads.take(message, now)

    def perform(self, now: Instant) -> None:
        """Do one slice of a round, or of a plan that somebody asked for; at the end, propose."""
        if self._worked:
            return
        self._begin(now.mono)
        description = self._description
        others = self._round is not None or self._run is not None
        self._described = description is not None and not (self._described and others)
        if description is not None and self._described:
            self._worked = True
            self._describe_on(description)
        elif self._round is not None:
            self._worked = True
            if next(self._steps, None) is None:
                ended, self._round = self._round, None
                self._end(ended, now)
        elif self._run is not None:
            self._worked = True
            if next(self._run_steps, None) is None:
                run, self._run = self._run, None
                _, answer = self._runs.pop(0)
                answer(run.result)

    def take_notes(self) -> list[Note]:
        """Return what is for the log, and forget it."""
        events, self._events = self._events, []
        return events

    def deadline(self) -> float:
        """Return when `perform` is due next."""
        if self._round is not None or self._run is not None or self._runs or self._asked:
            return self._now
        return self._look_at

    def describe(self, shown: Callable[[str], bool], sizes_of: str, answer: Described) -> None:
        """Describe brokers, moves and the planner, and the sizes of one topic's queues.

        `answer` gets it some turns later.
        """
        if len(self._asked) >= MAX_DESCRIPTIONS:
            answer(Unavailable("other descriptions come first: ask again", "BUSY"))
            return
        self._asked.append(_Asked(shown, sizes_of, answer))

    def _describe_on(self, description: ClusterDescription) -> None:
        """Do one slice of a description; at the end, answer."""
        if next(self._description_steps, _ENDED) is not _ENDED:
            return
        self._description = None
        shown, sizes_of, answer = self._asked.popleft()
        cluster = self._node.state.cluster
        told = description.result(self._status, self._now)
        told.log_time_ms = self._node.log_time_ms(self._now)
        topic = cluster.topics.get(sizes_of) if shown(sizes_of) else None
        if topic is not None:
            told.sizes = [self.loads.size_bytes(queue) for queue in topic.queues]
        answer(told)

    def plan_balance(self, request: PlanBalance, answer: Planned) -> None:
        """Plan what would even out the brokers; `answer` gets it some turns later."""
        if len(self._runs) >= MAX_RUNS:
            answer(Unavailable("other plans of balance come first: ask again", "BUSY"))
            return
        self._runs.append((request, answer))

    # ── rounds ──────────────────────────────────────────────────────────────────────────────────

    def _begin(self, now: float) -> None:
        """Begin the round or the plan that is due."""
        cluster = self._node.state.cluster
        rules = rules_of(self._node.settings)
        attendance = Attendance(self._died, self._returned)
        if self._round is None and now >= self._look_at:
            self._look_at = now + ROUND_S
            if not cluster.features:
                text = "the cluster is at features level 0: `logboom cluster upgrade finalize`"
                self._status = PlannerStatus("off", [text], 0, "off", 0.0, 0)
            elif not self._pending and self._is_due(now):
                self._looked_at = now
                self._seen = (cluster.version, self.loads.version)
                refused = {key: why for key, (until, why) in self._refused.items() if until > now}
                self._refused = {key: self._refused[key] for key in refused}
                self._rounds += 1
                self._round = MoveRound(
                    cluster,
                    self.loads,
                    rules,
                    attendance,
                    refused,
                    now,
                    self._rounds,
                    self._skipped,
                )
                self._steps = self._round.steps()
        if self._description is None and self._asked:
            self._description = ClusterDescription(
                cluster, self.loads, self._notes, self._asked[0].shown
            )
            self._description_steps = self._description.steps()
        if self._run is None and self._runs:
            most = max(1, min(self._runs[0][0].most, 10_000))
            self._run = BalanceRun(cluster, self.loads, rules, attendance, most, now)
            self._run_steps = self._run.steps()

    def _is_due(self, now: float) -> bool:
        """Return True unless a round would find what the last one has found."""
        cluster = self._node.state.cluster
        return (
            self._seen != (cluster.version, self.loads.version)
            or self._status.state not in ("idle", "off")
            or now - self._looked_at >= IDLE_ROUND_S
        )

    def _end(self, ended: MoveRound, now: Instant) -> None:
        """Propose what a round has planned."""
        self._status = ended.status()
        self._skipped = ended.skipped
        self._notes.follow(self.loads, ended.picture.moving, now.mono)
        self._tell_of_stuck(ended.picture.moving, now.mono)
        time_ms = now.wall_ms
        moves = ended.moves
        if moves:
            commands = [
                QueueMove(each.queue.topic.id, each.queue.index, each.version, [*each.target])
                for each in moves
            ]
            self._propose(Reassign(commands, time_ms), partial(self._reassigned, moves))
        cancels = [(queue.topic.id, queue.index) for queue in ended.cancels]
        cancels = [key for key in cancels if key not in self._refused]
        if cancels:
            self._propose(CancelReassign(cancels, time_ms), partial(self._cancelled, cancels))
        for broker in ended.drained:
            self._propose(SetBrokerMode(broker, "drained", time_ms), self._ended)
        for broker in ended.filled:
            self._propose(EndFilling(broker), self._ended)

    def _tell_of_stuck(self, moving: list[Queue], now: float) -> None:
        """Note the moves that have got stuck, and those that make progress again."""
        stuck: dict[QueueKey, float] = {}
        for queue in moving:
            key, silent_s = (queue.topic.id, queue.index), self._notes.silent_s(queue, now)
            topic, index = queue.topic.name, queue.index
            since = self._stuck.get(key)
            if silent_s >= SILENT_S:
                stuck[key] = now - silent_s if since is None else since
                if since is None:
                    text = "`logboom queue list --moving` shows how far it is, `logboom doctor` why"
                    added, seconds = [*queue.standing.uncounted], round(silent_s)
                    self._events.append(
                        note(
                            "move_stuck",
                            topic=topic,
                            queue=index,
                            added=[*added],
                            seconds=seconds,
                            text=text,
                        )
                    )
            elif since is not None:
                seconds = round(now - since)
                self._events.append(note("move_resumed", topic=topic, queue=index, seconds=seconds))
        self._stuck = stuck

    def _propose(self, command: AnyLogCommand, on_result: OnResult) -> None:
        self._pending += 1
        self._node.submit(command, on_result)

    def _ended(self, _outcome: SubmitOutcome) -> None:
        """Note that a proposal has ended; the next round sees what has become of it."""
        self._pending = max(0, self._pending - 1)

    def _reassigned(self, moves: list[PlannedMoveOf], outcome: SubmitOutcome) -> None:
        self._ended(outcome)
        keys = [(move.queue.topic.id, move.queue.index) for move in moves]
        done = self._note_refusals(keys, outcome)
        for key, move in zip(keys, moves, strict=True):
            if key in done:
                self._notes.reasons[key] = move.reason

    def _cancelled(self, keys: list[QueueKey], outcome: SubmitOutcome) -> None:
        self._ended(outcome)
        self._note_refusals(keys, outcome)

    def _note_refusals(self, keys: list[QueueKey], outcome: SubmitOutcome) -> set[QueueKey]:
        """Note the queues whose part of a command was refused; return those that were done."""
        if not outcome.applied:
            return set()
        result = decode_result(outcome.result)
        codes = result.value if isinstance(result.value, list) else [result.code] * len(keys)
        done: set[QueueKey] = set()
        for key, code in zip(keys, codes, strict=False):
            if not code:
                done.add(key)
            elif code != "CONFLICT":
                # A conflict means only that the queue has changed since.
                self._refused[key] = (self._now + REFUSED_S, result.text or code)
        return done

    def _take_runs(self) -> list[tuple[PlanBalance, Planned]]:
        runs, self._runs = self._runs, []
        return runs


def rules_of(settings: LiveSettings) -> PlanningRules:
    """Return the rules that the settings of the cluster give."""
    return PlanningRules(
        balance_mode=settings.balance_mode,
        replace_after_s=settings.replace_after_s,
        move_bytes_per_s=settings.move_bytes_per_s,
    )
