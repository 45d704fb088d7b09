"""Requests of users at a broker: without the right nothing is changed, and nothing is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from logboom.wire.access.access_rules import (
    AccessRule,
    AccessView,
    ResourceKind,
    UserKey,
    UserView,
    Verb,
    principal_of,
)
from logboom.wire.copy_receipts import SignCopies
from logboom.wire.errors import (
    Forbidden,
    GroupError,
    LogboomError,
    TransactionError,
    UnknownResource,
)
from logboom.wire.features import SUBSCRIPTION_RIGHTS
from logboom.wire.group_messages import GroupJoin, GroupStatus, GroupStatusResult, QueueStatus
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import (
    KickConnection,
    Ok,
    Produce,
    Produced,
    Pulled,
    RemoveNameServer,
    Watch,
    WatchResult,
)
from logboom.wire.parking import DelayedListed, ListDelayed
from logboom.wire.subscription_messages import (
    AlterSubscription,
    DescribeSubscriptions,
    Detach,
    MakeRetryTopics,
    Receive,
    SettleMessages,
    Subscribe,
    Subscribed,
    SubscriptionConfig,
    SubscriptionsDescribed,
)
from logboom.wire.survey_messages import QueuesSurveyed, SurveyQueues
from logboom.wire.transactions import (
    HALF,
    MADE_UP,
    AwaitDecided,
    CheckHalves,
    EndHalf,
    HalfEnded,
    HalvesToCheck,
    ListUndecided,
    TransactionId,
    UndecidedListed,
)
from logboom.wire.view import QueueView, TopicConfig, TopicView
from tests.unit.nodes.groups.group_rig import GROUP, GroupRig
from tests.unit.nodes.replica.test_parked_queue import pass_time
from tests.unit.nodes.rig import ME, Peer, Rig, batch, produce, pull
from tests.unit.nodes.transactions.transactions_rig import park_request
from tests.unit.wire.test_access_requirements import REQUEST_EXAMPLES

KEY = UserKey("laptop", "k" * 40, 0)
BOBS_KEY = UserKey("desktop", "b" * 40, 0)
SECRET = b"secret"
SHOP = TransactionId("shop", HALF, 0)
Right = tuple[Verb, ResourceKind, str]
SERVED = [message for message, needs in REQUEST_EXAMPLES if needs]


def rules(*rights: Right) -> list[AccessRule]:
    return [AccessRule(True, *right) for right in rights]


def allow(rig: Rig, *rights: Right, user: str = "alice", others: Sequence[UserView] = ()) -> None:
    """Let a user have these rights from now on, and no others."""
    book = rig.broker.routes.access
    version = max(book.version, rig.version) + 1
    view = UserView(user, [KEY], rules=rules(*rights), version=version)
    known = [each for name, each in book.users.items() if name != user]
    book.update(AccessView(True, [*known, view, *others]), version)


def changed(rig: Rig, *rights: Right) -> None:
    """Let the broker learn new rights of alice by its WATCH."""
    allow(rig, *rights)
    rig.version = rig.broker.routes.access.version
    assert rig.view is not None
    rig.publish(*rig.view.topics)


def alice(rig: Rig, name: str = "alice-1") -> Peer:
    return rig.client(name, principal_of("alice", KEY))


def alice_and_bob(rig: Rig, *rights: Right) -> tuple[Peer, Peer]:
    """Two users with the same rights."""
    bob = UserView("bob", [BOBS_KEY], rules=rules(*rights), version=rig.version + 1)
    allow(rig, *rights, others=[bob])
    return alice(rig), rig.client("bob-1", principal_of("bob", BOBS_KEY))


def leading(*rights: Right) -> tuple[Rig, Peer]:
    """A broker that leads "flights", and alice with these rights."""
    rig = Rig()
    rig.lead()
    allow(rig, *rights)
    return rig, alice(rig)


def topic(name: str, number: int, version: int) -> TopicView:
    queue = QueueView([ME], ME, 1, version, [ME], [])
    return TopicView(name, number, TopicConfig(), [queue], version)


def refused(peer: Peer, message: Any, batches: Sequence[Any] = ()) -> LogboomError:
    """The error of a request."""
    (reply,) = peer.ask(message, batches)
    peer.taken()
    assert reply.error is not None, reply.message
    return reply.error


def test_a_kick_is_audited_with_its_result_and_what_is_not_served_is_not() -> None:
    rig, client = leading(("admin", "cluster", "cluster"))
    rig.broker.auditor.log.take()
    assert refused(client, KickConnection(0, 1_000, "10.0.0.9:1")).code == "INVALID_ARGUMENT"
    assert refused(client, RemoveNameServer(0, 1_000, "name-1")).code == "UNKNOWN_TYPE"
    (line,) = map(msgspec.json.decode, rig.broker.auditor.log.take())
    assert (line["request"], line["result"]) == ("kickconnection", "INVALID_ARGUMENT")


def test_a_subscription_that_cannot_be_ended_is_audited_with_the_reason() -> None:
    rig, client = leading(("read", "topic", "flights"))
    rig.broker.auditor.log.take()
    error = refused(client, AlterSubscription(0, 1_000, "flights", 0, "heatmap", "end"))
    assert error.code == "UNKNOWN_SUBSCRIPTION"
    (line,) = map(msgspec.json.decode, rig.broker.auditor.log.take())
    assert (line["request"], line["result"]) == ("altersubscription", "UNKNOWN_SUBSCRIPTION")


@pytest.mark.parametrize("message", SERVED, ids=lambda each: type(each).__name__)
def test_a_request_without_the_right_changes_nothing(message: Any) -> None:
    rig, client = leading()
    before = rig.replica().end, len(rig.commands), rig.storage.content("parked")
    message = msgspec.structs.replace(message, id=0)
    error = refused(client, message, [batch()] if isinstance(message, Produce) else ())
    assert isinstance(error, Forbidden | UnknownResource)
    rig.settle(1.0)
    assert client.taken() == []
    after = rig.replica().end, len(rig.commands), rig.storage.content("parked")
    assert after == before


def test_rights_are_enough() -> None:
    _, client = leading(("write", "topic", "fl*"), ("read", "topic", "flights"))
    client.ask(produce(), [batch()])
    assert isinstance(client.answer(), Produced)
    client.ask(pull(0))
    assert isinstance(client.answer(), Pulled)


# ── requests that wait ──────────────────────────────────────────────────────────────────────────


def test_a_held_pull_ends_with_its_right() -> None:
    rig, client = leading(("read", "topic", "flights"))
    message = pull(0)
    message.wait_ms = 50_000
    assert client.ask(message) == []
    changed(rig, ("read", "topic", "flights"), ("read", "group", "g"))
    assert client.taken() == []
    changed(rig, ("describe", "topic", "flights"))
    with pytest.raises(Forbidden):
        client.answer()
    writer = rig.client("open-1")
    writer.ask(produce(), [batch()])
    assert client.taken() == []


def test_who_waits_for_a_decision_is_refused_once_the_right_is_gone() -> None:
    rig, client = leading(("describe", "topic", "flights"))
    assert client.ask(AwaitDecided(0, 50_000, "flights", 0, 99)) == []
    changed(rig, ("describe", "topic", "flights"), ("read", "group", "g"))
    assert client.taken() == []
    changed(rig, ("read", "group", "g"))
    with pytest.raises(UnknownResource):
        client.answer()


def test_a_decision_that_comes_with_the_loss_of_the_right_is_not_told() -> None:
    rig, client = leading(("describe", "topic", "flights"))
    assert client.ask(AwaitDecided(0, 50_000, "flights", 0, 99)) == []
    allow(rig)
    rig.announce(ended=[99])
    with pytest.raises(UnknownResource):
        client.answer()


def test_a_consumer_ends_with_its_right() -> None:
    rig, client = leading(("read", "topic", "flights"))
    where = ("flights", 0, "s", "c")
    client.ask(Subscribe(0, 5_000, *where, 1, SubscriptionConfig()))
    assert isinstance(client.answer(), Subscribed)
    assert client.ask(Receive(0, 60_000, *where, 1, 1, 100, 10_000, 5_000)) == []
    changed(rig)
    with pytest.raises(UnknownResource):
        client.answer()
    writer = rig.client("open-1")
    writer.ask(produce(), [batch()])
    rig.settle()
    assert client.taken() == []


READS_FLIGHTS: Right = ("read", "topic", "flights")
DESCRIBES_FLIGHTS: Right = ("describe", "topic", "flights")
BILLING = ("flights", 0, "billing", "c")


def with_a_subscription(*rights: Right) -> tuple[Rig, Peer]:
    """A broker with the subscription "billing" of somebody else, where rules on these count."""
    rig, client = leading(*rights)
    rig.broker.routes.access.enforce_subscription_rules(1)
    rig.client("open-1").ask(Subscribe(0, 5_000, *BILLING, 1, SubscriptionConfig("shared")))
    return rig, client


def subscriptions(client: Peer) -> list[str]:
    """The names of the subscriptions that a user is shown."""
    client.ask(DescribeSubscriptions(0, 1_000, "flights", 0))
    described = client.answer()
    client.ask(SurveyQueues(0, 1_000))
    survey = client.answer()
    assert isinstance(described, SubscriptionsDescribed)
    assert isinstance(survey, QueuesSurveyed)
    names = [each.name for each in described.subscriptions]
    assert names == [cursor.name for queue in survey.queues for cursor in queue.cursors]
    return names


@pytest.mark.parametrize(
    "message",
    [
        Subscribe(0, 1_000, *BILLING, 2, SubscriptionConfig("shared"), create=False),
        Receive(0, 1_000, *BILLING, 1, 1, 100, 10_000, 0),
        SettleMessages(0, 1_000, *BILLING, 1, [(0, 1)]),
        Detach(0, 1_000, *BILLING, 1),
        MakeRetryTopics(0, 1_000, *BILLING[:3]),
        *(
            AlterSubscription(0, 1_000, *BILLING[:3], change, 1, force=True)
            for change in ("end", "reset", "skip")
        ),
        DescribeSubscriptions(0, 1_000, *BILLING[:3]),
        SignCopies(0, 1_000, "flights", 0, "flights%billing", [0]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a8_a_reader_of_a_topic_does_nothing_with_the_subscriptions_of_others(message: Any) -> None:
    rig, client = with_a_subscription(READS_FLIGHTS, ("read", "subscription", "flights/own*"))
    before, made = rig.replica().end, len(rig.commands)
    error = refused(client, message)
    assert error.code == "UNKNOWN_SUBSCRIPTION"
    assert (
        refused(client, msgspec.structs.replace(message, **other_name(message))).code == error.code
    )
    assert (rig.replica().end, len(rig.commands)) == (before, made)
    assert subscriptions(client) == []
    assert subscriptions(rig.client("open-1")) == ["billing"]


def other_name(message: Any) -> dict[str, str]:
    """What a request says that names a subscription which does not exist."""
    if isinstance(message, SignCopies):
        return {"owner": "flights%nobodys"}
    return {"subscription": "nobodys"}


def test_a_consumer_may_use_its_subscription_and_not_move_it() -> None:
    rig, client = with_a_subscription(READS_FLIGHTS, ("read", "subscription", "flights/b*"))
    client.ask(Subscribe(0, 5_000, *BILLING[:3], "d", 1, SubscriptionConfig("shared")))
    assert isinstance(client.answer(), Subscribed)
    end = AlterSubscription(0, 1_000, *BILLING[:3], "end", 0, force=True)
    error = refused(client, end)
    assert isinstance(error, Forbidden)
    assert "`logboom acl add user:alice allow manage subscription flights/billing`" in error.text
    assert subscriptions(client) == ["billing"]
    allow(rig, DESCRIBES_FLIGHTS, ("manage", "subscription", "flights/billing"))
    client.ask(end)
    assert isinstance(client.answer(), Ok)
    assert subscriptions(rig.client("open-1")) == []


def test_a_subscription_is_made_by_who_may_use_it() -> None:
    _, client = with_a_subscription(READS_FLIGHTS, ("read", "subscription", "flights/own"))
    where = ("flights", 0, "own", "c", 1)
    client.ask(Subscribe(0, 5_000, *where, SubscriptionConfig()))
    assert isinstance(client.answer(), Subscribed)
    new = Subscribe(0, 5_000, "flights", 0, "new", "c", 1, SubscriptionConfig())
    error = refused(client, new)
    assert isinstance(error, Forbidden)
    assert "`logboom acl add user:alice allow read subscription flights/new`" in error.text


def test_the_right_to_a_subscription_is_not_that_to_its_topic() -> None:
    _, client = with_a_subscription(("read", "subscription", "*"), ("manage", "subscription", "*"))
    new = Subscribe(0, 5_000, *BILLING[:3], "d", 1, SubscriptionConfig("shared"))
    assert refused(client, new).code == "UNKNOWN_TOPIC"
    end = AlterSubscription(0, 1_000, *BILLING[:3], "end", 0, force=True)
    assert refused(client, end).code == "UNKNOWN_TOPIC"


def test_a_consumer_ends_with_its_right_to_the_subscription() -> None:
    rig, client = with_a_subscription(READS_FLIGHTS, ("read", "subscription", "flights/billing"))
    where = ("flights", 0, "billing", "d")
    client.ask(Subscribe(0, 5_000, *where, 1, SubscriptionConfig("shared")))
    assert isinstance(client.answer(), Subscribed)
    assert client.ask(Receive(0, 60_000, *where, 1, 1, 100, 10_000, 5_000)) == []
    changed(rig, READS_FLIGHTS)
    with pytest.raises(UnknownResource):
        client.answer()


def test_a_consumer_without_a_rule_ends_once_there_are_rights_on_subscriptions() -> None:
    rig, client = leading(READS_FLIGHTS)
    client.ask(Subscribe(0, 5_000, *BILLING, 1, SubscriptionConfig()))
    assert isinstance(client.answer(), Subscribed)
    assert client.ask(Receive(0, 60_000, *BILLING, 1, 1, 100, 10_000, 5_000)) == []
    rig.features = SUBSCRIPTION_RIGHTS
    changed(rig, READS_FLIGHTS)
    with pytest.raises(UnknownResource):
        client.answer()


# ── metadata ────────────────────────────────────────────────────────────────────────────────────


def test_a_watch_shows_what_may_be_described() -> None:
    rig, client = leading(("write", "topic", "open"))
    rig.publish(topic("open", 2, 5), topic("secret", 3, 5))
    for asked in (None, ["open", "secret"]):
        client.ask(Watch(0, 5_000, -1, asked, 0))
        view = client.answer().view
        assert [each.name for each in view.topics] == ["open"]
        assert view.access is None
        assert SECRET not in msgspec.msgpack.encode(view)
    version = rig.version
    assert client.ask(Watch(0, 60_000, version, None, 50_000)) == []
    rig.publish()
    answer = client.answer()
    assert isinstance(answer, WatchResult)
    assert answer.view.deleted == ["open"], "the hidden topic was deleted as well"
    assert SECRET not in msgspec.msgpack.encode(answer)


def test_a_changed_right_is_answered_with_a_full_view() -> None:
    rig, client = leading(("write", "topic", "open"))
    rig.publish(topic("open", 2, 5), topic("secret", 3, 5))
    assert client.ask(Watch(0, 60_000, rig.version, None, 50_000)) == []
    changed(rig, ("write", "topic", "*"))
    view = client.answer().view
    assert view.full
    assert {each.name for each in view.topics} == {"open", "secret"}
    assert client.ask(Watch(0, 60_000, view.version, None, 50_000)) == []
    changed(rig, ("read", "topic", "open"))
    view = client.answer().view
    assert view.full
    assert [each.name for each in view.topics] == ["open"]


# ── groups ──────────────────────────────────────────────────────────────────────────────────────

READS_GROUP: Right = ("read", "group", GROUP)


def joining(*topics: str, replace: bool = False) -> GroupJoin:
    return GroupJoin(
        0, 5_000, GROUP, "m-alice", "", "", dict.fromkeys(topics, ""), replace, GroupConfig()
    )


def members(*rights: Right) -> tuple[GroupRig, Peer]:
    """A group of another member that subscribes to "flights" and "secret", and alice."""
    rig = GroupRig()
    rig.create("secret", 1)
    other = rig.client("other")
    other.ask(
        GroupJoin(
            0, 5_000, GROUP, "m-1", "", "", {"flights": "", "secret": ""}, False, GroupConfig()
        )
    )
    allow(rig, *rights)
    return rig, alice(rig)


def test_a_mismatch_names_no_hidden_topics() -> None:
    _, client = members(READS_GROUP, ("read", "topic", "flights"))
    error = refused(client, joining("flights"))
    assert isinstance(error, GroupError)
    assert error.code == "SUBSCRIPTION_MISMATCH"
    assert SECRET not in msgspec.msgpack.encode([error.text, error.fields])
    _, client = members(READS_GROUP, ("read", "topic", "flights"), ("describe", "topic", "secret"))
    error = refused(client, joining("flights"))
    assert error.fields["missing"] == "secret"


def test_who_may_not_read_all_topics_of_a_group_does_not_join_it() -> None:
    rig, client = members(READS_GROUP, ("read", "topic", "flights"))
    error = refused(client, joining("flights", "secret"))
    assert isinstance(error, Forbidden)
    assert error.fields == {"verb": "read", "kind": "topic", "name": "secret"}
    assert "m-alice" not in rig.state.cluster.groups.by_name[GROUP].members


def test_reports_about_queues_of_hidden_topics_are_left_out() -> None:
    rig, client = members(READS_GROUP, ("read", "topic", "flights"))
    ids = {name: each.id for name, each in rig.state.cluster.topics.items()}
    coordinated = rig.broker.parts.coordinator.sessions.groups[GROUP]
    coordinated.sessions["m-1"].status = [
        QueueStatus(ids[name], 0, "paused", 1) for name in ("flights", "secret")
    ]
    client.ask(GroupStatus(0, 5_000, GROUP))
    answer = client.answer()
    assert isinstance(answer, GroupStatusResult)
    assert [each.topic_id for each in answer.members[0].queues] == [ids["flights"]]


# ── transactions ────────────────────────────────────────────────────────────────────────────────

WRITES: Right = ("write", "topic", "flights")


def half(*rights: Right) -> tuple[Rig, Peer]:
    """A half message of producer group "shop" at 0.0, and alice."""
    rig = Rig()
    rig.lead()
    owner = rig.client("owner")
    owner.ask(park_request(SHOP), [batch(value=SECRET)])
    assert isinstance(owner.answer(), Produced)
    allow(rig, *rights)
    return rig, alice(rig)


def test_a_half_message_is_ended_by_those_who_may_write_its_group() -> None:
    rig, client = half(WRITES)
    message = EndHalf(0, 5_000, "flights", 0, 0, 0, True)
    hidden = refused(client, message)
    assert isinstance(hidden, TransactionError)
    never = refused(client, EndHalf(0, 5_000, "flights", 0, 0, 7, True))
    assert (hidden.code, hidden.text.replace("0.0", "0.7")) == (never.code, never.text)
    assert rig.replica().parked.undecided == 1
    allow(rig, WRITES, ("describe", "transaction", "shop"))
    assert isinstance(refused(client, message), Forbidden)
    allow(rig, WRITES, ("manage", "transaction", "shop"))
    client.ask(message)
    answer = client.answer()
    assert isinstance(answer, HalfEnded)
    assert answer.outcome == "committed"
    allow(rig, WRITES)
    over = refused(client, message)
    assert (over.code, over.text) == (hidden.code, hidden.text)


@pytest.mark.parametrize("writes", [True, False])
def test_a_half_message_is_checked_with_those_who_may_write_its_topic(*, writes: bool) -> None:
    group: Right = ("write", "transaction", "shop")
    rig, client = half(*([group, WRITES] if writes else [group, ("read", "topic", "flights")]))
    assert client.ask(CheckHalves(0, 500_000, "shop", 400_000)) == []
    pass_time(rig, 7_000)
    found = [reply.message for reply in client.taken()]
    halves = [half for each in found if isinstance(each, HalvesToCheck) for half in each.halves]
    assert bool(halves) == writes


def test_delayed_batches_are_listed_by_topic() -> None:
    rig = Rig()
    rig.lead()
    owner = rig.client("owner")
    owner.ask(
        Produce(0, 5_000, "flights", 0, "all", 0, rig.wall_ms + 60_000), [batch(value=SECRET)]
    )
    assert isinstance(owner.answer(), Produced)
    allow(rig, ("describe", "topic", "others"))
    client = alice(rig)

    def listed() -> list[str]:
        client.ask(ListDelayed(0, 5_000))
        answer = client.answer()
        assert isinstance(answer, DelayedListed)
        return [each.topic for each in answer.delayed]

    assert listed() == []
    allow(rig, ("describe", "topic", "flights"))
    assert listed() == ["flights"]


def test_undecided_batches_are_listed_by_topic_and_transaction() -> None:
    rig, client = half(("describe", "topic", "flights"))

    def listed() -> list[str]:
        client.ask(ListUndecided(0, 5_000))
        answer = client.answer()
        assert isinstance(answer, UndecidedListed)
        assert not answer.more
        return [each.transaction.app_id for each in answer.parked]

    assert listed() == []
    allow(rig, ("describe", "transaction", "shop"))
    assert listed() == []
    allow(rig, ("describe", "transaction", "shop"), ("describe", "topic", "flights"))
    assert listed() == ["shop"]


def test_ids_that_producers_invent_are_shown_whole_to_those_who_may_decide_on_them() -> None:
    rig = Rig()
    rig.lead()
    secret = f"{MADE_UP}{'0123456789abcdef' * 2}"
    owner = rig.client("owner")
    owner.ask(park_request(TransactionId(secret, 1, 1)), [batch()])
    assert isinstance(owner.answer(), Produced)
    every: Right = ("describe", "transaction", "*")
    topic: Right = ("describe", "topic", "flights")
    for rights, shown in (
        ([every], "%OWN%0123456789ab~4b39b3a7"),
        ([every, ("write", "transaction", "*")], "%OWN%0123456789ab~4b39b3a7"),
        ([("manage", "transaction", "*")], secret),
    ):
        allow(rig, topic, *rights)
        client = alice(rig)
        for app_id in ("", secret):
            client.ask(ListUndecided(0, 5_000, app_id))
            answer = client.answer()
            assert isinstance(answer, UndecidedListed)
            assert [each.transaction.app_id for each in answer.parked] == [shown]
