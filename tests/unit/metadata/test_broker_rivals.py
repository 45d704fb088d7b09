"""Two live processes with one broker id, or with one address: the second is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from logboom.metadata.config import SESSION_TIMEOUT_S
from logboom.wire.commands import RegisterBroker
from logboom.wire.errors import LogboomError
from logboom.wire.features import FEATURES
from logboom.wire.listeners import ListenerView
from logboom.wire.messages import Heartbeat, HeartbeatGranted, Propose, Proposed
from tests.unit.metadata.name_servers import Group


class Processes:
    """Processes of brokers that register at a group of name servers."""

    def __init__(self) -> None:
        self.group = Group()

    def register(
        self,
        incarnation: str,
        broker: str = "b",
        store: str = "s",
        endpoint: str = "b:1",
        former: int = -1,
        listeners: Sequence[ListenerView] = (),
    ) -> int | LogboomError:
        """A process registers; its instance epoch."""
        command = RegisterBroker(
            broker,
            store,
            incarnation,
            endpoint,
            "",
            False,
            0,
            listeners=[*listeners],
            features=FEATURES,
            former_epoch=former,
        )
        answer = self.group.ask(
            self.group.leader(), Propose(0, 5_000, incarnation, 1, command), "broker"
        )
        if isinstance(answer, LogboomError):
            assert answer.code == "BROKER_TAKEN"
            assert "\n" not in answer.text
            return answer
        assert isinstance(answer, Proposed)
        assert isinstance(answer.result.value, int)
        return answer.result.value

    def beat(self, epoch: int | LogboomError, broker: str = "b") -> str | None:
        """A process sends a heartbeat; the rival that it is told of, None: it is fenced."""
        assert isinstance(epoch, int)
        beat = Heartbeat(0, 1_000, broker, epoch, features=FEATURES)
        answer = self.group.ask(self.group.leader(), beat, "broker")
        if isinstance(answer, LogboomError):
            assert answer.code == "FENCED"
            return None
        assert isinstance(answer, HeartbeatGranted)
        return answer.rival


def test_a_second_process_with_another_folder_is_refused_while_the_first_is_alive() -> None:
    processes = Processes()
    first = processes.register("one")
    second = processes.register("two", store="other", endpoint="c:1")
    assert isinstance(second, LogboomError)
    assert "b is alive at b:1" in second.text
    assert "`id` of its own" in second.text
    # Both sides are told, and the leader's log says it.
    assert processes.beat(first) == "c:1"
    notes = processes.group.processes[processes.group.leader()].notes
    assert [each.fields["broker"] for each in notes if each.event == "broker_refused"] == ["b"]
    # The second may come in once the first is gone.
    processes.group.run(SESSION_TIMEOUT_S + 2.0)
    third = processes.register("two-2", store="other", endpoint="c:1")
    assert processes.beat(third) == ""


def test_a_refused_process_is_forgotten_after_a_while() -> None:
    processes = Processes()
    first = processes.register("one")
    processes.register("two", store="other", endpoint="c:1")
    for _ in range(20):
        processes.group.run(1.0)
        told = processes.beat(first)
    assert told == ""


@pytest.mark.parametrize(
    ("store", "endpoint"), [("s", "b:1"), ("s", "other:1"), ("an empty folder", "b:1")]
)
def test_a_broker_that_was_killed_comes_back_within_its_session(store: str, endpoint: str) -> None:
    processes = Processes()
    first = processes.register("one")
    second = processes.register("two", store=store, endpoint=endpoint)
    assert processes.beat(second) == ""
    assert processes.beat(first) is None


def test_a_registration_that_is_repeated_gets_its_first_answer() -> None:
    processes = Processes()
    first = processes.register("one")
    assert processes.register("one", former=17) == first


def test_of_two_processes_on_copies_of_a_folder_the_later_stays() -> None:
    processes = Processes()
    first = processes.register("one")
    second = processes.register("two", endpoint="c:1")
    assert processes.beat(first) is None
    assert isinstance(first, int)
    again = processes.register("one-2", former=first)
    assert isinstance(again, LogboomError)
    assert "copy of this data folder" in again.text
    assert again.fields == {"copied": 1}
    assert processes.beat(second) == "b:1"


def test_a_process_that_was_fenced_registers_again() -> None:
    processes = Processes()
    first = processes.register("one")
    processes.group.run(SESSION_TIMEOUT_S + 2.0)
    assert isinstance(first, int)
    assert processes.beat(first) is None
    second = processes.register("one-2", former=first)
    assert isinstance(second, int)
    # Nor does it take the place of itself: a heartbeat may be refused though it is still alive.
    third = processes.register("one-3", former=second)
    assert processes.beat(third) == ""


def test_a_process_that_was_away_does_not_take_the_id_from_who_came_meanwhile() -> None:
    processes = Processes()
    first = processes.register("one")
    processes.group.run(SESSION_TIMEOUT_S + 2.0)
    second = processes.register("two", store="other", endpoint="c:1")
    assert isinstance(first, int)
    again = processes.register("one-2", former=first)
    assert isinstance(again, LogboomError)
    # Its own store is another: it may come back once the other is gone.
    assert again.fields == {"copied": 0}
    assert processes.beat(second) == "b:1"


def test_nobody_advertises_the_address_of_another_live_broker() -> None:
    processes = Processes()
    first = processes.register("one", listeners=[ListenerView("outside", "public:1", "none")])
    for endpoint in ("b:1", "public:1"):
        other = processes.register("two", "c", "other", endpoint)
        assert isinstance(other, LogboomError)
        assert "the address of b" in other.text
    assert processes.beat(first) == "public:1"
    # Addresses of the dead are free: machines are replaced.
    processes.group.run(SESSION_TIMEOUT_S + 2.0)
    assert isinstance(processes.register("three", "c", "other", "b:1"), int)
