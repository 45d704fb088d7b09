"""What the real state answers is linearizable however answers overlap; what it never would, is not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.metadata.raft.log_commands import LogEntry, decode_result, encode_entry
from logboom.metadata.state.state_machine import StateMachine
from logboom.wire import commands
from logboom.wire.transactions import Decide, OpenApplication
from logboom.wire.view import TopicConfig
from tests.sim.cast.operator_client import told_of_decision, told_of_opening
from tests.sim.judges.linearizability import Verdict, judge
from tests.sim.judges.operations import Event, EventType

BROKERS: Final = ("a", "b", "c")
Asked: TypeAlias = tuple[str, str, int, int]
"""What, of which topic, two numbers."""
asked_of_it: Final[st.SearchStrategy[list[Asked]]] = st.lists(
    st.tuples(
        st.sampled_from(("create", "delete", "alter", "read", "cas", "allocate", "open", "decide")),
        st.sampled_from(("t", "u")),
        st.integers(1, 3),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=40,
)
noise: Final = st.lists(st.tuples(st.floats(0, 4), st.floats(0, 4)), min_size=42, max_size=42)


class OneByOne:
    """One operation after the other on the state that every name server applies."""

    def __init__(self) -> None:
        self.state = StateMachine()
        self.done: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
        self.apply(commands.NewTerm(1, "name-1", "an id", 1))
        for name in BROKERS:
            self.apply(commands.RegisterBroker(name, name, name, f"{name}:1", "z", False, 1))

    def apply(self, command: commands.AnyCommand) -> commands.CommandResult:
        """What the name servers do with a committed command."""
        return decode_result(self.state.apply(encode_entry(LogEntry(1, "", 0, 1, command))))

    def ask(self, f: str, name: str, number: int, other: int) -> None:
        """One operation, and its result."""
        place, topic = len(self.done), self.state.cluster.topics.get(name)
        setting = 1_000 + place
        config = TopicConfig(retention_bytes=setting)
        key = name
        value: dict[str, Any] = {}
        more: dict[str, Any] = {}
        if f == "create":
            result = self.apply(commands.CreateTopic(name, number, 3, config, 1))
            value, more = {"queues": number, "setting": setting}, {"id": result.value}
        elif f == "alter":
            result = self.apply(commands.AlterTopic(name, number if other else None, config, 1))
            value = {"queues": number if other else None, "setting": setting}
        elif f == "delete":
            result = self.apply(commands.DeleteTopic(name, 1))
        elif f == "allocate":
            result = self.apply(commands.AllocateProducerIds(number))
            key, value, more = "producer ids", {"count": number}, {"first": result.value}
        elif f in ("open", "decide"):
            key = f"app-{name}"
            result, value, more = self._of_transactions(f, key, number, other)
        elif f == "cas" and topic is not None:
            queue = topic.queues[0]
            isr = sorted({queue.standing.leader or "", *BROKERS[:number]})
            epochs = {b.id: b.instance_epoch for b in self.state.cluster.brokers.values()}
            members = [(member, epochs[member]) for member in isr]
            change = commands.IsrChange(topic.id, 0, queue.epoch, queue.version - other, members)
            leader = queue.standing.leader or ""
            before = sorted(queue.standing.isr) if not other else ["?"]
            value = {"expected": queue.version - other, "epoch": queue.epoch}
            value |= {"before": before, "isr": isr}
            key = f"{topic.id}/0"
            result = self.apply(commands.AlterIsr(leader, epochs[leader], [change], 1))
            assert isinstance(result.value, list)
            more = {"code": result.value[0]}
        else:
            f, result = "read", self.apply(commands.Barrier())
            more = {"id": None}
            if topic is not None:
                isrs = [(q.version, q.epoch, sorted(q.standing.isr)) for q in topic.queues]
                more = {"id": topic.id, "queues": len(topic.queues), "isr": isrs}
                more["setting"] = topic.config.retention_bytes
        answer = {"code": result.code, "version": result.version, **more}
        self.done.append((f, key, value, answer))

    def _of_transactions(
        self, f: str, app_id: str, number: int, other: int
    ) -> tuple[commands.CommandResult, dict[str, Any], dict[str, Any]]:
        """Open an application, or decide: a commit now and then, else an abort."""
        if f == "open":
            result = self.apply(OpenApplication(app_id, 1))
            return result, {}, told_of_opening(result)
        place = len(self.done)
        asked: dict[str, Any] = {
            "sequence": place // 8,
            "attempt": number,
            "commit": place % 3 == 0,
        }
        asked["epoch"] = place % 5 - 1 if other else -1
        result = self.apply(Decide(app_id, **asked, parked=[], consumed=[], time_ms=1))
        return result, asked, told_of_decision(result)

    def events(
        self, spread: Sequence[tuple[float, float]], hidden: frozenset[int] = frozenset()
    ) -> list[Event]:
        """Each asked a little earlier and answered a little later than it was done."""
        placed: list[tuple[float, Event]] = []
        for place, (f, key, value, answer) in enumerate(self.done):
            before, after = spread[place]
            process = f"p{place}"
            placed.append((place - before, Event(process, "invoke", f, key, value, 0)))
            kind: EventType = "info" if place in hidden else "ok"
            told_it = {} if place in hidden else answer
            placed.append((place + after, Event(process, kind, f, key, told_it, 0)))
        return [event for _, event in sorted(placed, key=lambda item: item[0])]


def done_in_order(asked: list[Asked]) -> OneByOne:
    """All of it on a fresh state."""
    sequence = OneByOne()
    for each in asked:
        sequence.ask(*each)
    return sequence


AT_ONCE: Final = [(0.1, 0.1)] * 42


@settings(max_examples=60, deadline=None)
@given(asked_of_it, noise, st.frozensets(st.integers(0, 39), max_size=4))
def test_what_the_state_does_is_linearizable_however_answers_overlap(
    asked: list[Asked], spread: list[tuple[float, float]], hidden: frozenset[int]
) -> None:
    verdict = judge(done_in_order(asked).events(spread, hidden))
    assert verdict == Verdict(len(asked)), str(verdict)


@settings(max_examples=60, deadline=None)
@given(asked_of_it, noise, st.data())
def test_a_read_of_what_never_was_is_found_however_answers_overlap(
    asked: list[Asked], spread: list[tuple[float, float]], data: st.DataObject
) -> None:
    sequence = done_in_order([*asked, ("create", "t", 1, 0), ("read", "t", 1, 0)])
    reads = [n for n, done in enumerate(sequence.done) if done[0] == "read" and done[3]["id"]]
    answer = sequence.done[data.draw(st.sampled_from(reads))][3]
    answer[data.draw(st.sampled_from(("id", "queues", "setting")))] += 1_000_000
    assert judge(sequence.events(spread)).broken.startswith("topic ")


@settings(max_examples=40, deadline=None)
@given(asked_of_it, noise, st.data())
def test_a_second_decision_that_is_called_the_first_is_found(
    asked: list[Asked], spread: list[tuple[float, float]], data: st.DataObject
) -> None:
    sequence = done_in_order([*asked[:38], ("decide", "t", 1, 0), ("decide", "t", 1, 0)])
    again = [n for n, done in enumerate(sequence.done) if done[3].get("when") == "again"]
    if again:
        sequence.done[data.draw(st.sampled_from(again))][3]["when"] = "first"
        assert judge(sequence.events(AT_ONCE)).broken.startswith("application ")
    else:
        assert not judge(sequence.events(spread)).broken


CODES: Final = {
    ("create", ""): "TOPIC_EXISTS",
    ("create", "TOPIC_EXISTS"): "",
    ("delete", ""): "UNKNOWN_TOPIC",
    ("delete", "UNKNOWN_TOPIC"): "",
    ("alter", ""): "UNKNOWN_TOPIC",
    ("alter", "UNKNOWN_TOPIC"): "",
}


@settings(max_examples=60, deadline=None)
@given(asked_of_it, st.data())
def test_a_wrong_answer_is_found(asked: list[Asked], data: st.DataObject) -> None:
    sequence = done_in_order([*asked, ("delete", "t", 1, 0)])
    may = [n for n, done in enumerate(sequence.done) if (done[0], done[3]["code"]) in CODES]
    f, _, _, answer = sequence.done[data.draw(st.sampled_from(may))]
    answer["code"] = CODES[f, answer["code"]]
    if f == "create":
        answer["id"] = 1_000_000
    assert judge(sequence.events(AT_ONCE)).broken != ""


def test_long_histories_take_few_steps() -> None:
    rng = random.Random(1)
    sequence = OneByOne()
    kinds = ("create", "delete", "alter", "read", "read", "cas", "allocate", "decide", "open")
    for _ in range(1_500):
        sequence.ask(rng.choice(kinds), rng.choice("tu"), rng.randint(1, 3), rng.randint(0, 1))
    spread = [(rng.uniform(0, 3), rng.uniform(0, 3)) for _ in range(1_500)]
    hidden = frozenset(rng.sample(range(1_500), 10))
    verdict = judge(sequence.events(spread, hidden), steps=200_000)
    assert verdict == Verdict(1_500), str(verdict)
