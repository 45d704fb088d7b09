"""`logboom broker`, `queue` and `balance`: what they ask the cluster for, and what they refuse."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from logboom.cli import balance_commands, broker_commands, move_wait, queue_commands
from logboom.cli.balance_commands import BalanceMoves
from logboom.cli.broker_commands import drain, have_all_copies, maintenance, remove, undrain
from logboom.cli.queue_commands import cancel, list_queues, move
from logboom.wire.errors import InvalidRequest, Refused, Unavailable
from logboom.wire.operation_messages import (
    MOVES_IN_ALL,
    BalancePlanned,
    BrokerLoad,
    ClusterDescribed,
    PlannedMove,
    QueueMoveState,
)
from logboom.wire.view import TopicView
from tests.unit.cli.test_move_plans import a_move, broker, cluster, queue, topic


class Admin:
    """The administration of a cluster, which takes note of what is changed."""

    def __init__(
        self,
        *brokers: BrokerLoad,
        topics: Sequence[TopicView] = (),
        moves: Sequence[QueueMoveState] = (),
    ) -> None:
        self.loads = list(brokers)
        self.seen = list(topics)
        self.moves = list(moves)
        self.done: list[tuple[Any, ...]] = []
        self.plans: list[BalancePlanned] = []
        self.codes: list[str] = []
        """Error codes of the next moves; those after them begin."""

    def describe_cluster(self, _: str = "") -> ClusterDescribed:
        """Return the brokers and moves."""
        return cluster(*self.loads, moves=self.moves)

    def topics(self) -> list[TopicView]:
        """Return all topics."""
        return self.seen

    def describe_topic(self, _: str) -> TopicView:
        """Return the first topic."""
        return self.seen[0]

    def brokers(self) -> list[Any]:
        """Return where the brokers listen."""
        return [SimpleNamespace(id=each.broker, endpoint="a:1") for each in self.loads]

    def name_servers(self) -> list[Any]:
        """Return none."""
        return []

    def set_broker_mode(self, name: str, mode: str) -> None:
        """Take note."""
        self.done.append(("mode", name, mode))

    def remove_broker(self, name: str, *, accept_loss: bool) -> None:
        """Take note."""
        self.done.append(("remove", name, accept_loss))

    def reassign(self, name: str, number: int, target: list[str], _: bool) -> None:
        """Take note."""
        self.done.append(("move", name, number, *target))

    def cancel_reassign(self, name: str, number: int) -> None:
        """Take note."""
        self.done.append(("cancel", name, number))

    def plan_balance(self) -> BalancePlanned:
        """Return the next plan."""
        return self.plans.pop(0)

    def carry_out(self, planned: Sequence[PlannedMove]) -> list[str]:
        """Take note, and answer each with a code, or none."""
        self.done.append(("begin", len(planned)))
        return [*self.codes, *[""] * len(planned)][: len(planned)]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look again at once."""
    monkeypatch.setattr(move_wait, "PAUSE_S", 0.0)


