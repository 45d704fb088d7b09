"""Where the reader of a member is in its queues: positions, seeks, pauses, commits by offset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from logboom.client.calls import AnyCall, ReadAt, SeekFetch, Start, WakeFetch, WakeMember
from logboom.client.groups.holdings import UNPLACED, Holding
from logboom.client.groups.member import Member
from logboom.wire.errors import GroupError, InvalidRequest, UnknownResource


class Places(ABC):
    """The queues of one member, for its caller."""

    def __init__(self, member: Member, call: Callable[[AnyCall], None]) -> None:
        self._member = member
        self._call = call

    @property
    def member(self) -> Member:
        """Whose queues these are."""
        return self._member

    @abstractmethod
    def forget(self, holding: Holding) -> None:
        """Nothing of a queue that waits here is to be handed out; under the lock."""

    def holding(self, topic: str, queue: int) -> Holding:
        """A queue that this member has.

        Raises:
            UnknownResource: it has not, at the moment.
        """
        found = self._member.holding(topic, queue)
        if found is None:
            text = (
                f"this member of group {self._member.options.group!r} does not have queue {queue} "
                f"of topic {topic!r} at the moment"
            )
            raise UnknownResource(text, "UNKNOWN_QUEUE", topic=topic, queue=queue)
        return found

    def committed(self, topic: str, queue: int) -> int:
        """The group's committed offset, as far as this member knows."""
        with self._member.lock:
            return self.holding(topic, queue).committed[0]

    def seek(self, topic: str, queue: int, start: Start) -> None:
        """Read on from elsewhere; commits go on from there, but never back."""
        if isinstance(start, int) and start < 0:
            raise InvalidRequest(f"an offset is 0 or more, not {start}")
        with self._member.lock:
            holding = self.holding(topic, queue)
            fetch = holding.fetch
            if fetch is None:
                text = f"queue {queue} of topic {topic!r} is being given away, or not read yet"
                raise GroupError(text, "NOT_OWNER")
            known = isinstance(start, int) and not isinstance(start, ReadAt)
            holding.place(int(start) if known else UNPLACED)
            self.forget(holding)
            fetch.reader_offset = int(start) if known else None
            fetch.generation += 1
            self._call(SeekFetch(fetch, start, fetch.generation))

    def skip_to(self, topic: str, queue: int, offset: int) -> None:
        """Count all below `offset` as finished.

        Raises:
            GroupError: BEYOND_END, past what this member has read.
            InvalidRequest: below what is committed already.
        """
        with self._member.lock:
            holding = self.holding(topic, queue)
            fetch = holding.fetch
            end = max(holding.seen_end, fetch.max_offset if fetch is not None else 0)
            if offset > end:
                text = (
                    f"offset {offset} of {topic}/{queue} cannot be committed: the queue ends at "
                    f"{end}; commit what was read"
                )
                raise GroupError(text, "BEYOND_END", topic=topic, queue=queue, end=end)
            if offset < holding.committed[0]:
                text = (
                    f"offset {offset} of {topic}/{queue} is below {holding.committed[0]}, which is "
                    "committed: commits only go forward; to go back use admin.reset_offsets()"
                )
                raise InvalidRequest(text)
            holding.progress.finish(min(holding.progress.floor, offset), offset)

    def read_again(self, holdings: Sequence[Holding]) -> None:
        """Read these queues again from where the caller has finished: what it was given since came
        to nothing."""
        with self._member.lock:
            for holding in holdings:
                if self._member.holdings.get(holding.key) is not holding:
                    continue  # another member reads it by now
                start = holding.progress.floor
                holding.place(start)
                self.forget(holding)
                fetch = holding.fetch
                if fetch is None:
                    self._call(WakeMember(self._member))
                    continue
                fetch.reader_offset = start
                fetch.generation += 1
                self._call(SeekFetch(fetch, start, fetch.generation))

    def pause(self, topic: str, queue: int) -> None:
        """Hand out nothing of a queue until `resume`; what was fetched is kept."""
        with self._member.lock:
            fetch = self.holding(topic, queue).fetch
            if fetch is not None:
                fetch.paused = True

    def resume(self, topic: str, queue: int) -> None:
        """Hand out again."""
        with self._member.lock:
            fetch = self.holding(topic, queue).fetch
            if fetch is not None:
                fetch.paused = False
                fetch.stalled = False
                self._call(WakeFetch(fetch))
