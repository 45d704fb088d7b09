"""The queues that an assigned consumer reads, and their start positions."""

from __future__ import annotations

from collections.abc import Sequence

from logboom.client.calls import FindTopic, Start
from logboom.client.fetch.fetch_buffer import FetchBuffer, OpenFetch, QueueFetch
from logboom.client.fetch.fetch_collector import LOW_SHARE, TopicQueue
from logboom.client.fetch.message_filter import tags_of, text_of
from logboom.client.flows import check_queues
from logboom.wire.errors import InvalidRequest
from logboom.wire.filters import Filter
from logboom.wire.routes import Routes
from logboom.wire.view import TopicView


class TopicSelection:
    """A selection of topics and queues; queues None selects all, including those added later."""

    def __init__(
        self,
        topics: Sequence[str],
        queues: Sequence[int] | None,
        start: Start,
        wanted: Filter,
        *,
        uncommitted: bool = False,
        compacted: bool = False,
    ) -> None:
        if not topics:
            raise InvalidRequest("a consumer needs at least one topic")
        if queues is not None and not queues:
            raise InvalidRequest("queues must be a list of at least one, or None for all")
        self._topics = list(dict.fromkeys(topics))
        self._queues = None if queues is None else sorted(set(queues))
        self._start = start
        self.wanted = wanted
        self._uncommitted = uncommitted
        self._compacted = compacted
        self._counts: dict[str, int] = {}
        """Number of queues of each topic that are read already."""
        self._share = 0

    def finds(self, timeout: float, *, create: bool = False) -> list[FindTopic]:
        """Return the calls that load the topics; pass each result to `found`."""
        most = 0 if self._queues is None else self._queues[-1] + 1
        return [FindTopic(topic, timeout, create, most) for topic in self._topics]

    def found(self, topic: TopicView) -> None:
        """Check the given queues of a topic that exists."""
        if self._queues is not None:
            check_queues(topic, self._queues)

    def new_fetches(self, routes: Routes, inbox: FetchBuffer) -> list[tuple[QueueFetch, OpenFetch]]:
        """Return the fetches to start now, none if nothing has changed."""
        wanted: list[tuple[TopicQueue, Start]] = []
        for name in self._topics:
            topic = routes.topics.get(name)
            read = self._counts.get(name, 0)
            if topic is None or len(topic.queues) <= read:
                continue
            if self._queues is not None and read:
                continue
            self._counts[name] = len(topic.queues)
            numbers = range(read, len(topic.queues)) if self._queues is None else self._queues
            # A queue that was added later is read from its start, because nothing in it was skipped
            # on purpose.
            wanted += [((name, number), "first" if read else self._start) for number in numbers]
        if wanted and not self._share:
            self._share = max(LOW_SHARE, inbox.prefetch_bytes // len(wanted))
        tags, text = tags_of(self.wanted), text_of(self.wanted)
        fetches = []
        for (name, number), start in wanted:
            fetch = QueueFetch(name, number, start, inbox, self._share, tags)
            fetch.filter, fetch.uncommitted = text, self._uncommitted
            fetch.compacted = self._compacted
            fetches.append(fetch)
        return [(fetch, OpenFetch(fetch)) for fetch in fetches]
