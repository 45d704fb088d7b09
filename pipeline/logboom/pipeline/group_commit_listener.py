"""`commitGroup`: offsets that a query has read are committed for a group, to show its lag.

Spark records the position of a query in its checkpoint. The group is for people and tools. Its
offsets only move forward. The group belongs to the query, so nothing is committed while it has
members. Both conditions are checked before each commit, because the group may have changed since
the last one.
"""

from __future__ import annotations

import logging
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from logboom.client import Client
from logboom.pipeline.clients import again
from logboom.pipeline.commit_target import CommitTarget, mark_of, reached
from logboom.pipeline.queue_offsets import Offsets, TopicQueue
from logboom.wire.errors import GroupError, LogboomError, UnknownResource

LOG = logging.getLogger("logboom.pipeline")

_LISTENERS: Final[WeakKeyDictionary[Any, GroupCommitListener]] = WeakKeyDictionary()


def listen(spark: SparkSession) -> None:
    """Commit for the queries of a session; once, however often it is asked for."""
    if spark not in _LISTENERS:
        listener = GroupCommitListener()
        spark.streams.addListener(listener)
        _LISTENERS[spark] = listener


class GroupCommitListener(StreamingQueryListener):
    """A listener that commits after each micro-batch of the queries that ask for it."""

    def __init__(self) -> None:
        self._committed: dict[CommitTarget, Offsets] = {}
        """The last reported progress, because Spark also reports queries without new data."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name for it
        """Do nothing, because nothing has been read yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name for it
        """Commit a micro-batch that is complete and in Spark's checkpoint."""
        for source in event.progress.sources:
            mark = mark_of(source.latestOffset)
            if mark is None:
                continue
            try:
                self._commit(mark, reached(source.endOffset))
            except LogboomError as error:
                # The query continues: the next micro-batch commits for this one too.
                LOG.warning("group %s: not committed: %s", mark.group, error)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name for it
        """Do nothing, because nothing is new."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name for it
        """Do nothing, because the last progress came before."""

    def _commit(self, mark: CommitTarget, offsets: Offsets) -> None:
        if not offsets or offsets == self._committed.get(mark):
            return
        again(mark.servers, mark.timeout_ms / 1000, lambda boom: _commit(boom, mark.group, offsets))
        self._committed[mark] = offsets


def _commit(boom: Client, group: str, offsets: Offsets) -> None:
    known = joined(boom, group, {topic for topic, _ in offsets})
    ahead: dict[TopicQueue | int, int] = {
        place: offset for place, offset in offsets.items() if offset > known.get(place, -1)
    }
    if ahead:
        boom.admin.reset_offsets(group, ahead, dry_run=False)


def joined(boom: Client, group: str, topics: set[str]) -> Offsets:
    """Let a group know these topics, making it if it is new; what it has committed in them.

    Raises:
        GroupError: it has members, so it does not belong to the query.
    """
    try:
        found = boom.admin.describe_group(group)
    except UnknownResource:
        subscription = dict.fromkeys(sorted(topics), "")
        boom.admin.alter_group(group, subscription=subscription, create=True)
        return {}
    if found.members:
        text = f"group {group!r} has members: give the query a group of its own with commitGroup"
        raise GroupError(text, "GROUP_NOT_EMPTY")
    if new := topics - found.subscription.keys():
        wanted = {**found.subscription, **dict.fromkeys(sorted(new), "")}
        boom.admin.alter_group(group, subscription=wanted)
    known = {(each.topic, each.queue): each.committed for each in found.queues}
    for topic in new:
        # It may have existed before: its commits in a topic are kept.
        before = boom.admin.committed(group, topic)
        known |= {(topic, queue): offset for queue, offset in before.items()}
    return {place: offset for place, offset in known.items() if offset is not None}
