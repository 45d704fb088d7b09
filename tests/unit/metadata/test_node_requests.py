"""A node with its key and the cluster key does at a name server what that node does, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.wire.access.access_commands import AddRule, AddUserKey, CreateUser
from logboom.wire.access.access_rules import AccessRule, node_user
from logboom.wire.authenticator import REFUSED
from logboom.wire.backup_messages import ReadState
from logboom.wire.commands import (
    AlterTopic,
    CommandResult,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    RemoveBroker,
    StepDown,
)
from logboom.wire.errors import Forbidden, LogboomError, Refused, Unauthenticated
from logboom.wire.group_commands import (
    CommitOffsets,
    ExpireMembers,
    JoinGroup,
    LeaveGroup,
    ReleaseQueues,
    SetStart,
)
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import (
    AddNameServer,
    DescribeAccess,
    Heartbeat,
    HeartbeatGranted,
    KickConnection,
    RaftFrame,
    RemoveNameServer,
    Stats,
    StatsResult,
    Watch,
    WatchResult,
)
from logboom.wire.transactions import AppliedDecision, Decide, ParkedBatches, ReportDecided
from logboom.wire.view import TopicConfig
from tests.unit.metadata.name_servers import Group
from tests.unit.metadata.user_desk import UserDesk, key

ALIVE = "broker-1"
OTHER = "broker-2"
LATE = "broker-3"
"""A node with a key that is not registered yet."""


class NodeDesk(UserDesk):
    """A desk with two brokers; broker-1 leads what there is, and coordinates the group `work`."""

    def __init__(self) -> None:
        super().__init__()
        for number, node in enumerate((ALIVE, OTHER, LATE, self.name), 80):
            self.propose(CreateUser(node_user(node), [key(number)], [], 0))
        self.orders = self.topic("orders")
        self.consumers("work", "orders")
        self.epochs = {ALIVE: self.core.cluster.brokers[ALIVE].instance_epoch}
        self.epochs[OTHER] = self.group.register(OTHER)

    def state(self) -> bytes:
        """All that is replicated."""
        return self.core.state.snapshot()


def joined(group: str) -> JoinGroup:
    return JoinGroup(group, "m", "", "", "", {"orders": ""}, False, GroupConfig(), 1, 0)


def retry(name: str, owner: str = "") -> CreateTopic:
    return CreateTopic(name, 1, 0, TopicConfig(), 0, owner)


COMMANDS: list[Any] = [
    CreateUser("eve", [key(99)], [], 0),
    AddRule("user:alice", AccessRule(True, "admin", "cluster", "cluster")),
    AddUserKey(node_user(ALIVE), key(99)),
    RemoveBroker(ALIVE, accept_loss=True),
    StepDown(ALIVE, 1, 0),
    retry("mine"),
    AlterTopic("orders", 4, None, 0),
    DeleteTopic("orders", 0),
    ElectLeader("orders", 0, OTHER, 0),
    joined("work"),
    LeaveGroup("work", "m", 1, [], 0),
    ReleaseQueues("work", "m", 1, [], 0),
    CommitOffsets(ALIVE, [], 0),
    ExpireMembers("work", ALIVE, 1, [], 0),
    SetStart("work", 1, [(1, 0, 5)], 0),
    retry("%RETRY%work"),
    retry("%RETRY%none"),
    retry("%DLQ%orders%s"),
    retry("%DLQ%none%s"),
    Decide("app", -1, 1, 1, False, [ParkedBatches(1, 0, [])], [], 0),
    ReportDecided(OTHER, 2, [AppliedDecision(1, 1, 0)]),
]


REQUESTS: list[Any] = [
    Heartbeat(1, 1_000, ALIVE, 1),
    DescribeAccess(1, 1_000),
    ReadState(1, 1_000),
    Stats(1, 1_000),
    AddNameServer(1, 1_000, "evil", "evil:1", "evil:2"),
    RemoveNameServer(1, 1_000, "name-1"),
    KickConnection(1, 1_000, "10.0.0.9:1"),
]


def test_a7_a_broker_proposes_nothing_for_others() -> None:
    desk = NodeDesk()
    before = desk.state()
    for command in COMMANDS:
        answer = desk.propose_as_node(OTHER, command)
        assert isinstance(answer, CommandResult | Forbidden), (command, answer)
        if isinstance(answer, CommandResult):
            about = ("NOT_LEADER", "NOT_COORDINATOR", "UNKNOWN_GROUP", "UNKNOWN_TOPIC")
            assert answer.code in about, (command, answer)
        assert desk.state() == before, command


def test_a7_a_broker_asks_nothing_that_is_not_a_brokers() -> None:
    desk = NodeDesk()
    before = desk.state()
    for message in REQUESTS:
        assert isinstance(desk.ask_as_node(OTHER, message), Forbidden), message
        assert desk.state() == before, message


def test_a_broker_does_its_own_work() -> None:
    desk = NodeDesk()
    watch = Watch(1, 1_000, -1, None, 0, None, ALIVE, True, True)
    assert isinstance(desk.ask_as_node(ALIVE, watch), WatchResult)
    beat = Heartbeat(1, 1_000, ALIVE, desk.epochs[ALIVE], features=desk.core.cluster.features)
    assert isinstance(desk.ask_as_node(ALIVE, beat), HeartbeatGranted)
    epoch = desk.core.cluster.groups.by_name["work"].coordinator_epoch
    coordinator = desk.core.cluster.groups.by_name["work"].coordinator
    assert coordinator == ALIVE
    desk.rule("alice", "read", "topic", "orders")
    desk.rule("alice", "read", "subscription", "orders/s")
    own: list[Any] = [
        JoinGroup("work", "m", "", "", "", {"orders": ""}, False, GroupConfig(), epoch, 0),
        retry("%RETRY%work"),
        retry("%DLQ%orders%s", "alice"),
        Decide("app", -1, 1, 1, False, [ParkedBatches(desk.orders, 0, [])], [], 0),
        ReportDecided(ALIVE, desk.epochs[ALIVE], [AppliedDecision(1, desk.orders, 0)]),
        StepDown(ALIVE, desk.epochs[ALIVE], 0),
    ]
    for number, command in enumerate(own, 1):
        result = desk.propose_as_node(ALIVE, command, f"{ALIVE}/one", number)
        assert isinstance(result, CommandResult), result
        assert result.code == ""


def test_a_topic_of_retries_is_on_account_of_somebody_who_may_read() -> None:
    desk = NodeDesk()
    result = desk.propose_as_node(ALIVE, retry("%DLQ%orders%s", "alice"))
    assert isinstance(result, CommandResult)
    assert result.code == "FORBIDDEN"


@pytest.mark.parametrize("owner", ["alice", "nobody"])
def test_a_claim_to_a_user_who_may_no_longer_read_or_is_made_up_is_audited_alike(
    owner: str,
) -> None:
    desk = NodeDesk()
    desk.rule("alice", "read", "topic", "orders")
    desk.rule("alice", "read", "subscription", "orders/s")
    desk.revoke("alice", "read", "subscription", "orders/s")
    desk.core.auditor.log.take()
    result = desk.propose_as_node(ALIVE, retry("%DLQ%orders%s", owner))
    assert isinstance(result, CommandResult)
    assert result.code == "FORBIDDEN"
    (line,) = desk.core.auditor.log.take()
    assert b'"event":"refused"' in line
    for name in (owner, node_user(ALIVE), "%DLQ%orders%s"):
        assert name.encode() in line


LATE_CLAIMS: list[tuple[Any, str]] = [
    (retry("%DLQ%orders%s", "alice"), "NOT_LEADER"),
    (retry("%DLQ%none%s", "alice"), "UNKNOWN_TOPIC"),
    (retry("%RETRY%work"), "NOT_COORDINATOR"),
    (retry("%RETRY%none"), "UNKNOWN_GROUP"),
    (ElectLeader("none", 0, OTHER, 0), "UNKNOWN_TOPIC"),
    (ElectLeader("orders", 0, OTHER, 0), "NOT_LEADER"),
    (Decide("app", -1, 1, 1, False, [ParkedBatches(1, 0, [])], [], 0), "NOT_LEADER"),
    (Decide("app", -1, 1, 1, False, [ParkedBatches(9, 0, [])], [], 0), "UNKNOWN_TOPIC"),
    (joined("work"), "NOT_COORDINATOR"),
]
"""What a broker says that has not yet heard of its lost leaderships, or of deleted topics."""


def test_a_broker_that_is_late_leaves_no_line_in_the_audit_log() -> None:
    desk = NodeDesk()
    desk.rule("alice", "read", "topic", "*")
    desk.rule("alice", "read", "subscription", "*")
    desk.core.auditor.log.take()
    for command, code in LATE_CLAIMS:
        result = desk.propose_as_node(OTHER, command)
        assert isinstance(result, CommandResult), result
        assert result.code == code
    assert desk.core.auditor.log.take() == []


def test_a7_a_broker_aborts_nothing_if_one_of_the_queues_is_not_there() -> None:
    desk = NodeDesk()
    own = ParkedBatches(desk.orders, 0, [])
    for other in ((999_999, 0), (desk.orders, 999), (desk.orders, -1)):
        for parked in ([own, ParkedBatches(*other, [])], [ParkedBatches(*other, []), own]):
            before = desk.state()
            answer = desk.propose_as_node(ALIVE, Decide("app", -1, 1, 1, False, parked, [], 0))
            assert getattr(answer, "code", "") == "UNKNOWN_TOPIC", other
            assert desk.state() == before


def test_a_report_on_a_topic_that_is_gone_is_taken() -> None:
    desk = NodeDesk()
    parked = [ParkedBatches(desk.orders, 0, [])]
    abort = Decide("app", -1, 1, 1, False, parked, [], 0)
    decided = desk.propose_as_node(ALIVE, abort)
    assert isinstance(decided, CommandResult)
    assert isinstance(decided.value, list)
    number = int(decided.value[1])
    desk.propose(DeleteTopic("orders", 0))
    done = [AppliedDecision(number, desk.orders, 0)]
    result = desk.propose_as_node(ALIVE, ReportDecided(ALIVE, desk.epochs[ALIVE], done))
    assert isinstance(result, CommandResult)
    assert result.code == ""


@pytest.mark.parametrize("queue", [None, (999_999, 0), (1, 999)])
def test_a7_a_broker_aborts_nothing_without_a_queue_that_it_leads(
    queue: tuple[int, int] | None,
) -> None:
    desk = NodeDesk()
    parked = [] if queue is None else [ParkedBatches(*queue, [])]
    answer = desk.propose_as_node(ALIVE, Decide("app", -1, 1, 1, False, parked, [], 0))
    assert isinstance(answer, Forbidden) or getattr(answer, "code", "") == "UNKNOWN_TOPIC"


def test_what_was_applied_before_has_its_first_result_though_the_leader_has_changed() -> None:
    desk = NodeDesk()
    epoch = desk.core.cluster.groups.by_name["work"].coordinator_epoch
    join = JoinGroup("work", "m", "", "", "", {"orders": ""}, False, GroupConfig(), epoch, 0)
    first = desk.propose_as_node(ALIVE, join, f"{ALIVE}/one", 1)
    assert isinstance(first, CommandResult)
    desk.propose_as_node(ALIVE, StepDown(ALIVE, desk.epochs[ALIVE], 0), f"{ALIVE}/one", 2)
    assert desk.core.cluster.groups.by_name["work"].coordinator == OTHER
    assert desk.propose_as_node(ALIVE, join, f"{ALIVE}/one", 1) == first
    late = desk.propose_as_node(ALIVE, join, f"{ALIVE}/one", 3)
    assert isinstance(late, CommandResult)
    assert late.code == "NOT_COORDINATOR"


def test_a7_results_are_kept_for_the_proposer_alone() -> None:
    desk = NodeDesk()
    step = StepDown(OTHER, desk.epochs[OTHER], 0)
    for proposer in (f"{ALIVE}/one", "user:alice:1", f"{OTHER}0/one"):
        error = desk.propose_as_node(OTHER, step, proposer, 1)
        assert isinstance(error, Refused)
        assert error.code == "UNAUTHENTICATED"


def test_a7_a_broker_is_no_name_server_and_a_name_server_no_broker() -> None:
    desk = NodeDesk()
    frame = RaftFrame(1, OTHER, 1, 0, 0)
    assert isinstance(desk.ask_as_node(OTHER, frame, "name-server", "raft"), Unauthenticated)
    beat = Heartbeat(1, 1_000, desk.name, 1)
    assert isinstance(desk.ask_as_node(desk.name, beat), Unauthenticated)
    assert isinstance(desk.ask_as_node(LATE, Stats(1, 1_000), "name-server"), StatsResult)
    desk.group.register(LATE)
    error = desk.ask_as_node(LATE, Stats(1, 1_000), "name-server")
    assert isinstance(error, LogboomError)
    assert error.code == "UNAUTHENTICATED"


def test_a7_the_raft_listener_takes_the_keys_of_name_servers_alone() -> None:
    desk = NodeDesk()
    core, book = desk.core, desk.core.cluster.access.book

    def verdict(user: str, listener: str) -> Any:
        return core.authenticate(book.public_keys_of(user)[0], "10.0.0.9", listener)

    for user in ("alice", "root", node_user(OTHER)):
        assert verdict(user, "main").status == "accepted"
        assert verdict(user, "raft") is REFUSED
    for node in (LATE, desk.name):
        assert verdict(node_user(node), "raft").status == "accepted"
    desk.group.register(LATE)
    assert verdict(node_user(LATE), "raft") is REFUSED


def test_a_founder_without_a_state_is_known_as_a_name_server() -> None:
    group = Group(size=3)
    core = group.core("name-2")
    assert core.authorizer.kinds_of("name-1") == ("name-server",)
    assert set(core.authorizer.kinds_of("broker-1")) == {"broker", "name-server"}
