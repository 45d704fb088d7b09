"""Broadcasting: a member reads everything, and its offsets survive in a file of its own."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from logboom.client.calls import FindTopic
from logboom.client.fetch.fetch_buffer import FetchBuffer
from logboom.client.groups.failed_messages import FailedMessages
from logboom.client.groups.group_collector import GroupFetchCollector
from logboom.client.groups.member import (
    CloseMember,
    CommitMember,
    MemberOptions,
    MemberState,
    OpenMember,
    Saved,
)
from logboom.client.groups.offsets_file import OffsetsFile, default_path, store_of
from logboom.client.results import Message
from logboom.wire.errors import InvalidRequest, LogboomError, Unavailable
from logboom.wire.group_messages import GroupJoin
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import Offsets, Pull
from tests.unit.client.groups.scripted_group import GroupCluster, fill, numbers


class Memory:
    """A store that remembers, or is full."""

    def __init__(self) -> None:
        self.saved: Saved = {}
        self.full = False
        self.closed = 0

    def load(self) -> Saved:
        return self.saved

    def save(self, offsets: Saved) -> None:
        if self.full:
            raise Unavailable("no space left")
        self.saved = dict(offsets)

    def close(self) -> None:
        self.closed += 1


class Reader:
    """A broadcasting member and its caller."""

    def __init__(self, cluster: GroupCluster, store: Memory, start: str = "first") -> None:
        self.cluster = cluster
        found = FindTopic("t", 5.0)
        cluster.call(found)
        assert cluster.run(5, lambda: found.outcome.done)
        config = GroupConfig(mode="broadcasting", start="last" if start == "last" else "first")
        options = MemberOptions("g", "m-1", {"t": "*"}, config=config)
        inbox = FetchBuffer(1 << 25, lambda: None)
        self.member = MemberState(options, inbox, contextlib.nullcontext(), store=store)
        failures = FailedMessages(self.member, lambda: cluster.now)
        self.intake = GroupFetchCollector(self.member, cluster.call, failures)
        opened = OpenMember(self.member, 5.0)
        cluster.call(opened)
        assert cluster.run(5, lambda: opened.outcome.done)
        opened.outcome.get()

    def read(self, count: int, seconds: float = 15.0) -> list[Message]:
        taken: list[Message] = []

        def enough() -> bool:
            taken.extend(self.intake.take(count - len(taken), self.cluster.now))
            return len(taken) == count

        self.cluster.run(seconds, enough)
        return taken

    def commit(self) -> LogboomError | None:
        call = CommitMember(self.member)
        self.cluster.call(call)
        assert call.outcome.done
        assert call.outcome.error is None or isinstance(call.outcome.error, LogboomError)
        return call.outcome.error

    def close(self) -> None:
        call = CloseMember(self.member, 0)
        self.cluster.call(call)
        assert self.cluster.run(5, lambda: call.outcome.done)


@pytest.fixture
def cluster() -> GroupCluster:
    made = GroupCluster()
    fill(made, 0, 0, 10)
    fill(made, 1, 100, 10)
    return made


def test_it_reads_all_and_goes_on_where_it_was(cluster: GroupCluster) -> None:
    store = Memory()
    reader = Reader(cluster, store)
    messages = reader.read(20)
    assert sorted(numbers(messages)) == [*range(10), *range(100, 110)]
    reader.intake.ack([m for m in messages if m.offset not in (3, 6)])
    reader.close()
    assert store.closed == 1
    again = Reader(cluster, store).read(10, 2)
    assert sorted(numbers(again)) == [3, 6, 103, 106]
    assert not any(isinstance(m, GroupJoin) for m in cluster.seen)


@pytest.mark.parametrize("running", [True, False])
def test_q15_a_queue_that_lost_messages_is_read_from_its_new_ones(
    cluster: GroupCluster, running: bool
) -> None:
    store = Memory()
    reader = Reader(cluster, store)
    reader.intake.ack(reader.read(20))
    reader.commit()
    if not running:
        reader.close()
    cluster.lose("t", 0, 3)
    fill(cluster, 0, 50, 20)
    if not running:
        reader = Reader(cluster, store)
    fresh = reader.read(20)
    assert numbers(fresh) == [*range(50, 70)]
    reader.intake.ack(fresh)
    reader.close()
    # The offset knows of the loss: it is not cut again.
    assert store.saved[cluster.topic_ids["t"], 0] == (23, b"", cluster.log("t", 0).epoch)
    assert Reader(cluster, store).read(1, 1.0) == []


def test_a_paused_queue_that_lost_messages_stays_paused(cluster: GroupCluster) -> None:
    reader = Reader(cluster, Memory())
    reader.intake.ack(reader.read(20))
    reader.commit()
    reader.intake.pause("t", 0)
    cluster.lose("t", 0, 3)
    fill(cluster, 0, 50, 20)
    assert reader.read(1, 2.0) == []
    reader.intake.resume("t", 0)
    assert numbers(reader.read(20)) == [*range(50, 70)]


def test_offsets_are_saved_every_five_seconds(cluster: GroupCluster) -> None:
    store = Memory()
    reader = Reader(cluster, store)
    reader.intake.ack(reader.read(20))
    cluster.run(5.5)
    assert sorted(store.saved.values()) == [(10, b"", 0), (10, b"", 0)]


def test_the_end_is_a_place_even_if_nothing_comes(cluster: GroupCluster) -> None:
    store = Memory()
    reader = Reader(cluster, store, start="last")
    assert reader.read(1, 1) == []
    reader.close()
    fill(cluster, 0, 10, 5)
    again = Reader(cluster, store, start="last")
    assert numbers(again.read(5, 2)) == list(range(10, 15))


def test_queues_that_were_added_while_it_was_away_are_read_from_their_first_message(
    cluster: GroupCluster,
) -> None:
    store = Memory()
    reader = Reader(cluster, store, start="last")
    assert reader.read(1, 1) == []
    reader.close()
    cluster.grow("t")
    fill(cluster, 2, 200, 3)
    cluster.run(1)  # the client sees it
    again = Reader(cluster, store, start="last")
    assert numbers(again.read(3, 2)) == [200, 201, 202]


def test_a_queue_whose_end_was_not_learned_is_not_taken_for_an_added_one(
    cluster: GroupCluster,
) -> None:
    store = Memory()
    ends = Offsets, Pull
    cluster.intercept = lambda _endpoint, message: True if isinstance(message, ends) else None
    reader = Reader(cluster, store, start="last")
    cluster.run(1)
    reader.close()
    assert [offset for offset, *_ in store.saved.values()] == [-1, -1]
    cluster.intercept = lambda *_: None
    again = Reader(cluster, store, start="last")
    assert again.read(1, 1) == []
    # The place is saved as soon as it is known: a crash does not lose what comes from then on.
    assert sorted(store.saved.values()) == [(10, b"", 0), (10, b"", 0)]


def test_a_full_disk_is_told_and_mended(cluster: GroupCluster) -> None:
    store = Memory()
    reader = Reader(cluster, store)
    reader.intake.ack(reader.read(20))
    store.full = True
    error = reader.commit()
    assert error is not None
    assert "no space" in str(error)
    store.full = False
    assert reader.commit() is None
    assert sorted(store.saved.values()) == [(10, b"", 0), (10, b"", 0)]


def test_what_fails_for_good_is_given_up_here(cluster: GroupCluster) -> None:
    store = Memory()
    reader = Reader(cluster, store)
    messages = reader.read(20)
    reader.intake.ack(messages[1:])
    message = messages[0]
    for _ in range(15):
        reader.intake.nack(message, 0, "never", cluster.now)
        (message,) = reader.read(1)
    assert message.attempt == 16
    reader.intake.nack(message, 0, "never", cluster.now)
    assert reader.read(1, 1) == []
    assert reader.commit() is None
    assert sorted(store.saved.values()) == [(10, b"", 0), (10, b"", 0)]


def test_what_is_rejected_is_given_up_at_once(cluster: GroupCluster) -> None:
    store = Memory()
    reader = Reader(cluster, store)
    messages = reader.read(20)
    reader.intake.ack(messages[1:])
    reader.intake.reject(messages[0], "never", cluster.now)
    assert reader.read(1, 1) == []
    assert reader.commit() is None
    assert sorted(store.saved.values()) == [(10, b"", 0), (10, b"", 0)]


def test_a_file_is_whole_and_used_by_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "offsets.json"
    one = OffsetsFile(path, "g")
    assert one.load() == {}
    saved: Saved = {
        (3, 0): (10, b"", 0),
        (3, 1): (7, b"\x01\x02\x03", 4),
        (3, 2): (-1, b"", 0),
    }
    one.save(saved)
    with pytest.raises(InvalidRequest, match="another consumer"):
        OffsetsFile(path, "g").load()
    one.close()
    two = OffsetsFile(path, "g")
    assert two.load() == saved
    two.close()
    with pytest.raises(InvalidRequest, match="group 'g'"):
        OffsetsFile(path, "h").load()
    path.write_bytes(b"{")
    with pytest.raises(InvalidRequest, match="remove it"):
        OffsetsFile(path, "g").load()
    assert [each.name for each in path.parent.iterdir() if each.suffix == ".tmp"] == []


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="offsets"):
        OffsetsFile(tmp_path / "file" / "x.json", "g").load()


def test_a_file_is_only_for_broadcasting(tmp_path: Path) -> None:
    sharing = MemberOptions("g", "m", {"t": "*"})
    assert store_of(sharing, None) is None
    with pytest.raises(InvalidRequest, match="broadcasting"):
        store_of(sharing, tmp_path / "x.json")
    assert default_path("a|b", "one").name == "a%7Cb@one.json"


def test_no_two_members_share_a_default_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    names = [("g", "a/b"), ("g", "a_b"), ("g", "a%2Fb"), ("g@a_b", ""), ("g", ""), ("ü/1", "é")]
    assert len({default_path(*name) for name in names}) == len(names)

    def opened(group: str, instance: str) -> OffsetsFile:
        config = GroupConfig(mode="broadcasting")
        options = MemberOptions(group, "m", {"t": "*"}, instance, config=config)
        file = store_of(options, None)
        assert file is not None
        return file

    # An older client wrote one file for both, which each of them reads once.
    old = tmp_path / ".logboom" / "offsets" / "g@a_b.json"
    old.parent.mkdir(parents=True)
    old.write_text('{"format":1,"group":"g","offsets":[{"topic_id":3,"queue":0,"offset":7}]}')
    slashed = opened("g", "a/b")
    assert slashed.load() == {(3, 0): (7, b"", 0)}
    slashed.save({(3, 0): (9, b"", 0)})
    other = opened("g", "a_b")
    assert other.load() == {(3, 0): (7, b"", 0)}
    other.save({(3, 0): (20, b"", 0)})
    slashed.close()
    assert opened("g", "a/b").load() == {(3, 0): (9, b"", 0)}
    # A file that names its member is of nobody else.
    assert opened("g", "a b").load() == {}
    assert opened("g@a_b", "").load() == {}