@pytest.fixture(name="use")
def _use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let commands find a cluster."""

    def use(admin: Admin) -> Admin:
        boom = SimpleNamespace(admin=admin)
        for module in (balance_commands, broker_commands, queue_commands):
            for name in ("open_client", "open_operator_client"):
                monkeypatch.setattr(module, name, lambda _: nullcontext(boom))
        monkeypatch.setattr(broker_commands, "known_folders", list)
        return admin

    return use


# ── broker ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["draining", "drained"])
def test_maintenance_does_not_end_a_drain(mode: str, use: Any) -> None:
    admin = use(Admin(broker("a", mode=mode), broker("b")))
    with pytest.raises(InvalidRequest, match="`logboom broker undrain a`"):
        maintenance("off", "a")
    with pytest.raises(InvalidRequest, match="leads nothing already"):
        maintenance("on", "a")
    assert admin.done == []
    maintenance("on", "b")
    assert admin.done == [("mode", "b", "maintenance")]


def test_a_wait_for_maintenance_ends_if_somebody_ends_it(use: Any) -> None:
    admin = use(Admin(broker("a"), broker("b"), topics=[topic(queue("ab"))]))
    with pytest.raises(Refused, match="its maintenance was ended"):
        maintenance("on", "a", wait=True)
    maintenance("off", "b", wait=True)
    assert admin.done[-1] == ("mode", "b", "active")


def test_a_drain_that_has_begun_is_not_begun_again(use: Any) -> None:
    admin = use(Admin(broker("a", mode="draining"), broker("b")))
    drain("a", yes=True)
    assert admin.done == []
    drain("b", yes=True)
    assert admin.done == [("mode", "b", "draining")]


def test_nothing_is_changed_unless_it_is_agreed(use: Any) -> None:
    admin = use(Admin(broker("a", alive=False), broker("b")))
    for command in (drain, remove):
        with pytest.raises(InvalidRequest, match="say --yes"):
            command("a")
    assert admin.done == []


def test_a_loss_has_to_be_accepted(use: Any, capsys: pytest.CaptureFixture[str]) -> None:
    admin = use(Admin(broker("a", alive=False), broker("b"), topics=[topic(queue("a"))]))
    with pytest.raises(InvalidRequest, match=r"ALL MESSAGES ARE LOST .* --accept-loss"):
        remove("a", yes=True)
    assert admin.done == []
    remove("a", accept_loss=True, yes=True)
    assert admin.done == [("remove", "a", True)]
    out, err = capsys.readouterr()
    assert "ALL MESSAGES ARE LOST" in out
    assert err.startswith("removed a; ")


def test_a_broker_that_a_node_does_not_know_yet_is_asked_for_again(
    use: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = use(Admin(broker("a", alive=False)))
    monkeypatch.setattr(admin, "brokers", list)
    with pytest.raises(Unavailable, match="a has just come or gone: try again"):
        remove("a", yes=True)
    assert admin.done == []


def test_only_moves_away_from_a_broker_outlive_its_undraining(
    use: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    away = a_move(adding=["b"], removing=["a"])
    admin = use(Admin(broker("a", mode="draining"), broker("b"), moves=[away]))
    undrain("a")
    assert admin.done == [("mode", "a", "active")]
    assert "1 move from it still run" in capsys.readouterr().err
    undrain("b")
    assert len(admin.done) == 1
    assert capsys.readouterr().err == "b is active already\n"


def test_copies_are_all_there_once_no_queue_moves() -> None:
    assert have_all_copies([topic(queue("ab"))])
    assert not have_all_copies([topic(queue("ab", "a"))])
    assert not have_all_copies([topic(queue("abc", adding=["c"]))])
    assert not have_all_copies([topic(queue("abc", removing=["c"]))])
    assert not have_all_copies([topic(queue("a", ""), replicas=0)])


# ── queue ───────────────────────────────────────────────────────────────────────────────────────


def test_only_a_move_is_cancelled(use: Any, capsys: pytest.CaptureFixture[str]) -> None:
    moving = topic(queue("abc", "ab", adding=["c"]), queue("ab"))
    admin = use(Admin(broker("a"), topics=[moving]))
    cancel("flights", 1)
    assert admin.done == []
    assert "is not moved" in capsys.readouterr().err
    cancel("flights", 0)
    assert admin.done == [("cancel", "flights", 0)]
    with pytest.raises(InvalidRequest, match="no queue 7"):
        cancel("flights", 7)


def test_a_move_that_ended_otherwise_is_a_failure(use: Any) -> None:
    admin = use(Admin(*map(broker, "abc"), topics=[topic(queue("ab"))]))
    with pytest.raises(Refused, match="cancelled or replaced: it is on a, b"):
        move("flights", 0, replicas="b,c", yes=True, wait=True)
    assert admin.done == [("move", "flights", 0, "b", "c")]
    move("flights", 0, replicas="b,a", yes=True, wait=True)


def test_queues_that_are_moved_are_chosen(use: Any, capsys: pytest.CaptureFixture[str]) -> None:
    admin = use(Admin(broker("a"), topics=[topic(queue("abc", "ab", adding=["c"]), queue("ab"))]))
    list_queues(moving=True)
    (_, *rows) = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in rows] == [["flights", "0"]]
    admin.seen = [topic(queue("ab"))]
    list_queues(moving=True)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "no queue is moved: `logboom balance status` says why\n")


# ── balance ─────────────────────────────────────────────────────────────────────────────────────


def plan(count: int) -> BalancePlanned:
    """A plan of so many moves."""
    moves = [PlannedMove("flights", 1, n, 1, ["a"], ["b"], 0, 1, 1) for n in range(count)]
    return BalancePlanned(0, moves, [], [], [] if moves else ["the brokers are even"])


def test_no_more_moves_begin_than_may_be_under_way() -> None:
    admin = Admin()
    boom: Any = SimpleNamespace(admin=admin)
    assert BalanceMoves(boom).begin(plan(30), 5) == MOVES_IN_ALL - 5
    assert BalanceMoves(boom).begin(plan(30), 25) == 0
    assert BalanceMoves(boom).begin(plan(0), 0) == 0
    assert [count for _, count in admin.done] == [MOVES_IN_ALL - 5, 0, 0]


def test_a_plan_of_which_nothing_begins_is_a_failure() -> None:
    admin = Admin()
    boom: Any = SimpleNamespace(admin=admin)
    admin.codes = ["STALE", "STALE"]
    with pytest.raises(Refused, match="no move has begun"):
        BalanceMoves(boom).begin(plan(2), 0)
    assert BalanceMoves(boom).begin(plan(3), 0) == 1


def test_the_next_moves_begin_once_the_last_ones_have_ended() -> None:
    admin = Admin()
    boom: Any = SimpleNamespace(admin=admin)
    moves = BalanceMoves(boom)
    admin.plans = [plan(1), plan(0)]
    moves.begin(plan(1), 0)
    foreign, ours = a_move(topic="other"), a_move(topic="flights", queue=0)
    assert not moves.ended(cluster(moves=[foreign, ours]))
    assert [each.topic for each in moves.concerned(cluster(moves=[foreign, ours]))] == ["flights"]
    assert len(admin.plans) == 2
    assert not moves.ended(cluster(moves=[foreign]))
    assert admin.done[-1] == ("begin", 1)
    assert moves.ended(cluster())
    assert moves.reasons == ["the brokers are even"]
