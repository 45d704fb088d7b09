"""Checks that the Raft leader makes on a proposal before it enters the log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from logboom.metadata.raft.log_commands import level_of
from logboom.metadata.raft.raft_config import MAX_COMMAND_BYTES
from logboom.wire.acceptor import PeerSession
from logboom.wire.access.access_commands import (
    AddUserKey,
    AdmitInitialUsers,
    CreateUser,
    EndUserKeys,
)
from logboom.wire.commands import (
    AllocateProducerIds,
    AlterTopic,
    AnyCommand,
    CommandResult,
    CreateTopic,
    DiscardLostTopic,
    FenceBroker,
    NewTerm,
    RegisterBroker,
)
from logboom.wire.endpoints import endpoint_fault
from logboom.wire.errors import Forbidden, InvalidRequest, LogboomError, Refused, UnknownResource
from logboom.wire.features import COPIES_PROVEN, upgrade_text
from logboom.wire.group_commands import AlterGroup, JoinGroup, SetTarget
from logboom.wire.group_owners import strategy_fault
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import Propose
from logboom.wire.names import (
    RETRY_PREFIX,
    is_a_groups,
    is_reserved,
    subscription_of,
    unknown_topic_text,
)
from logboom.wire.operation_commands import (
    AlterSettings,
    CancelReassign,
    EndFilling,
    RaiseFeatures,
    Reassign,
)
from logboom.wire.settings import check_values, find_setting
from logboom.wire.transactions import Decide
from logboom.wire.user_marks import id_of_user, mark_of
from logboom.wire.view import TopicConfig

if TYPE_CHECKING:
    from logboom.metadata.tables.cluster_state import ClusterState, Topic
    from logboom.metadata.tables.consumer_groups import ConsumerGroups

LEADERS_OWN: Final = (
    NewTerm,
    FenceBroker,
    SetTarget,
    AdmitInitialUsers,
    EndUserKeys,
    EndFilling,
    RaiseFeatures,
)
"""Commands that nobody may propose: the Raft leader makes them itself."""
MAX_NUMBER: Final = 1 << 53
"""Upper bound of times and settings that are kept as they are told: every language has it exactly, and
can read the metadata."""
USERS_IDS_AT_ONCE: Final = 64
"""Producer ids that a user gets with one proposal (our clients ask for 16): its ids begin anew some day, and
whoever proposes must not bring that day near."""
MOVED_AT_ONCE: Final = 512
"""Queues whose moves a user begins or cancels with one proposal (our clients send 500): some 10 ms."""
MAX_PROPOSER: Final = 128
"""Maximum length of a proposer's name, in characters."""


def announced_fault(endpoints: Iterable[str]) -> str | None:
    """Return why nobody can dial what a node announces, in one line, or None.

    This is not checked when it is applied (`name_rules.applied_endpoint_fault`).
    """
    return next((fault for each in endpoints if (fault := endpoint_fault(each))), None)


def proposer_of(peer: PeerSession, message: Propose) -> str:
    """Return the name under which results are kept; "" if they are not kept.

    Clients get a prefix, so that a client cannot read the results of a node's proposals, or of
    another user's, as its own.
    """
    if message.proposer and peer.kind == "client":
        # No user's name has a colon, nor is it empty.
        return f"user:{peer.user}:{message.proposer}" if peer.user else f"client:{message.proposer}"
    return message.proposer


def command_of(peer: PeerSession, message: Propose) -> AnyCommand:
    """Return the command to propose.

    Who owns a topic is not taken from a client, nor is the shape of a topic of the system.
    """
    command = message.command
    if isinstance(command, CreateTopic) and peer.kind == "client":
        if is_reserved(command.name):
            # Whoever may read a topic may create those of its subscriptions, and no more than that.
            return CreateTopic(command.name, 1, 0, TopicConfig(), command.time_ms, peer.user)
        if command.owner != peer.user:
            return msgspec.structs.replace(command, owner=peer.user)
    if isinstance(command, AlterSettings):
        return _in_one_form(command)
    return command


def result_for(peer: PeerSession, message: Propose, result: CommandResult) -> CommandResult:
    """Return the result that a peer is told: producer ids are given to its user alone (A6)."""
    if (
        isinstance(message.command, AllocateProducerIds)
        and isinstance(result.value, int)
        and peer.user
    ):
        return msgspec.structs.replace(result, value=id_of_user(peer.user, result.value))
    return result


def _in_one_form(command: AlterSettings) -> AlterSettings:
    """Return a change of settings as it is stored; a wrong one as it is, for it is refused."""
    try:
        values = check_values(command.scope, command.values)
    except InvalidRequest:
        return command
    return msgspec.structs.replace(command, values=values)


