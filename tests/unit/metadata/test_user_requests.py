"""Requests of users at a name server: refused without rights, and nothing is told or changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logboom.client.admin_flows.operation_flows import MOVES_AT_ONCE
from logboom.client.send.sender import ID_BLOCK
from logboom.metadata.hidden_topics import conceal, reveal
from logboom.metadata.proposal_checks import MOVED_AT_ONCE, USERS_IDS_AT_ONCE
from logboom.metadata.raft.log_commands import AnyLogCommand
from logboom.wire.access.access_commands import AlterUser, CreateRole, SetDefaultQuota
from logboom.wire.access.access_rules import Quota
from logboom.wire.actor import PeerAddress
from logboom.wire.authorizer import MAX_TOPIC_ID
from logboom.wire.commands import (
    AllocateProducerIds,
    AlterTopic,
    AnyCommand,
    Barrier,
    CommandResult,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    NewTerm,
    RemoveBroker,
    StepDown,
)
from logboom.wire.errors import (
    Forbidden,
    InvalidRequest,
    LogboomError,
    NotLeader,
    UnknownResource,
    error_for,
)
from logboom.wire.features import COPIES_PROVEN
from logboom.wire.group_commands import AlterGroup, DeleteGroup, JoinGroup, ResetOffsets
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import (
    AccessDescribed,
    AddNameServer,
    DescribeAccess,
    DescribeGroup,
    Failure,
    GroupDescribed,
    GroupsListed,
    Heartbeat,
    KickConnection,
    ListGroups,
    Propose,
    Proposed,
    RemoveNameServer,
    Stats,
    StatsResult,
    Watch,
    WatchResult,
)
from logboom.wire.operation_commands import CancelReassign, QueueMove, Reassign
from logboom.wire.survey_messages import GroupsSurveyed, SurveyGroups
from logboom.wire.transactions import (
    ConsumedOffset,
    Decide,
    OpenApplication,
    ParkedBatches,
    TransactionOffsetCommit,
)
from logboom.wire.user_marks import is_id_of_user, mark_of
from logboom.wire.view import TopicConfig
from tests.unit.metadata.user_desk import UserDesk

SECRET = b"secret"


def created(name: str) -> CreateTopic:
    return CreateTopic(name, 1, 1, TopicConfig(), 0)


def decided(topic_id: int, *, commit: bool = True, group: str = "", queue: int = 0) -> Decide:
    """A decision on a transaction whose id its producer has made up."""
    consumed = (
        [TransactionOffsetCommit(group, "", 0, [ConsumedOffset(topic_id, queue, 0, 1, 1)])]
        if group
        else []
    )
    parked = [] if group else [ParkedBatches(topic_id, queue, [(1, 1)])]
    return Decide("%OWN%1", -1, 1, 1, commit, parked, consumed, 0)


def test_users_see_themselves_and_administrators_everybody() -> None:
    desk = UserDesk()
    desk.create_user("bob")
    for name in "zm":
        desk.propose(CreateRole(name))
    own = desk.ask("alice", DescribeAccess(1, 1_000, "alice"))
    assert isinstance(own, AccessDescribed)
    assert ([user.name for user in own.users], own.roles) == (["alice"], [])
    desk.rule("alice", "describe", "cluster", "cluster")  # which is not enough
    for name in ("", "bob", "nobody"):
        refused = desk.ask("alice", DescribeAccess(1, 1_000, name))
        assert isinstance(refused, Forbidden)
        assert refused.fields == {"verb": "admin", "kind": "cluster", "name": "cluster"}
    everything = desk.ask("root", DescribeAccess(1, 1_000))
    assert isinstance(everything, AccessDescribed)
    assert {"alice", "bob", "root"} <= {user.name for user in everything.users}
    assert [role.name for role in everything.roles] == ["m", "z"]
    other = desk.ask("root", DescribeAccess(1, 1_000, "bob"))
    assert isinstance(other, AccessDescribed)
    assert [user.name for user in other.users] == ["bob"]


@pytest.mark.parametrize(
    "command",
    [
        created("secret"),
        created("%RETRY%secret%s"),
        AlterTopic("secret", 4, None, 0),
        DeleteTopic("secret", 0),
        DeleteTopic("%DLQ%secret-group", 0),
        ElectLeader("secret", 0, None, 0),
        AlterGroup("secret-group", None, {"t": ""}, True, 0),
        AlterGroup("secret-group", GroupConfig(), None, False, 0),
        DeleteGroup("secret-group", 0, True),
        ResetOffsets("secret-group", [(1, 0, 5)], 0),
        OpenApplication("secret", 0),
        Decide("secret", -1, 1, 1, True, [], [], 0),
        decided(1, group="secret-group"),
        RemoveBroker("broker-1"),
        SetDefaultQuota(Quota(topics=1)),
        AlterUser("alice", None, ["administrator"], None, 0),
        NewTerm(9, "me", "", 0),
        StepDown("broker-1", 1, 0),
        JoinGroup("g", "m", "", "", "", {"t": ""}, False, GroupConfig(), 0, 0),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_command_without_the_right_changes_nothing_and_tells_nothing(
    command: AnyCommand,
) -> None:
    desk = UserDesk()
    desk.create_user("bob")
    before = desk.version, desk.core.cluster.clock_ms
    unknown = desk.command("alice", command)
    assert isinstance(unknown, Forbidden | UnknownResource)
    assert (desk.version, desk.core.cluster.clock_ms) == before
    desk.topic("secret")
    desk.consumers("secret-group", "secret")
    before = desk.version, desk.core.cluster.clock_ms
    known = desk.command("alice", command)
    assert isinstance(known, LogboomError)
    assert (known.code, known.text, known.fields) == (unknown.code, unknown.text, unknown.fields)
    assert (desk.version, desk.core.cluster.clock_ms) == before


def test_a_right_is_enough_for_its_command() -> None:
    desk = UserDesk()
    desk.rule("alice", "manage", "topic", "orders.*")
    desk.rule("alice", "manage", "group", "orders.*")
    desk.rule("alice", "read", "topic", "orders.*")
    done = desk.command("alice", created("orders.a"))
    assert isinstance(done, CommandResult)
    assert done.code == ""
    assert isinstance(desk.command("alice", created("payments.a")), Forbidden)
    group = AlterGroup("orders.g", None, {"orders.a": ""}, True, 0)
    assert isinstance(desk.command("alice", group), CommandResult)
    other = AlterGroup("orders.g", None, {"payments.a": ""}, True, 0)
    assert isinstance(desk.command("alice", other), Forbidden)
    for command in (Barrier(), AllocateProducerIds(1)):
        assert isinstance(desk.command("alice", command), CommandResult)


def test_an_administrator_needs_no_cluster_key() -> None:
    desk = UserDesk()
    result = desk.command("root", SetDefaultQuota(Quota(topics=7)))
    assert isinstance(result, CommandResult)
    assert result.code == ""
    assert desk.core.cluster.access.book.default_quota.topics == 7
    unknown = desk.command("root", RemoveBroker("nobody"))
    assert isinstance(unknown, CommandResult)
    assert unknown.code == "UNKNOWN_BROKER"


@pytest.mark.parametrize(
    "message",
    [
        AddNameServer(1, 1_000, "name-9", "name-9:7701", "name-9:7721"),
        RemoveNameServer(1, 1_000, "name-1"),
        Heartbeat(1, 1_000, "broker-1", 1),
        Stats(1, 1_000),
        DescribeGroup(1, 1_000, "g"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_request_without_the_right_is_refused(message: Any) -> None:
    desk = UserDesk()
    before = desk.version
    assert isinstance(desk.ask("alice", message), Forbidden | UnknownResource)
    assert desk.version == before
    assert isinstance(desk.ask("root", Stats(1, 1_000)), StatsResult)


def test_clients_ask_for_no_more_producer_ids_at_once_than_a_user_gets() -> None:
    desk = UserDesk()
    assert ID_BLOCK <= USERS_IDS_AT_ONCE
    for count, given in (
        (ID_BLOCK, True),
        (USERS_IDS_AT_ONCE, True),
        (USERS_IDS_AT_ONCE + 1, False),
    ):
        answer = desk.command("alice", AllocateProducerIds(count), "app", count)
        assert isinstance(answer, CommandResult) == given, answer


def test_users_do_not_get_each_others_results() -> None:
    desk = UserDesk()
    desk.create_user("bob")
    mine = desk.command("alice", AllocateProducerIds(10), "app", 1)
    again = desk.command("alice", AllocateProducerIds(10), "app", 1)
    theirs = desk.command("bob", AllocateProducerIds(10), "app", 1)
    open_one = desk.group.propose(AllocateProducerIds(10), "client", "app", 1)
    assert isinstance(mine, CommandResult)
    assert isinstance(theirs, CommandResult)
    assert again == mine
    assert len({mine.value, theirs.value, open_one.value}) == 3
    posing = desk.command("bob", AllocateProducerIds(10), "alice:app", 1)
    assert isinstance(posing, CommandResult)
    assert posing.value not in (mine.value, theirs.value)
    assert is_id_of_user("alice", int(str(mine.value)) + 9)
    assert is_id_of_user("bob", int(str(theirs.value)))
    assert open_one.value in range(1, 100), "nobody's: as they are counted"


def test_a_name_server_that_does_not_lead_decides_nothing_on_commands() -> None:
    desk = UserDesk(size=3, leads=False)
    desk.group.run(1.0)
    for message in (
        Propose(1, 1_000, "", 0, created("secret")),
        RemoveNameServer(1, 1_000, "name-1"),
        DescribeGroup(1, 1_000, "g"),
    ):
        assert isinstance(desk.ask("alice", message), NotLeader)


# ── topics by id ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("make", [
    lambda topic: ResetOffsets("g", [(topic, 0, 5), (topic, 1, 5)], 0),
    decided,
    lambda topic: decided(topic, commit=False),
    lambda topic: decided(topic, queue=99),
    lambda topic: decided(topic, group="g"),
    lambda topic: decided(topic, group="g", queue=99),
])  # fmt: skip
def test_a_hidden_topics_id_is_that_of_no_topic(make: Any) -> None:
    desk = UserDesk()
    desk.rule("alice", "manage", "group", "g")
    desk.rule("alice", "read", "group", "g")
    secret = desk.topic("secret")
    desk.consumers("g", "secret")
    version = desk.version
    hidden = desk.command("alice", make(secret))
    assert desk.version == version or isinstance(make(secret), ResetOffsets)
    desk.propose(DeleteTopic("secret", 0))
    desk.run(0.1)
    gone = desk.command("alice", make(secret))
    if isinstance(gone, CommandResult):
        assert isinstance(hidden, CommandResult)
        assert (hidden.code, hidden.text, hidden.fields) == (gone.code, gone.text, gone.fields)
    else:
        assert isinstance(hidden, LogboomError)
        assert (hidden.code, hidden.text) == (gone.code, gone.text)
    assert SECRET not in msgspec.msgpack.encode(str(hidden))
    assert "46116860184" not in str(hidden)


def test_a6_a_decision_commits_no_offsets_in_the_name_of_another_users_member() -> None:
    desk = UserDesk()
    desk.create_user("bob")
    topic = desk.topic("orders")
    for user in ("alice", "bob"):
        desk.rule(user, "read", "group", "g")
        desk.rule(user, "read", "topic", "orders")
    command = JoinGroup(
        "g", "m", "", "", "", {"orders": "*"}, False, GroupConfig(), 0, 0, user=mark_of("alice")
    )
    epoch = desk.group.propose(command, "broker").value
    assert isinstance(epoch, int)
    consumed = [TransactionOffsetCommit("g", "m", epoch, [ConsumedOffset(topic, 0, 0, 1, 1)])]
    decision = Decide("%OWN%1", -1, 1, 1, True, [], consumed, 0)
    error = desk.command("bob", decision)
    assert isinstance(error, Forbidden)
    assert "is that of another user" in str(error)
    hers = desk.command("alice", decision)
    assert isinstance(hers, CommandResult)
    assert hers.code == "STALE_EPOCH", "she has no queue yet"


def test_a_hidden_topics_offsets_are_not_reset() -> None:
    desk = UserDesk()
    desk.rule("alice", "manage", "group", "g")
    secret, open_one = desk.topic("secret"), desk.topic("open")
    desk.consumers("g", "secret", "open")
    desk.rule("alice", "describe", "topic", "open")
    result = desk.command("alice", ResetOffsets("g", [(secret, 0, 5), (open_one, 0, 7)], 0))
    assert isinstance(result, CommandResult)
    assert result.value == ["UNKNOWN_QUEUE", ""]
    topics = desk.core.cluster.groups.by_name["g"].topics
    assert topics[secret].committed[0] == 0
    assert topics[open_one].committed[0] == 7


def test_only_topics_that_are_seen_keep_their_ids() -> None:
    command = decided(5)
    assert conceal(command, lambda _: True) == command
    concealed = conceal(command, lambda _: False)
    assert isinstance(concealed, Decide)
    assert concealed.parked[0].topic_id == 5 + MAX_TOPIC_ID
    consumed = conceal(decided(5, group="g"), lambda _: False)
    assert isinstance(consumed, Decide)
    assert consumed.consumed[0].offsets[0].topic_id == 5 + MAX_TOPIC_ID
    other: AnyLogCommand = Barrier()
    assert conceal(Barrier(), lambda _: False) == other
    told = CommandResult(1, "X", f"id {5 + MAX_TOPIC_ID} of 17", {"a": f"{MAX_TOPIC_ID}", "b": 3})
    assert reveal(told) == CommandResult(1, "X", "id 5 of 17", {"a": "0", "b": 3})
    done = CommandResult(1, value=[str(MAX_TOPIC_ID)])
    assert reveal(done) is done


# ── what is shown ───────────────────────────────────────────────────────────────────────────────


def show(desk: UserDesk) -> None:
    """Two topics and groups, of which alice may see one each."""
    desk.topic("open")
    desk.topic("secret")
    desk.consumers("g", "open", "secret")
    desk.consumers("secret-group", "open")
    desk.rule("alice", "read", "topic", "open")
    desk.rule("alice", "read", "group", "g")


def test_a_watch_shows_what_may_be_described() -> None:
    desk = UserDesk()
    show(desk)
    for asked in (None, ["open", "secret"]):
        view = desk.view("alice", topics=asked, groups=None, decisions=True, access=True)
        assert view.full
        assert [topic.name for topic in view.topics] == ["open"]
        assert [group.name for group in view.groups] == ["g"]
        assert view.access is None
        assert SECRET not in msgspec.msgpack.encode(view)
    everything = desk.view("root", groups=None)
    assert not everything.topics, "an administrator has no other rights"
    assert not everything.groups


def test_a_change_of_a_hidden_name_wakes_nobody_and_is_not_told() -> None:
    desk = UserDesk()
    show(desk)
    desk.topic("secret-old")
    held = desk.begin("alice", Watch(1, 60_000, desk.version, None, 50_000, None))
    desk.topic("secret-new")
    desk.propose(DeleteTopic("secret-old", 0))
    desk.propose(DeleteGroup("secret-group", 0))
    desk.run(1.0)
    assert held == []
    desk.propose(DeleteTopic("open", 0))
    desk.run(0.1)
    (answer,) = held
    assert isinstance(answer, WatchResult)
    assert (answer.view.full, answer.view.deleted) == (False, ["open"])
    assert SECRET not in msgspec.msgpack.encode(answer)


def test_a_changed_right_is_answered_with_a_full_view() -> None:
    desk = UserDesk()
    show(desk)
    held = desk.begin("alice", Watch(1, 60_000, desk.version, None, 50_000, None))
    desk.rule("alice", "describe", "topic", "secret")
    desk.run(0.1)
    (answer,) = held
    assert isinstance(answer, WatchResult)
    assert answer.view.full
    assert {topic.name for topic in answer.view.topics} == {"open", "secret"}
    version = answer.view.version
    assert not desk.view("alice", version).full
    held = desk.begin("alice", Watch(1, 60_000, version, None, 50_000, None))
    desk.revoke("alice", "describe", "topic", "secret")
    desk.run(0.1)
    (answer,) = held
    assert isinstance(answer, WatchResult)
    assert answer.view.full
    assert SECRET not in msgspec.msgpack.encode(answer)


def test_another_users_rights_wake_nobody() -> None:
    desk = UserDesk()
    show(desk)
    held = desk.begin("alice", Watch(1, 60_000, desk.version, None, 50_000, None))
    desk.rule("root", "read", "topic", "open")
    desk.run(0.1)
    assert held == []


def test_a_held_watch_ends_with_the_users_key() -> None:
    desk = UserDesk()
    show(desk)
    held = desk.begin("alice", Watch(1, 60_000, desk.version, None, 50_000, None))
    desk.propose(AlterUser("alice", True, None, None, 0))
    desk.run(0.1)
    (answer,) = held
    assert isinstance(answer, Failure)
    assert answer.code == "UNAUTHENTICATED"
    desk.run(2.0)
    assert desk.core.acceptor.peer(PeerAddress("main", b"alice")) is None


def test_lists_and_descriptions_of_groups_leave_out_what_is_hidden() -> None:
    desk = UserDesk()
    show(desk)
    listed = desk.ask("alice", ListGroups(1, 1_000))
    assert isinstance(listed, GroupsListed)
    assert [(group.name, group.topics) for group in listed.groups] == [("g", ["open"])]
    described = desk.ask("alice", DescribeGroup(1, 1_000, "g"))
    assert isinstance(described, GroupDescribed)
    assert described.group.subscription == {"open": ""}
    assert {each.topic for each in described.offsets} <= {"open", "%RETRY%g"}
    surveyed = desk.ask("alice", SurveyGroups(1, 1_000))
    assert isinstance(surveyed, GroupsSurveyed)
    (survey,) = surveyed.groups
    assert (survey.summary, survey.offsets) == (listed.groups[0], described.offsets)
    assert not surveyed.more
    assert SECRET not in msgspec.msgpack.encode([listed, described, surveyed])
    hidden = desk.ask("alice", DescribeGroup(1, 1_000, "secret-group"))
    unknown = desk.ask("alice", DescribeGroup(1, 1_000, "secret-other"))
    assert (hidden.code, hidden.text.replace("group'", "other'")) == (unknown.code, unknown.text)
    desk.rule("alice", "read", "group", "secret-o*")
    really = desk.ask("alice", DescribeGroup(1, 1_000, "secret-other"))
    assert (really.code, really.text, really.fields) == (
        unknown.code,
        unknown.text,
        unknown.fields,
    )


def test_an_unknown_topic_is_answered_like_a_hidden_one() -> None:
    desk = UserDesk()
    hidden = desk.command("alice", DeleteTopic("t", 0))
    desk.rule("alice", "manage", "topic", "t")
    unknown = desk.command("alice", DeleteTopic("t", 0))
    assert isinstance(unknown, CommandResult)
    error = error_for(unknown.code, unknown.text, dict(unknown.fields))
    assert isinstance(hidden, LogboomError)
    assert (hidden.code, hidden.text, hidden.fields) == (error.code, error.text, error.fields)


def test_a_kick_is_audited_with_its_result() -> None:
    desk = UserDesk()
    desk.core.auditor.log.take()
    (answer,) = desk.begin("root", KickConnection(9, 1_000, "10.0.0.9:1"))
    assert isinstance(answer, Failure)
    told = [msgspec.json.decode(line) for line in desk.core.auditor.log.take()]
    assert [(line["request"], line["result"]) for line in told] == [
        ("kickconnection", "INVALID_ARGUMENT")
    ]


def before_proofs() -> UserDesk:
    """A cluster with a topic, whose upgrade is not finalized: older clients are about."""
    desk = UserDesk()
    desk.topic("orders")
    desk.core.cluster.features = COPIES_PROVEN - 1
    desk.core.cluster.access.book.subscriptions_at = None
    return desk


@pytest.mark.parametrize("name", ["%RETRY%orders%billing", "%DLQ%orders%billing"])
def test_brokers_create_the_topics_of_subscriptions_and_users_do_not(name: str) -> None:
    desk = UserDesk()
    desk.topic("orders")
    for kind in ("topic", "subscription"):
        for verb in ("read", "manage"):
            desk.rule("alice", verb, kind, "*")
    refused = desk.command("alice", created(name))
    assert isinstance(refused, Forbidden)
    assert "upgrade the client" in refused.text
    desk.propose(AlterUser("alice", None, None, Quota(topics=1), 0))
    for code in ("", "TOPIC_EXISTS"):
        command = CreateTopic(name, 1, 1, TopicConfig(), 0, "alice")
        assert desk.group.propose(command, "broker").code == code
    command = CreateTopic("%RETRY%orders%other", 1, 1, TopicConfig(), 0, "alice")
    assert desk.group.propose(command, "broker").code == "QUOTA_EXCEEDED"


def test_consumers_of_the_release_before_create_topics_in_the_shape_of_the_server() -> None:
    desk = before_proofs()
    desk.rule("alice", "read", "topic", "orders")
    greedy = TopicConfig(min_in_sync=1, retention_ms=-1, max_message_bytes=64 * 1024 * 1024)
    for name in ("%RETRY%orders%billing", "%DLQ%orders%billing"):
        made = desk.command("alice", CreateTopic(name, 1024, 1, greedy, 0))
        assert isinstance(made, CommandResult)
        assert made.code == ""
        topic = desk.core.cluster.topics[name]
        assert (len(topic.queues), topic.config, topic.owner) == (1, TopicConfig(), "alice")


def test_the_topics_of_a_subscription_count_against_the_quota_of_who_creates_them() -> None:
    desk = before_proofs()
    desk.rule("alice", "read", "topic", "orders")
    desk.propose(AlterUser("alice", None, None, Quota(topics=2), 0))
    for number, code in enumerate(["", "", "QUOTA_EXCEEDED"]):
        made = desk.command("alice", created(f"%RETRY%orders%s{number}"))
        assert getattr(made, "code", None) == code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("%RETRY%orders.us%billing", "UNKNOWN_TOPIC"),
        ("%RETRY%orders%", "INVALID_NAME"),
        ("%DLQ%orders%a%b", "INVALID_NAME"),
        ("%RETRY%%DLQ%orders", "INVALID_NAME"),
        ("%RETRY%", "INVALID_NAME"),
        ("%DLQ%readers", "INVALID_NAME"),
    ],
)
def test_no_other_name_of_the_system_is_created_by_a_user(name: str, code: str) -> None:
    desk = before_proofs()
    desk.consumers("readers", "orders")
    for kind in ("topic", "group"):
        for verb in ("read", "manage"):
            desk.rule("alice", verb, kind, "*")
    made = desk.command("alice", created(name))
    assert isinstance(made, LogboomError)
    assert made.code == code
    assert name not in desk.core.cluster.topics


@pytest.mark.parametrize("name", ["%DLQ%readers", "%DLQ%orders%billing"])
def test_nobody_gives_a_topic_of_the_system_more_queues(name: str) -> None:
    desk = UserDesk()
    desk.topic("orders")
    desk.consumers("readers", "orders")
    assert desk.group.propose(created(name), "broker").code == ""
    for kind in ("topic", "group", "subscription"):
        desk.rule("alice", "manage", kind, "*")
    grown = desk.command("alice", AlterTopic(name, 1024, None, 0))
    assert isinstance(grown, InvalidRequest)
    kept = desk.command("alice", AlterTopic(name, None, TopicConfig(retention_ms=-1), 0))
    assert isinstance(kept, CommandResult)
    assert (kept.code, len(desk.core.cluster.topics[name].queues)) == ("", 1)


def test_one_barrier_serves_all_requests_that_wait() -> None:
    desk = UserDesk()
    before = desk.core.raft.last_index, desk.core.stats.counters["applied"]
    asked = [Propose(each, 1_000, f"p{each}", 1, Barrier()) for each in range(1, 201)]
    answers = desk.begin_all("alice", asked, 0.1)
    assert {each.id for each in answers if isinstance(each, Proposed)} == {*range(1, 201)}
    assert desk.core.raft.last_index - before[0] <= 4
    assert desk.core.stats.counters["applied"] - before[1] <= 4
    assert not [name for name in desk.core.state.dedup.windows if name.startswith("user:alice")]


def test_a_user_moves_so_many_queues_at_once_that_a_turn_bears_them() -> None:
    desk = UserDesk()
    assert MOVES_AT_ONCE <= MOVED_AT_ONCE
    for count, taken in ((MOVED_AT_ONCE, True), (MOVED_AT_ONCE + 1, False)):
        moves = Reassign([QueueMove(1, queue, -1, ["broker-1"]) for queue in range(count)], 0)
        cancels = CancelReassign([(1, queue) for queue in range(count)], 0)
        for command in (moves, cancels):
            answer = desk.command("root", command)
            assert isinstance(answer, CommandResult) == taken, answer
            assert taken or "send them in parts" in str(answer)
