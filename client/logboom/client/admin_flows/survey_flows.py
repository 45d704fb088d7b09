"""The admin's flows for monitoring: all queues and all groups, in few requests.

See `logboom.client.flows`.
"""

from __future__ import annotations

from collections.abc import Sequence

from logboom.client.calls import AskNode, AskRaftLeader, KnownBrokers
from logboom.client.fetch.message_flows import unexpected
from logboom.client.flows import Flow
from logboom.wire.base import WireMessage
from logboom.wire.errors import UnknownResource
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
from logboom.wire.view import BrokerView


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