def refuse_settings(
    command: AnyCommand, brokers: Collection[str], name_servers: Collection[str]
) -> LogboomError | None:
    """Return why a change of settings may not enter the log, or None; the nodes are those there are.

    This is not checked when it is applied: other releases have other settings.
    """
    if not isinstance(command, AlterSettings):
        return None
    scope = command.scope
    if scope and scope not in brokers and scope not in name_servers:
        # Values of a node that is gone may still be unset.
        if any(value is not None for value in command.values.values()):
            text = f"there is no node {scope!r}: `logboom cluster status` lists them"
            return UnknownResource(text, "UNKNOWN_BROKER", node=scope)
        return None
    try:
        check_values(scope, command.values)
    except InvalidRequest as error:
        return error
    for name in command.values:
        setting = find_setting(name)
        kind = "broker" if scope in brokers else "name server"
        if scope and not (setting.of_brokers if scope in brokers else setting.of_name_servers):
            return InvalidRequest(f"{scope} is a {kind}, and no {kind} goes by {name}")
    return None


def refuse_proposal(
    peer: PeerSession,
    message: Propose,
    size: int,
    cluster: ClusterState,
    *,
    current: bool,
) -> LogboomError | None:
    """Return why a command may not enter the log, or None.

    Args:
        peer: who proposes it.
        message: the proposal.
        size: bytes of its entry.
        cluster: the state of this name server.
        current: whether it contains everything that was committed before this leader's term.
    """
    command, features = message.command, cluster.features
    if isinstance(command, LEADERS_OWN):
        text = f"{type(command).__name__} is made by the raft leader alone"
        return Refused(text, "UNAUTHENTICATED")
    foreign = peer.kind != "client" and not message.proposer.startswith(f"{peer.client_id}/")
    if message.proposer and foreign and peer.principal is not None:
        # It would get the results of another node's proposals, or keep its own in their place.
        text = (
            f"{peer.client_id!r} proposes as {message.proposer[:80]!r}: nodes speak for themselves"
        )
        return Refused(text, "UNAUTHENTICATED")
    if len(message.proposer) > MAX_PROPOSER:
        return InvalidRequest(f"proposer longer than {MAX_PROPOSER} characters")
    if size > MAX_COMMAND_BYTES:
        text = f"a command of {size} bytes; at most {MAX_COMMAND_BYTES}: send it in parts"
        return InvalidRequest(text, "TOO_LARGE")
    ids = command.count if isinstance(command, AllocateProducerIds) and peer.user else 0
    if ids > USERS_IDS_AT_ONCE:
        text = f"{ids} producer ids: a user gets at most {USERS_IDS_AT_ONCE} at once"
        return InvalidRequest(text, "TOO_LARGE")
    moved = 0
    if peer.kind == "client" and isinstance(command, Reassign | CancelReassign):
        moved = len(command.moves if isinstance(command, Reassign) else command.queues)
    if moved > MOVED_AT_ONCE:
        text = f"moves of {moved} queues; at most {MOVED_AT_ONCE} at once: send them in parts"
        return InvalidRequest(text, "TOO_LARGE")
    if level_of(command) > features:
        text = (
            f"{type(command).__name__} needs features level {level_of(command)}, the cluster is at "
            f"{features}: upgrade all nodes, then `logboom cluster upgrade finalize`"
        )
        return InvalidRequest(text)
    if isinstance(command, DiscardLostTopic) and not cluster.recoveries:
        # An older name server would stop at it; one that knows of a recovery is none.
        text = "no name server ever went on alone: the name servers have lost no topic"
        return InvalidRequest(text, "UNKNOWN_TOPIC")
    if isinstance(command, RegisterBroker) and command.features < features:
        return InvalidRequest(upgrade_text(command.broker, command.features, features))
    if isinstance(command, RegisterBroker) and current:
        fault = _lost_fault(command, cluster)
        if fault is not None:
            return InvalidRequest(fault)
    if isinstance(command, RegisterBroker):
        fault = announced_fault([command.endpoint, *(each.endpoint for each in command.listeners)])
        if fault is not None:
            return InvalidRequest(f"{command.broker} advertises an address: {fault}")
    if peer.kind == "client":
        error = _system_topic_error(peer, command, cluster) or _member_error(peer, command, cluster)
        if error is not None:
            return error
    fault = _number_fault(command) or _strategy_fault(command, cluster.groups)
    return None if fault is None else InvalidRequest(fault)


def _system_topic_error(
    peer: PeerSession, command: AnyCommand, cluster: ClusterState
) -> LogboomError | None:
    """Return why a client may not create or alter a topic of retries or dead letters, or None.

    Coordinators and leaders create them. Consumers of the release before create those of their
    subscription, if the topic exists.
    """
    if not isinstance(command, CreateTopic | AlterTopic) or not is_reserved(command.name):
        return None
    name = command.name
    if isinstance(command, AlterTopic):
        if command.queues is not None and not name.startswith(RETRY_PREFIX):
            text = f"the number of queues of {name!r} is the system's: alter its settings alone"
            return InvalidRequest(text)
        allowed = not name.startswith(RETRY_PREFIX)
    else:
        source = subscription_of(name)
        if source is not None and peer.user and cluster.features >= COPIES_PROVEN:
            return Forbidden(
                f"brokers create {name!r} for the consumers of subscription {source[1]!r} "
                "(MAKERETRYTOPICS): upgrade the client",
                verb="manage",
                kind="topic",
                name=name,
            )
        allowed = source is not None
        if source is not None and source[0] not in cluster.topics:
            text = unknown_topic_text(source[0])
            return UnknownResource(text, "UNKNOWN_TOPIC", topic=source[0])
    if allowed:
        return None
    text = f"topic name {name!r} is not allowed: %RETRY% and %DLQ% are the system's"
    return InvalidRequest(text, "INVALID_NAME")


