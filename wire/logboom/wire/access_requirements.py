"""What each request and command needs: a verb on a resource, or a node behind it; pure.

A request without an entry is refused. docs/SECURITY.md prints the table, and a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from logboom.wire.access import access_commands
from logboom.wire.access.access_book import MAX_CACHED_NAME
from logboom.wire.access.access_rules import (
    CLUSTER,
    ResourceKind,
    Verb,
    resource_of_subscription,
)
from logboom.wire.backup_messages import FetchEntries, ReadState, RestoreEntries
from logboom.wire.commands import (
    AllocateProducerIds,
    AlterIsr,
    AlterTopic,
    Barrier,
    CreateTopic,
    DeleteTopic,
    DiscardLostTopic,
    ElectLeader,
    FenceBroker,
    FinishRestore,
    NewTerm,
    RegisterBroker,
    RemoveBroker,
    ReportDamage,
    ReportLosses,
    ReportRoom,
    ReportTails,
    RestoreCounters,
    RestoreDecisions,
    RestoreGroup,
    RestoreTopic,
    StepDown,
)
from logboom.wire.copy_receipts import SignCopies
from logboom.wire.group_commands import (
    AlterGroup,
    CommitOffsets,
    DeleteGroup,
    ExpireMembers,
    JoinGroup,
    LeaveGroup,
    ReleaseQueues,
    ResetOffsets,
    SetStart,
    SetTarget,
)
from logboom.wire.group_messages import (
    GroupCommit,
    GroupHeartbeat,
    GroupJoin,
    GroupLeave,
    GroupRelease,
    GroupStatus,
)
from logboom.wire.messages import (
    AddNameServer,
    DescribeAccess,
    DescribeConfig,
    DescribeGroup,
    DescribeVersions,
    FinalizeUpgrade,
    FindKey,
    Heartbeat,
    Hello,
    KickConnection,
    ListConnections,
    ListGroups,
    OffsetForTime,
    Offsets,
    Ping,
    Produce,
    Propose,
    Prove,
    Pull,
    RaftFrame,
    RemoveNameServer,
    Replicate,
    Stats,
    Watch,
)
from logboom.wire.names import DLQ_PREFIX, group_of, is_a_groups, is_reserved
from logboom.wire.operation_commands import (
    AlterSettings,
    CancelReassign,
    EndFilling,
    RaiseFeatures,
    Reassign,
    SetBrokerMode,
)
from logboom.wire.operation_messages import DescribeCluster, PlanBalance, ReportLoad
from logboom.wire.parking import ListDelayed, Recall
from logboom.wire.subscription_messages import (
    AlterSubscription,
    DescribeSubscriptions,
    Detach,
    MakeRetryTopics,
    Receive,
    SettleMessages,
    Subscribe,
)
from logboom.wire.survey_messages import FindAppendTimes, SurveyGroups, SurveyQueues
from logboom.wire.transactions import (
    MADE_UP,
    AwaitDecided,
    CheckHalves,
    CheckParked,
    Decide,
    EndHalf,
    ListUndecided,
    OpenApplication,
    ReportDecided,
)


class Requirement(NamedTuple):
    """A right that a request needs."""

    verb: Verb
    kind: ResourceKind
    name: str
    instead: Verb | None = None
    """Another verb that is enough."""
    creates: bool = False
    """The request may create what it names, so "does not exist" would be no answer to it."""


class RequestRule(NamedTuple):
    """Who may send a request, in words for the documentation, and the rights that it needs."""

    says: str
    needs: Callable[[Any], Iterable[Requirement]] | None = None
    """None: it is not for users at all. Of a long list they are found one by one, as they are decided:
    who lacks the first right has cost nothing."""


_remembered: Final = lru_cache(maxsize=4_096)(Requirement)
"""The same rights are needed again and again."""


def _need(
    verb: Verb, kind: ResourceKind, name: str, instead: Verb | None = None, *, creates: bool = False
) -> Requirement:
    if len(name) > MAX_CACHED_NAME:
        # Anybody with a key chooses names, of megabytes if it likes: they must not stay here.
        return Requirement(verb, kind, name, instead, creates)
    return _remembered(verb, kind, name, instead, creates)


_NOTHING: Final[Sequence[Requirement]] = ()
_OVER_THE_CLUSTER: Final[Sequence[Requirement]] = (_need("admin", "cluster", CLUSTER),)
_OF_THE_CLUSTER: Final[Sequence[Requirement]] = (_need("describe", "cluster", CLUSTER),)

ANYBODY: Final = RequestRule("a key", lambda _: _NOTHING)
FILTERED: Final = RequestRule("a key; shows what its user may describe", lambda _: _NOTHING)
ADMIN: Final = RequestRule("admin cluster", lambda _: _OVER_THE_CLUSTER)
DESCRIBE_CLUSTER: Final = RequestRule("describe cluster", lambda _: _OF_THE_CLUSTER)
NODES: Final = RequestRule("a node's key and the cluster key")
NOBODY: Final = RequestRule("nobody: the Raft leader makes it")
BY_COMMAND: Final = RequestRule("what its command needs", lambda _: _NOTHING)


# ── requests ────────────────────────────────────────────────────────────────────────────────────


def _topic(verb: Verb) -> RequestRule:
    return RequestRule(f"{verb} topic", lambda asked: (_need(verb, "topic", asked.topic),))


def _group(verb: Verb) -> RequestRule:
    return RequestRule(f"{verb} group", lambda asked: (_need(verb, "group", asked.group),))


def _transaction(app_id: str, instead: Verb | None = None) -> Sequence[Requirement]:
    """Return what an application id, or a producer group, needs.

    An id that a producer has invented for itself is a secret: whoever knows it may use it.
    """
    if app_id.startswith(MADE_UP):
        return ()
    return (_need("write", "transaction", app_id, instead, creates=True),)


def _produce(asked: Produce) -> Sequence[Requirement]:
    topic = _need("write", "topic", asked.topic)
    if asked.transaction is None:
        return (topic,)
    return (topic, *_transaction(asked.transaction.app_id))


def _pull(asked: Pull) -> Sequence[Requirement]:
    topic = _need("read", "topic", asked.topic)
    # The owner epoch of a group ends the pulls of its former owners.
    return (topic, _need("read", "group", asked.group)) if asked.group else (topic,)


def _sign_copies(asked: SignCopies) -> Sequence[Requirement]:
    if asked.kept and asked.topic == DLQ_PREFIX + asked.owner:
        # To send dead letters again is for whoever manages the group or subscription.
        return (_need("manage", "topic", asked.topic),)
    source, of_subscription, name = asked.owner.partition("%")
    owner = (
        _need("read", "subscription", resource_of_subscription(source, name))
        if of_subscription
        else _need("read", "group", asked.owner)
    )
    return (_need("read", "topic", asked.topic), owner)


_SubscriptionRequest: TypeAlias = (
    AlterSubscription
    | DescribeSubscriptions
    | Detach
    | MakeRetryTopics
    | Receive
    | SettleMessages
    | Subscribe
)


def _subscription(
    verb: Verb, asked: _SubscriptionRequest, *, creates: bool = False
) -> Sequence[Requirement]:
    """Return what a subscription needs: to read its topic, or to alter and see it to describe that."""
    of_topic: Verb = "read" if verb == "read" else "describe"
    resource = resource_of_subscription(asked.topic, asked.subscription)
    return (
        _need(of_topic, "topic", asked.topic),
        _need(verb, "subscription", resource, creates=creates),
    )


def _subscribe(asked: Subscribe) -> Sequence[Requirement]:
    return _subscription("read", asked, creates=asked.create)


def _describe_subscriptions(asked: DescribeSubscriptions) -> Sequence[Requirement]:
    if asked.subscription:
        return _subscription("describe", asked)
    return (_need("describe", "topic", asked.topic),)


def _recall(asked: Recall) -> Sequence[Requirement]:
    # What waits in the topics of a group or subscription is not its reader's own. Elsewhere the handler
    # adds whose it is, which only the parked batch tells.
    if is_reserved(asked.topic):
        return (_need("manage", "topic", asked.topic),)
    return (_need("write", "topic", asked.topic, "manage"),)


def _join(asked: GroupJoin) -> Iterable[Requirement]:
    group = _need("read", "group", asked.group, creates=True)
    return chain((group,), _subscribed(asked.subscription))


def _subscribed(topics: Iterable[str]) -> Iterator[Requirement]:
    # A group may subscribe to topics that do not exist yet.
    return (_need("read", "topic", topic, creates=True) for topic in topics)


def _check_parked(asked: CheckParked) -> Sequence[Requirement]:
    if asked.read_bytes > 0:
        # What is not committed is for those who write it.
        topic = _need("write", "topic", asked.topic)
        return (topic, *_transaction(asked.transaction.app_id))
    topic = _need("write", "topic", asked.topic, "manage")
    return (topic, *_transaction(asked.transaction.app_id, "manage"))


def _end_half(asked: EndHalf) -> Sequence[Requirement]:
    # Its handler adds the producer group, which only the parked message tells.
    return (_need("write", "topic", asked.topic, "manage"),)


def half_requirements(producer_group: str) -> Sequence[Requirement]:
    """Return what it needs to end a half message of a producer group, besides its topic."""
    return _transaction(producer_group, "manage")


def _check_halves(asked: CheckHalves) -> Sequence[Requirement]:
    return _transaction(asked.producer_group)


_USES_SUBSCRIPTION: Final = "read topic and read subscription"
_USES: Final = RequestRule(_USES_SUBSCRIPTION, partial(_subscription, "read"))

REQUESTS: Final[Mapping[type[Struct], RequestRule]] = {
    Hello: ANYBODY,
    Prove: ANYBODY,
    Ping: ANYBODY,
    Produce: RequestRule(
        "write topic; of a transaction also write transaction; copies for retries and dead letters "
        "need a receipt, or write topic of the original",
        _produce,
    ),
    Pull: RequestRule("read topic; with a group also read group", _pull),
    Offsets: _topic("describe"),
    OffsetForTime: _topic("describe"),
    FindKey: _topic("read"),
    SignCopies: RequestRule(
        "read topic, and read group or subscription whose copies they are; for dead letters that are "
        "sent again manage topic instead",
        _sign_copies,
    ),
    Recall: RequestRule(
        "write topic for what the user has sent; otherwise, and of retries, manage topic", _recall
    ),
    ListDelayed: FILTERED,
    Replicate: NODES,
    Watch: FILTERED,
    ListGroups: FILTERED,
    DescribeGroup: _group("describe"),
    # Its handler decides, once it knows all rules that were committed before.
    DescribeAccess: RequestRule(
        "a key; about users other than its own admin cluster", lambda _: _NOTHING
    ),
    Propose: BY_COMMAND,
    Heartbeat: NODES,
    RaftFrame: NODES,
    AddNameServer: ADMIN,
    RemoveNameServer: ADMIN,
    DescribeVersions: DESCRIBE_CLUSTER,
    FinalizeUpgrade: ADMIN,
    Stats: DESCRIBE_CLUSTER,
    ListConnections: DESCRIBE_CLUSTER,
    DescribeConfig: DESCRIBE_CLUSTER,
    KickConnection: ADMIN,
    ReportLoad: NODES,
    DescribeCluster: DESCRIBE_CLUSTER,
    PlanBalance: DESCRIBE_CLUSTER,
    GroupJoin: RequestRule("read group, and read topic for each that it subscribes to", _join),
    GroupHeartbeat: RequestRule(
        "read group, and read topic for each that the group subscribes to",
        lambda asked: (_need("read", "group", asked.group),),
    ),
    GroupRelease: _group("read"),
    GroupCommit: _group("read"),
    GroupLeave: _group("read"),
    GroupStatus: _group("describe"),
    AwaitDecided: _topic("describe"),
    CheckParked: RequestRule(
        "write topic and write transaction, or without reading batches manage instead of either",
        _check_parked,
    ),
    EndHalf: RequestRule(
        "write (or manage) topic, and write (or manage) transaction for its producer group",
        _end_half,
    ),
    CheckHalves: RequestRule(
        "write transaction for the producer group; gives messages of topics with write topic",
        _check_halves,
    ),
    ListUndecided: FILTERED,
    Subscribe: RequestRule(_USES_SUBSCRIPTION, _subscribe),
    Receive: _USES,
    SettleMessages: _USES,
    Detach: _USES,
    AlterSubscription: RequestRule(
        "describe topic and manage subscription", partial(_subscription, "manage")
    ),
    MakeRetryTopics: _USES,
    DescribeSubscriptions: RequestRule(
        "describe topic; shows the subscriptions that its user may describe",
        _describe_subscriptions,
    ),
    SurveyQueues: FILTERED,
    SurveyGroups: FILTERED,
    FindAppendTimes: FILTERED,
    # A backup holds everything, so no right on a topic is enough.
    ReadState: ADMIN,
    FetchEntries: ADMIN,
    RestoreEntries: ADMIN,
}
"""Every request → what it needs. Answers are no requests, and nobody serves them."""


# ── commands ────────────────────────────────────────────────────────────────────────────────────


def _manage_topic(command: AlterTopic | DeleteTopic) -> Sequence[Requirement]:
    return (_need("manage", "topic", command.name),)


def _create_topic(command: CreateTopic) -> Sequence[Requirement]:
    if group_of(command.name) is not None and not is_a_groups(command.name):
        # Consumers of a subscription create its topics, which follow the topic.
        return (_need("read", "topic", command.name, creates=True),)
    return (_need("manage", "topic", command.name, creates=True),)


def _alter_group(command: AlterGroup) -> Iterable[Requirement]:
    group = _need("manage", "group", command.group, creates=command.create)
    return chain((group,), _subscribed(command.subscription or ()))


def _open(command: OpenApplication) -> Sequence[Requirement]:
    return _transaction(command.app_id)


def _decide(command: Decide) -> Iterable[Requirement]:
    names = dict.fromkeys(each.group for each in command.consumed)
    groups = (_need("read", "group", each) for each in names)
    # An operator ends what others have left behind; what is published needs the right to write.
    return chain(_transaction(command.app_id, None if command.commit else "manage"), groups)


COMMANDS: Final[Mapping[type[Struct], RequestRule]] = {
    NewTerm: NOBODY,
    Barrier: ANYBODY,
    RegisterBroker: NODES,
    FenceBroker: NOBODY,
    StepDown: NODES,
    RemoveBroker: ADMIN,
    DiscardLostTopic: ADMIN,
    CreateTopic: RequestRule(
        "manage topic; of a subscription's own, below features level 2, read topic", _create_topic
    ),
    AlterTopic: RequestRule("manage topic", _manage_topic),
    DeleteTopic: RequestRule("manage topic", _manage_topic),
    AlterIsr: NODES,
    ReportTails: NODES,
    ReportLosses: NODES,
    ReportDamage: NODES,
    ReportRoom: NODES,
    AllocateProducerIds: ANYBODY,
    ElectLeader: _topic("manage"),
    JoinGroup: NODES,
    LeaveGroup: NODES,
    ExpireMembers: NODES,
    SetTarget: NOBODY,
    ReleaseQueues: NODES,
    CommitOffsets: NODES,
    SetStart: NODES,
    ResetOffsets: RequestRule(
        "manage group, and describe topic for each topic",
        lambda command: (_need("manage", "group", command.group),),
    ),
    AlterGroup: RequestRule(
        "manage group; for a subscription also read topic for each topic", _alter_group
    ),
    DeleteGroup: _group("manage"),
    OpenApplication: RequestRule("write transaction", _open),
    Decide: RequestRule(
        "write transaction, write topic for each topic, and with offsets read group and read "
        "topic; to abort, manage instead of write is enough",
        _decide,
    ),
    ReportDecided: NODES,
    access_commands.AdmitInitialUsers: NOBODY,
    access_commands.CreateUser: ADMIN,
    access_commands.AlterUser: ADMIN,
    access_commands.DeleteUser: ADMIN,
    access_commands.AddUserKey: ADMIN,
    access_commands.RemoveUserKey: ADMIN,
    access_commands.EndUserKeys: NOBODY,
    access_commands.CreateRole: ADMIN,
    access_commands.DeleteRole: ADMIN,
    access_commands.AddRule: ADMIN,
    access_commands.RemoveRule: ADMIN,
    access_commands.SetDefaultQuota: ADMIN,
    Reassign: ADMIN,
    CancelReassign: ADMIN,
    SetBrokerMode: ADMIN,
    EndFilling: NOBODY,
    AlterSettings: ADMIN,
    RaiseFeatures: NOBODY,
    RestoreCounters: ADMIN,
    RestoreTopic: ADMIN,
    RestoreGroup: ADMIN,
    RestoreDecisions: ADMIN,
    FinishRestore: ADMIN,
}
"""Every command → what the user who proposes it needs."""


def requirements_by_id(
    command: object,
) -> Iterator[tuple[int, Verb, Verb | None]]:
    """Yield (topic id, verb, verb that is enough instead) of topics that a command names by id."""
    if isinstance(command, ResetOffsets):
        for topic_id in dict.fromkeys(topic_id for topic_id, _, _ in command.offsets):
            yield topic_id, "describe", None
    elif isinstance(command, Decide):
        for topic_id in dict.fromkeys(each.topic_id for each in command.parked):
            yield topic_id, "write", None if command.commit else "manage"
        read = (each.topic_id for of in command.consumed for each in of.offsets)
        for topic_id in dict.fromkeys(read):
            yield topic_id, "read", None
