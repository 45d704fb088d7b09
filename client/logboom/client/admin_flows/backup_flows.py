"""The flows of backups and restores: the replicated state, and entries of queues as stored."""

from __future__ import annotations

import msgspec

from logboom.client.calls import AskLeader, AskRaftLeader, ProposeCommand
from logboom.client.fetch.message_flows import unexpected
from logboom.client.flows import Flow
from logboom.wire.backup_messages import (
    ClusterSnapshot,
    EntriesFetched,
    EntriesRestored,
    FetchEntries,
    ReadState,
    RestoreEntries,
    StateRead,
)
from logboom.wire.commands import CommandResult, RestoreCommand
from logboom.wire.errors import DataDamaged
from logboom.wire.frames import Frame
from logboom.wire.transactions import EntryPosition
from logboom.wire.validation import crc32c


class EntryRange(msgspec.Struct, frozen=True):
    """What to read of a queue; the fields are those of `FetchEntries`."""

    topic: str
    topic_id: int
    queue: int
    at: EntryPosition = (-1, 0)
    """(-1, 0): tell where the log begins."""
    last_epoch: int = -1
    max_bytes: int = 0
    version: int = -1
    until: EntryPosition | None = None
    copies: tuple[int, int] | None = None


class FetchedEntries(msgspec.Struct, frozen=True):
    """The answer of a queue's leader."""

    head: EntriesFetched
    frames: list[Frame]
    """The entries in one frame, whose checksum was verified; or one frame for each copy."""


class EntriesToRestore(msgspec.Struct, frozen=True):
    """What to append to a queue that is being restored; the fields are those of `RestoreEntries`."""

    topic: str
    topic_id: int
    queue: int
    backup: str
    at: EntryPosition = (0, 0)
    content: bytes = b""
    """Entries one after the other, or copies; empty: nothing is appended."""
    count: int = 0
    state: bytes = b""
    survivors: list[bytes] | None = None
    copied: int = -1


def read_state(timeout: float) -> Flow[ClusterSnapshot]:
    """Return the replicated state at one version."""
    answer, frames = yield AskRaftLeader(lambda ms: ReadState(0, ms), timeout)
    if not isinstance(answer, StateRead):
        raise unexpected(answer)
    encoded = b"".join(frames)
    if len(encoded) != answer.size:
        raise DataDamaged(f"the state has {len(encoded)} bytes instead of {answer.size}: try again")
    return msgspec.msgpack.decode(encoded, type=ClusterSnapshot)


def fetch_entries(wanted: EntryRange, timeout: float) -> Flow[FetchedEntries]:
    """Return entries of a queue.

    Raises:
        DataDamaged: the answer is damaged, or no good copy of an entry is known.
    """

    def request(ms: int) -> FetchEntries:
        return FetchEntries(
            0,
            ms,
            wanted.topic,
            wanted.queue,
            wanted.topic_id,
            *wanted.at,
            wanted.last_epoch,
            wanted.max_bytes,
            wanted.version,
            wanted.until,
            wanted.copies,
        )

    answer, frames = yield AskLeader(wanted.topic, wanted.queue, request, timeout)
    if not isinstance(answer, EntriesFetched):
        raise unexpected(answer)
    expected = len(answer.survivors) if wanted.copies is not None else int(answer.count > 0)
    if len(frames) != expected:
        raise DataDamaged(f"an answer of {len(frames)} frames instead of {expected}: try again")
    if wanted.copies is None and frames:
        # Read once here: the frame may lie in the memory of ZeroMQ.
        frame = bytes(frames[0])
        if crc32c(frame) != answer.crc:
            raise DataDamaged("entries arrived damaged: try again, and check the network")
        frames = [frame]
    return FetchedEntries(answer, frames)


def restore_entries(wanted: EntriesToRestore, timeout: float) -> Flow[EntriesRestored]:
    """Append entries to a queue that is being restored, and return where its log ends then."""
    crc = crc32c(wanted.content) if wanted.content else 0

    def request(ms: int) -> RestoreEntries:
        return RestoreEntries(
            0,
            ms,
            wanted.topic,
            wanted.queue,
            wanted.topic_id,
            wanted.backup,
            *wanted.at,
            wanted.count,
            crc,
            wanted.state,
            wanted.survivors,
            wanted.copied,
        )

    frames = [wanted.content] if wanted.content else []
    answer, _ = yield AskLeader(wanted.topic, wanted.queue, request, timeout, frames)
    if not isinstance(answer, EntriesRestored):
        raise unexpected(answer)
    return answer


def restore(command: RestoreCommand, timeout: float) -> Flow[CommandResult]:
    """Commit a command of a restore; each may be repeated."""
    result: CommandResult = yield ProposeCommand(command, timeout)
    return result
