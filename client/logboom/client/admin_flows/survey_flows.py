"""The admin's flows for monitoring: all queues and all groups, in few requests.

See `logboom.client.flows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from logboom.client.calls import AskAll, AskNode, AskRaftLeader, KnownBrokers
from logboom.client.fetch.message_flows import unexpected
from logboom.client.flows import (
    Flow,
    known_view,
    node_answers,
    node_questions,
    nodes_to_ask,
    stats_of,
)
from logboom.client.results import NodeStats
from logboom.wire.base import WireMessage
from logboom.wire.errors import UnknownResource
from logboom.wire.messages import Stats
from logboom.wire.operation_messages import ClusterDescribed, DescribeCluster
from logboom.wire.survey_messages import (
    MAX_PLACES,
    AppendTimesFound,
    FindAppendTimes,
    GroupsSurveyed,
    GroupSurvey,
    QueuesSurveyed,
    QueueSurvey,
    SurveyGroups,
    SurveyQueues,
)
from logboom.wire.view import BrokerView, TopicView


class ClusterSurvey(Struct, frozen=True):
    """All nodes, topics, queues and groups of a cluster, as far as somebody told of them."""

    topics: list[TopicView]
    """By name."""
    nodes: list[NodeStats]
    queues: dict[str, list[QueueSurvey]]
    """Broker → the queues that it leads."""
    groups: list[GroupSurvey] | None
    """By name; None: the Raft leader did not answer."""
    cluster: ClusterDescribed | None
    """None: the Raft leader did not answer."""
    silent: list[str]
    """Brokers that are not fenced and did not tell all their queues in time."""


def survey_cluster(patience: float, timeout: float) -> Flow[ClusterSurvey]:
    """Ask everybody at once for everything, page after page.

    Args:
        patience: seconds that each has for an answer; who does not answer is not asked again.
        timeout: seconds for the metadata.
    """
    view = yield from known_view(timeout)
    nodes = nodes_to_ask(view, "")
    told = node_questions(nodes, partial(Stats, 0), patience)
    cluster = AskRaftLeader(lambda ms: DescribeCluster(0, ms, ""), patience)
    pages = _Pages(patience)
    pages.ask_groups("")
    for broker in view.brokers:
        if broker.alive:
            pages.ask_queues(broker.id, broker.endpoint, (-1, -1))
    others: list[AskRaftLeader | AskNode] = [*told, cluster]
    while pages.asked:
        yield AskAll([*others, *pages.asked])
        others = []
        pages.turn()
    described = None if cluster.outcome.error is not None else cluster.outcome.get()[0]
    return ClusterSurvey(
        sorted(view.topics, key=lambda topic: topic.name),
        stats_of(node_answers(nodes, told)),
        pages.queues,
        pages.groups,
        described if isinstance(described, ClusterDescribed) else None,
        sorted(pages.silent),
    )


class _Pages:
    """What was told so far, and the questions for what comes next."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.queues: dict[str, list[QueueSurvey]] = {}
        self.groups: list[GroupSurvey] | None = []
        self.silent: list[str] = []
        self._groups: AskRaftLeader | None = None
        self._queues: dict[str, AskNode] = {}

    @property
    def asked(self) -> list[AskRaftLeader | AskNode]:
        """The questions of this turn."""
        own = [] if self._groups is None else [self._groups]
        return [*own, *self._queues.values()]

    def ask_groups(self, after: str) -> None:
        """Ask for the groups after this one."""
        self._groups = AskRaftLeader(lambda ms: SurveyGroups(0, ms, after), self._patience)

    def ask_queues(self, broker: str, endpoint: str, after: tuple[int, int]) -> None:
        """Ask a broker for the queues after this one."""
        message = SurveyQueues(0, int(self._patience * 1000), after)
        self._queues[broker] = AskNode(endpoint, message, self._patience)

    def turn(self) -> None:
        """Take the answers, and ask for what is missing."""
        groups, self._groups = self._groups, None
        if groups is not None:
            answer = None if groups.outcome.error is not None else groups.outcome.get()[0]
            if isinstance(answer, GroupsSurveyed) and self.groups is not None:
                self.groups += answer.groups
                if answer.more and answer.groups:
                    self.ask_groups(answer.groups[-1].summary.name)
            else:
                self.groups = None
        queues, self._queues = self._queues, {}
        for broker, call in queues.items():
            answer = None if call.outcome.error is not None else call.outcome.get()[0]
            if not isinstance(answer, QueuesSurveyed):
                self.silent.append(broker)
                continue
            self.queues.setdefault(broker, []).extend(answer.queues)
            if answer.reached is not None:
                self.ask_queues(broker, call.endpoint, answer.reached)


def survey_groups(timeout: float) -> Flow[list[GroupSurvey]]:
    """Return all groups with their offsets, by name."""
    found: list[GroupSurvey] = []
    more = True
    while more:

        def message(left: int, after: str = found[-1].summary.name if found else "") -> WireMessage:
            return SurveyGroups(0, left, after)

        answer, _ = yield AskRaftLeader(message, timeout)
        if not isinstance(answer, GroupsSurveyed):
            raise unexpected(answer)
        found += answer.groups
        more = answer.more and bool(answer.groups)
    return found


def survey_queues(broker: str, timeout: float) -> Flow[list[QueueSurvey]]:
    """Return all queues that a broker leads.

    Raises:
        UnknownResource: UNKNOWN_BROKER: there is no such broker.
    """
    endpoint = yield from _endpoint_of(broker)
    found: list[QueueSurvey] = []
    reached: tuple[int, int] | None = (-1, -1)
    while reached is not None:
        message = SurveyQueues(0, int(timeout * 1000), reached)
        answer, _ = yield AskNode(endpoint, message, timeout)
        if not isinstance(answer, QueuesSurveyed):
            raise unexpected(answer)
        found += answer.queues
        reached = answer.reached
    return found


def append_times(
    broker: str, places: Sequence[tuple[int, int, int]], timeout: float
) -> Flow[list[int | None]]:
    """Return when the messages at places of queues that a broker leads were stored.

    Raises:
        UnknownResource: UNKNOWN_BROKER: there is no such broker.
    """
    endpoint = yield from _endpoint_of(broker)
    found: list[int | None] = []
    while len(found) < len(places):
        part = list(places[len(found) : len(found) + MAX_PLACES])
        message = FindAppendTimes(0, int(timeout * 1000), part)
        answer, _ = yield AskNode(endpoint, message, timeout)
        if not isinstance(answer, AppendTimesFound) or not answer.times_ms:
            raise unexpected(answer)
        found += [None if time_ms < 0 else time_ms for time_ms in answer.times_ms]
    return found


def known_brokers() -> Flow[list[BrokerView]]:
    """Return the brokers as this client has last heard of them, by id. Nobody is asked."""
    brokers: list[BrokerView] = yield KnownBrokers()
    return brokers


def _endpoint_of(broker: str) -> Flow[str]:
    # To load the metadata would be more work than what is asked then, in a cluster of many topics.
    for each in (yield from known_brokers()):
        if each.id == broker:
            return each.endpoint
    raise UnknownResource(f"there is no broker {broker!r}", "UNKNOWN_BROKER")
