"""Transactions under decisions that race, reports that are lost, and queues that go.

What always holds: of each sequence one attempt is published at most, whole, on every queue that is
still there; an aborted attempt never; and once all is quiet nothing is parked (SAFETY T1-T3). A
restored state goes on exactly like the one it was taken from; deltas lead to what the whole says.
The queues' leaders are small ones here: they carry out what WATCH tells them, in its order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from logboom.metadata.raft.log_commands import (
    ENTRY_FORMAT,
    AnyLogCommand,
    LogEntry,
    decode_result,
    encode_entry,
)
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.commands import CommandResult, CreateTopic, DeleteTopic
from logboom.wire.group_view import QueueKey
from logboom.wire.routes import Routes
from logboom.wire.transactions import (
    AppliedDecision,
    Decide,
    DecisionView,
    EntryPosition,
    OpenApplication,
    ParkedBatches,
    ReportDecided,
)
from logboom.wire.view import TopicConfig
from tests.thorough import examples
from tests.unit.metadata.state.states import Tables
from tests.unit.metadata.transactions.tables import values

APPS = ("app", "other")

Try: TypeAlias = tuple[str, int, int]
"""(application id, sequence, attempt)."""
TRIES = st.tuples(st.sampled_from(APPS), st.integers(0, 2), st.integers(1, 2))


@dataclass(slots=True)
class Log:
    """One queue, as its leader knows it."""

    parked: dict[EntryPosition, Try] = field(default_factory=dict)
    released: dict[EntryPosition, Try] = field(default_factory=dict)
    last: int = -1
    """Number of the decision that was carried out last."""
    closed: dict[str, int] = field(default_factory=dict)
    """Application id → highest committed sequence."""
    aborted: set[Try] = field(default_factory=set)
    next_place: int = 0

    def park(self, whose: Try) -> bool:
        """Park something, unless it is known to be decided (T1)."""
        app_id, sequence, _ = whose
        if sequence <= self.closed.get(app_id, -1) or whose in self.aborted:
            return False
        self.parked[self.next_place, 0] = whose
        self.next_place += 1
        return True

    def carry_out(self, decision: DecisionView, places: list[EntryPosition]) -> None:
        """Release and drop, as an apply below the HW does."""
        self.last = decision.number
        whose = (decision.app_id, decision.sequence, decision.attempt)
        if not decision.commit:
            self.aborted.add(whose)
            self.parked = {p: w for p, w in self.parked.items() if w != whose}
            return
        for place in places:
            self.released[place] = self.parked.pop(place)
        closed = max(decision.sequence, self.closed.get(decision.app_id, -1))
        self.closed[decision.app_id] = closed
        self.parked = {
            p: w
            for p, w in self.parked.items()
            if w[0] != decision.app_id or w[1] > decision.sequence
        }


class TransactionMachine(RuleBasedStateMachine):
    """Two applications, two topics, of which one comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables()
        self.tables.begin()
        self.tables.register("a")
        self.tables.create("t", queues=3, replicas=1)
        self.tables.create("u", queues=1, replicas=1)
        self.twin = StateMachine()
        self.twin.restore(self.tables.state.snapshot())
        self.routes = Routes()
        """As the broker knows it, some time ago or now."""
        self.near = Routes()
        """As one knows it that is told of every change."""
        self.logs: dict[QueueKey, Log] = {}
        self.epochs = dict.fromkeys(APPS, 0)
        self.owners: dict[str, str] = {}
        self.won: dict[tuple[str, int], Decide] = {}
        """(application id, sequence) → the commit that was the first."""
        self.aborted: set[Try] = set()
        self._logs()

    def apply(self, command: AnyLogCommand) -> CommandResult:
        """Apply a command here and at the twin: both answer the same."""
        entry = encode_entry(LogEntry(ENTRY_FORMAT, "", 0, 0, command))
        answer = self.tables.state.apply(entry)
        assert self.twin.apply(entry) == answer
        return decode_result(answer)

    def _logs(self) -> None:
        topics = self.tables.state.cluster.topics_by_id
        keys = {(t.id, queue.index) for t in topics.values() for queue in t.queues}
        self.logs = {key: self.logs.get(key) or Log() for key in sorted(keys)}

    @rule(app=st.sampled_from(APPS))
    def open(self, app: str) -> None:
        epoch, committed = values(self.apply(OpenApplication(app, 0)))
        self.epochs[app] += 1
        highest = max((s for a, s in self.won if a == app), default=-1)
        assert (int(epoch), int(committed)) == (self.epochs[app], highest)

    @rule(app=st.sampled_from(APPS), owner=st.sampled_from("xyz"), replaces=st.sampled_from("x "))
    def own(self, app: str, owner: str, replaces: str) -> None:
        """A query opens it: the first one owns it, until another one is told to replace it."""
        has = self.owners.get(app, owner)
        result = self.apply(OpenApplication(app, 0, owner, replaces.strip()))
        if has not in (owner, replaces):
            assert (result.code, result.fields["owner"]) == ("APPLICATION_TAKEN", has)
            return
        self.owners[app] = owner
        self.epochs[app] += 1
        assert values(result)[0] == str(self.epochs[app])

    @rule(whose=TRIES, wide=st.booleans(), data=st.data())
    def park(self, whose: Try, wide: bool, data: st.DataObject) -> None:
        """An attempt parks on all queues, or on one."""
        keys = list(self.logs)
        for key in keys if wide else [data.draw(st.sampled_from(keys))]:
            self.logs[key].park(whose)

    @rule(commit=st.booleans(), partly=st.booleans(), back=st.integers(-1, 1), data=st.data())
    def decide(self, commit: bool, partly: bool, back: int, data: st.DataObject) -> None:
        """On an attempt that has something parked or was decided, with all of it or a part."""
        known = {w for log in self.logs.values() for w in log.parked.values()}
        known |= {(app, s, w.attempt) for (app, s), w in self.won.items()} | self.aborted
        whose = data.draw(st.sampled_from(sorted(known)) if known else TRIES)
        epoch = -1 if back < 0 else max(0, self.epochs[whose[0]] - back)
        parked: list[ParkedBatches] = []
        for key, log in self.logs.items():
            mine = [place for place, of in log.parked.items() if of == whose]
            if mine and not (partly and data.draw(st.booleans())):
                parked.append(ParkedBatches(*key, data.draw(st.permutations(mine))))
        command = Decide(whose[0], epoch, *whose[1:], commit, parked, [], 0)
        self.judge(command, self.apply(command))

    def judge(self, command: Decide, result: CommandResult) -> None:
        """Hold an answer against all that were given before."""
        app, sequence = command.app_id, command.sequence
        whose = (app, sequence, command.attempt)
        closed = any(a == app and s >= sequence for a, s in self.won)
        if 0 <= command.epoch < self.epochs[app]:
            assert result.code == "FENCED"
        elif closed:
            kind, _, when = values(result)[:3]
            assert (kind, when) == ("commit", "again")
        elif not command.commit:
            kind, _, when = values(result)
            assert (kind, when) == ("abort", "again" if whose in self.aborted else "first")
            self.aborted.add(whose)
        elif whose in self.aborted:
            assert result.code == "TRANSACTION_ABORTED"
        else:
            kind, number, when = values(result)
            assert (kind, when, number == "0") == ("commit", "first", not command.parked)
            self.won[app, sequence] = command

    @rule()
    def watch(self) -> None:
        """A broker follows the name server, by what changed."""
        self._follow(self.routes)

    def _follow(self, routes: Routes) -> None:
        cluster = self.tables.state.cluster
        routes.update(view_since(cluster, routes.version, None, [], None, decisions=True))

    @rule(data=st.data(), told=st.booleans())
    def carry_out(self, data: st.DataObject, told: bool) -> None:
        """A queue's leader goes on by what it knows; its report may be lost."""
        self._carry_out(data.draw(st.sampled_from(list(self.logs))), told=told)

    def _carry_out(self, key: QueueKey, *, told: bool) -> None:
        log, done = self.logs[key], []
        for decision in self.routes.decisions.values():
            places = [p.places for p in decision.queues if (p.topic_id, p.queue) == key]
            if places:
                if decision.number > log.last:
                    log.carry_out(decision, places[0])
                done.append(AppliedDecision(decision.number, *key))
        if told and done:
            self.done(ReportDecided("a", self.tables.epochs["a"], done))

    def done(self, command: AnyLogCommand) -> None:
        """Apply a command that must not be refused."""
        result = self.apply(command)
        assert result.code == "", result.text

    @rule()
    def topic_u_comes_or_goes(self) -> None:
        if "u" in self.tables.state.cluster.topics:
            self.done(DeleteTopic("u", 0))
        else:
            self.done(CreateTopic("u", 2, 1, TopicConfig(), 0))
        self._logs()

    @rule()
    def restore(self) -> None:
        self.twin = StateMachine()
        self.twin.restore(self.tables.state.snapshot())

    @invariant()
    def only_who_won_is_published(self) -> None:
        for key, log in self.logs.items():
            for place, (app, sequence, attempt) in log.released.items():
                winner = self.won[app, sequence]
                listed = {(p.topic_id, p.queue): p.places for p in winner.parked}
                assert (winner.attempt, place in listed[key]) == (attempt, True)

    @invariant()
    def both_know_the_same(self) -> None:
        assert self.twin.snapshot() == self.tables.state.snapshot()

    @invariant()
    def deltas_lead_to_what_the_whole_says(self) -> None:
        self._follow(self.near)
        whole = view_since(self.tables.state.cluster, -1, None, [], None, decisions=True)
        table = self.tables.state.cluster.transactions
        assert [d.number for d in whole.decisions] == list(self.near.decisions)
        for decision in whole.decisions:
            known = self.near.decisions[decision.number]
            # Who is told of a queue that has reported reports again.
            assert {(p.topic_id, p.queue) for p in decision.queues} <= {
                (p.topic_id, p.queue) for p in known.queues
            }
        waiting = [p for d in whole.decisions for p in d.queues]
        assert table.waiting == len(waiting)
        assert table.named == sum(len(p.places) for p in waiting)

    def teardown(self) -> None:
        """All is carried out, what is left is proposed to be aborted: nothing is parked any more."""
        for _ in range(2):
            self.watch()
            for key in self.logs:
                self._carry_out(key, told=True)
            left = {(w, key) for key, log in self.logs.items() for w in log.parked.values()}
            for (app, sequence, attempt), key in sorted(left):
                parked = [ParkedBatches(*key, [])]
                command = Decide(app, -1, sequence, attempt, False, parked, [], 0)
                self.judge(command, self.apply(command))
        self.watch()
        for key in self.logs:
            self._carry_out(key, told=True)
        assert not any(log.parked for log in self.logs.values())
        assert self.tables.state.cluster.transactions.decisions == {}
        for winner in self.won.values():
            whose = (winner.app_id, winner.sequence, winner.attempt)
            for p in winner.parked:
                log = self.logs.get((p.topic_id, p.queue))
                assert log is None or all(log.released[place] == whose for place in p.places)
        super().teardown()


TransactionMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)
TestTransactions = TransactionMachine.TestCase
