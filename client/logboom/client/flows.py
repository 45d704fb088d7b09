"""Flows: the steps of the admin and of `pull`, as generators of calls that do not wait.

A flow yields a call of `logboom.client.calls`, and receives its value or its error.
`logboom.client.admin` drives it from threads, `logboom.client.aio` from an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from logboom.client.calls import (
    AskAll,
    AskNode,
    AskRaftLeader,
    FindTopic,
    FollowTopic,
    LoadMetadata,
    ProposeCommand,
)
from logboom.client.cluster.metadata_updater import unknown_topic
from logboom.client.results import NodeConnections, NodeStats
from logboom.wire.base import WireMessage
from logboom.wire.commands import (
    AlterTopic,
    AnyCommand,
    Barrier,
    CommandResult,
    CreateTopic,
    DeleteTopic,
    DiscardLostTopic,
    ElectLeader,
    RemoveBroker,
)
from logboom.wire.errors import (
    InvalidRequest,
    LogboomError,
    UnknownResource,
)
from logboom.wire.messages import (
    AddNameServer,
    AnyMessage,
    ConnectionsListed,
    DescribeVersions,
    FinalizeUpgrade,
    KickConnection,
    ListConnections,
    RemoveNameServer,
    Stats,
    StatsResult,
    VersionsDescribed,
)
from logboom.wire.view import BrokerView, NameServerView, TopicConfig, TopicView, View

T = TypeVar("T")
Flow: TypeAlias = Generator[Any, Any, T]


STATS_S: Final = 2.0
"""Seconds that a node has to return its counters; a live one takes milliseconds."""
FENCED_STATS_S: Final = 0.5
"""The same for a broker that is fenced, and most likely down."""


def run_flow(flow: Flow[T], answer: Callable[[Any], Any]) -> T:
    """Run a flow to its end; `answer` answers each of its calls, or raises the call's error."""
    try:
        call = next(flow)
        while True:
            try:
                value = answer(call)
            except LogboomError as error:
                call = flow.throw(error)
            else:
                call = flow.send(value)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        flow.close()  # Ctrl-C while it waited: the flow has to know at once


def propose(command: AnyCommand, timeout: float) -> Flow[CommandResult]:
    """Commit one command."""
    result: CommandResult = yield ProposeCommand(command, timeout)
    return result


def create_topic(
    name: str, queues: int, replicas: int, config: TopicConfig, wall_ms: int, timeout: float
) -> Flow[None]:
    """Create a topic; a later call that uses it waits until this client sees it."""
    # The topic is not loaded here: each topic of interest widens every later WATCH of this client,
    # and a program that creates thousands of topics would follow them all.
    yield ProposeCommand(CreateTopic(name, queues, replicas, config, wall_ms), timeout)


def alter_topic(
    name: str,
    queues: int | None,
    changes: dict[str, Any],
    wall_ms: int,
    timeout: float,
    replicas: int | None = None,
) -> Flow[None]:
    """Change some settings; the others remain unchanged."""
    config = None
    if changes:
        topic = yield from describe_topic(name, timeout)
        config = changed_config(topic.config, changes)
    yield ProposeCommand(AlterTopic(name, queues, config, wall_ms, replicas), timeout)
    if queues is not None:
        yield FindTopic(name, timeout, queues=queues)  # the next call may name the new queues


def changed_config(config: TopicConfig, changes: dict[str, Any]) -> TopicConfig:
    """Return settings with changes.

    Raises:
        InvalidRequest: a setting does not exist, or has another type.
    """
    fields = changed_fields(config, changes, "topic setting")
    try:
        return msgspec.convert([*fields.values()], TopicConfig)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"a topic setting has the wrong type: {error}") from None