def _member_error(
    peer: PeerSession, command: AnyCommand, cluster: ClusterState
) -> LogboomError | None:
    """Return why a client may not commit offsets with a decision, or None: the member is another's."""
    for each in command.consumed if isinstance(command, Decide) else ():
        group = cluster.groups.by_name.get(each.group)
        member = None if group is None else group.members.get(each.member)
        if member is not None and member.is_anothers(mark_of(peer.user)):
            text = f"member {each.member!r} of group {each.group!r} is that of another user: "
            return Forbidden(
                f"{text}commit with a consumer of your own",
                verb="read",
                kind="group",
                name=each.group,
            )
    return None


def refuse_message_size(
    command: AnyCommand, topics: Mapping[str, Topic], accepted: Mapping[str, int]
) -> LogboomError | None:
    """Return why a topic's messages would be too large for a broker, or None.

    Args:
        command: what is proposed.
        topics: the topics that exist.
        accepted: live broker → `max_request_bytes` of its last heartbeat; 0 if it does not say.
    """
    if not isinstance(command, CreateTopic | AlterTopic) or is_a_groups(command.name):
        # The topics of groups take whatever their sources took.
        return None
    wanted = command.config.max_message_bytes if command.config is not None else 0
    known = topics.get(command.name)
    if known is not None and known.config.max_message_bytes == wanted:
        return None  # Something else is being changed.
    for broker, limit in sorted(accepted.items()):
        if 0 < limit < wanted:
            text = (
                f"max_message_bytes {wanted}: {broker} accepts requests of at most {limit} bytes; "
                f"give {limit} or less, or raise max_request_bytes of all brokers and restart them"
            )
            return InvalidRequest(text)
    return None


def _lost_fault(command: RegisterBroker, cluster: ClusterState) -> str | None:
    """Return why a broker knows of more than was ever decided here, or None (R15).

    Numbers that it knows would be given out again, and its replicas taken for those of other topics.
    """
    if command.topic_id >= cluster.next_topic_id:
        known = f"has a replica of topic {command.topic_id}, the next one here is {cluster.next_topic_id}"
    elif command.version > cluster.version:
        known = f"knows metadata version {command.version}, here it is {cluster.version}"
    else:
        return None
    return (
        f"{command.broker} {known}: the name servers were restored from an older copy. Stop them all, let "
        "one go on with `logboom name-server recover --restored`, and add the others anew"
    )


def _number_fault(command: AnyCommand) -> str | None:
    """Return which number of a command is none that anybody means, in one line, or None.

    Like a strategy it is not checked when it is applied. Negative settings are refused there.
    """
    named: list[tuple[str, int]] = []
    if isinstance(command, CreateTopic | CreateUser):
        named.append(("time_ms", command.time_ms))
    keys = command.keys if isinstance(command, CreateUser) else []
    keys = [command.key] if isinstance(command, AddUserKey) else keys
    named += [("created_ms", key.created_ms) for key in keys]
    for name, number in named:
        if not 0 <= number <= MAX_NUMBER:
            return f"{name} {number}: give ms since 1970"
    if isinstance(command, JoinGroup) and not 0 <= command.user < 1 << 63:
        return f"user {command.user}: give the mark of a user"
    if not isinstance(command, CreateTopic | AlterTopic | AlterGroup | JoinGroup):
        return None
    config = command.config
    settings = (
        {} if config is None else {each: getattr(config, each) for each in config.__struct_fields__}
    )
    if isinstance(config, GroupConfig):
        chosen = config.options.config.values()
        settings["options"] = max((abs(n) for queues in chosen for _, n in queues), default=0)
    for name, value in settings.items():
        if isinstance(value, int) and value > MAX_NUMBER:
            return f"{name} {value}: give at most {MAX_NUMBER}"
    return None


def _strategy_fault(command: AnyCommand, groups: ConsumerGroups) -> str | None:
    """Return why a strategy that a group is to use cannot work, or None.

    This is checked before a command enters the log and not when it is applied: all versions of the
    name server must apply a command alike, and the first one accepted such strategies.
    """
    if isinstance(command, AlterGroup):
        known, config = groups.by_name.get(command.group), command.config
    elif isinstance(command, JoinGroup):
        # A member's settings count only for a new group.
        known, config = groups.by_name.get(command.group), command.config
        config = None if known is not None else config
    else:
        return None
    if config is None or config.mode == "broadcasting":
        return None
    if known is not None and (known.config.strategy, known.config.options) == (
        config.strategy,
        config.options,
    ):
        return None  # Something else is being changed.
    return strategy_fault(config)