def changed_fields(
    settings: msgspec.Struct, changes: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """Return the fields of settings with changes, whose types are not checked yet.

    Raises:
        InvalidRequest: there is no such field.
    """
    known = msgspec.structs.asdict(settings)
    for name in changes:
        if name not in known:
            raise InvalidRequest(f"no {what} is called {name!r}: there are {', '.join(known)}")
    return {**known, **changes}


def delete_topic(name: str, wall_ms: int, timeout: float) -> Flow[None]:
    """Delete a topic with all its messages; a later call does not take it for one that exists."""
    result: CommandResult = yield ProposeCommand(DeleteTopic(name, wall_ms), timeout)
    yield FollowTopic(name, result.version, timeout)


def elect_leader(
    topic: str, queue: int, prefer: str | None, wall_ms: int, timeout: float
) -> Flow[None]:
    """Move a queue's leadership."""
    yield ProposeCommand(ElectLeader(topic, queue, prefer, wall_ms), timeout)


def remove_broker(broker: str, timeout: float, *, accept_loss: bool = False) -> Flow[None]:
    """Remove a broker."""
    yield ProposeCommand(RemoveBroker(broker, accept_loss), timeout)


def discard_lost_topic(topic_id: int, timeout: float) -> Flow[None]:
    """Give up a topic that the name servers have lost."""
    yield ProposeCommand(DiscardLostTopic(topic_id), timeout)


def latest_view(timeout: float, topics: list[str] | None = None) -> Flow[View]:
    """Return the metadata with everything that was committed before the call.

    Args:
        topics: those to load; None: all.
    """
    result: CommandResult = yield ProposeCommand(Barrier(), timeout)
    view: View = yield LoadMetadata(timeout, result.version, topics)
    return view


def known_view(timeout: float) -> Flow[View]:
    """Return the metadata as the asked node knows it."""
    view: View = yield LoadMetadata(timeout)
    return view


def known_nodes(timeout: float) -> Flow[View]:
    """Return the metadata as the asked node knows it, without topics."""
    view: View = yield LoadMetadata(timeout, topics=[])
    return view


def topics(timeout: float) -> Flow[list[TopicView]]:
    """Return all topics by name."""
    view = yield from latest_view(timeout)
    return sorted(view.topics, key=lambda topic: topic.name)


def describe_topic(name: str, timeout: float) -> Flow[TopicView]:
    """Return the current state of one topic."""
    view = yield from latest_view(timeout, [name])
    for topic in view.topics:
        if topic.name == name:
            return topic
    raise unknown_topic(name)


def brokers(timeout: float) -> Flow[list[BrokerView]]:
    """Return all brokers by id."""
    view = yield from latest_view(timeout, [])
    return sorted(view.brokers, key=lambda broker: broker.id)


def name_servers(timeout: float) -> Flow[list[NameServerView]]:
    """Return all name servers by id."""
    view = yield from known_nodes(timeout)
    return sorted(view.name_servers, key=lambda server: server.id)


def cluster_id(timeout: float) -> Flow[str]:
    """Return the id of the cluster, which is permanent."""
    view = yield from known_nodes(timeout)
    return view.cluster_id


def raft_leader(timeout: float) -> Flow[str | None]:
    """Return the id of the name servers' leader, as far as the asked node knows."""
    view = yield from latest_view(timeout, [])
    return view.raft_leader


def add_name_server(name: str, endpoint: str, raft_endpoint: str, timeout: float) -> Flow[None]:
    """Add an empty name server."""
    yield AskRaftLeader(lambda ms: AddNameServer(0, ms, name, endpoint, raft_endpoint), timeout)


def remove_name_server(name: str, timeout: float) -> Flow[None]:
    """Remove a name server."""
    # The server to be removed may be the apparent leader, and be dead. Others are asked then,
    # because such a change may be repeated.
    yield AskRaftLeader(lambda ms: RemoveNameServer(0, ms, name), timeout)


def versions(timeout: float) -> Flow[VersionsDescribed]:
    """Return the software of all nodes, and the features level."""
    answer, _ = yield AskRaftLeader(lambda ms: DescribeVersions(0, ms), timeout)
    assert isinstance(answer, VersionsDescribed)
    return answer


def finalize_upgrade(level: int, timeout: float) -> Flow[None]:
    """Raise the features level."""
    yield AskRaftLeader(lambda ms: FinalizeUpgrade(0, ms, level), timeout)


class NodeToAsk(NamedTuple):
    """One node, and how long it has to answer."""

    node: str
    role: str
    """name-server or broker."""
    endpoint: str
    patience_s: float


class NodeAnswer(NamedTuple):
    """What one node answered."""

    node: str
    role: str
    """name-server or broker."""
    endpoint: str
    answer: AnyMessage | LogboomError
    """The error if there is no answer."""


def ask_nodes(
    node: str, request: Callable[[int], WireMessage], timeout: float
) -> Flow[list[NodeAnswer]]:
    """Ask all nodes the same, or one; `request` makes the message from its timeout in ms.

    Raises:
        UnknownResource: there is no such node.
    """
    view = yield from known_nodes(timeout)
    nodes = nodes_to_ask(view, node)
    asked = node_questions(nodes, request, timeout)
    yield AskAll(asked)
    return node_answers(nodes, asked)


def node_questions(
    nodes: Sequence[NodeToAsk], request: Callable[[int], WireMessage], timeout: float
) -> list[AskNode]:
    """Return a question to each node, to be asked at once: one that is down then costs its own
    time-out, whatever the others do."""
    return [
        AskNode(endpoint, request(int(patience * 1000)), patience)
        for _, _, endpoint, patience in (
            (*each[:3], min(each.patience_s, timeout)) for each in nodes
        )
    ]


def node_answers(nodes: Sequence[NodeToAsk], asked: Sequence[AskNode]) -> list[NodeAnswer]:
    """Return what the nodes answered to these questions, or the error of each that did not."""
    return [
        NodeAnswer(each.node, each.role, each.endpoint, _answer_of(call))
        for each, call in zip(nodes, asked, strict=True)
    ]


def _answer_of(call: AskNode) -> AnyMessage | LogboomError:
    try:
        answer, _ = call.outcome.get()
    except LogboomError as error:
        return error
    return answer


def stats(timeout: float) -> Flow[list[NodeStats]]:
    """Return the counters of every node; for one that does not answer, the reason."""
    return stats_of((yield from ask_nodes("", partial(Stats, 0), timeout)))


def stats_of(answers: Iterable[NodeAnswer]) -> list[NodeStats]:
    """Return the counters that nodes told; for one that did not answer, the reason."""
    found = []
    for node, role, endpoint, answer in answers:
        if isinstance(answer, LogboomError):
            found.append(NodeStats(node, role, endpoint, {}, str(answer)))
        elif isinstance(answer, StatsResult):
            found.append(NodeStats(node, answer.role, endpoint, answer.counters))
    return found


def connections(node: str, user: str, limit: int, timeout: float) -> Flow[list[NodeConnections]]:
    """Return the connections of all nodes, or of one; for a node that does not answer, the reason.

    Raises:
        UnknownResource: there is no such node.
    """

    def request(ms: int) -> ListConnections:
        return ListConnections(0, ms, user, limit)

    found = []
    for name, _, _, answer in (yield from ask_nodes(node, request, timeout)):
        if isinstance(answer, LogboomError):
            found.append(NodeConnections(name, [], 0, str(answer)))
        elif isinstance(answer, ConnectionsListed):
            found.append(NodeConnections(name, answer.connections, answer.total))
    return found


def kick_connection(node: str, endpoint: str, timeout: float) -> Flow[None]:
    """Reset the connection of a peer to a node.

    Raises:
        UnknownResource: there is no such node.
        InvalidRequest: it has no such connection.
    """
    view = yield from known_nodes(timeout)
    for _, _, address, _ in nodes_to_ask(view, node):
        yield AskNode(address, KickConnection(0, int(timeout * 1000), endpoint), timeout)


def nodes_to_ask(view: View, wanted: str) -> list[NodeToAsk]:
    """Return all nodes, or one, in the order of their ids.

    Raises:
        UnknownResource: there is no such node.
    """
    nodes = [
        NodeToAsk(each.id, "name-server", each.endpoint, STATS_S) for each in view.name_servers
    ]
    nodes += [
        NodeToAsk(each.id, "broker", each.endpoint, STATS_S if each.alive else FENCED_STATS_S)
        for each in view.brokers
    ]
    found = [each for each in sorted(nodes) if wanted in ("", each[0])]
    if wanted and not found:
        text = f"there is no node {wanted!r}: `logboom cluster status` lists them"
        raise UnknownResource(text, "UNKNOWN_BROKER", node=wanted)
    return found


def check_queues(topic: TopicView, queues: Sequence[int]) -> None:
    """Check that a topic has these queues.

    Raises:
        UnknownResource: it does not.
    """
    for queue in queues:
        if not 0 <= queue < len(topic.queues):
            text = f"topic {topic.name!r} has queues 0 to {len(topic.queues) - 1}, not {queue}"
            raise UnknownResource(text, "UNKNOWN_QUEUE", topic=topic.name, queue=queue)
