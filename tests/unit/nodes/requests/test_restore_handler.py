"""RESTOREENTRIES: a queue that is being restored takes a backup's entries, and does nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logboom.nodes.log.epoch_table import EpochTable
from logboom.nodes.log.keys import Position
from logboom.nodes.log.producer_windows import ProducerWindows
from logboom.nodes.replica import parked_queue
from logboom.nodes.replica.replica import ReplicaSnapshot
from logboom.wire.backup_messages import EntriesRestored, RestoreEntries
from logboom.wire.batch import encode_batch, encode_control, stamp
from logboom.wire.cursor_deltas import encode_deltas
from logboom.wire.errors import InvalidRequest, LogboomError, NotLeader, Unavailable
from logboom.wire.head import ControlKind
from logboom.wire.messages import FollowerPosition, Offsets, Replicated
from logboom.wire.parking import encode_parked
from logboom.wire.transactions import TransactionId
from logboom.wire.validation import crc32c
from logboom.wire.view import TopicConfig
from tests.unit.nodes.requests.test_backup_handler import operator
from tests.unit.nodes.rig import ME, Peer, Rig, batch, fetch, produce, pull

BACKUP = "20261124T021500Z of a cluster"
NOW = 1_000


def stored(offset: int, epoch: int = 3, count: int = 2) -> bytes:
    """A batch as a leader of the old cluster stored it."""
    return stamp(batch(count), offset, epoch, NOW)


def send(
    peer: Peer, at: tuple[int, int] = (0, 0), *entries: bytes, **others: Any
) -> EntriesRestored | None:
    """Append entries to queue 0; None: the answer is not there yet."""
    content = b"".join(entries)
    values: dict[str, Any] = {"backup": BACKUP, "crc": crc32c(content), "count": len(entries)}
    values |= others
    request = RestoreEntries(0, 5_000, "flights", 0, 1, offset=at[0], side=at[1], **values)
    replies = peer.ask(request, [content] if content else [])
    if not replies:
        return None
    if replies[0].error is not None:
        raise replies[0].error
    answer = replies[0].message
    assert isinstance(answer, EntriesRestored)
    return answer


def end(answer: EntriesRestored | None) -> tuple[int, int, int]:
    """Where the log ends, and the last epoch."""
    assert answer is not None
    return answer.offset, answer.side, answer.last_epoch


def restoring(**settings: Any) -> tuple[Rig, Peer]:
    """A broker that leads a queue of one replica, which is being restored, and an operator."""
    rig = Rig(transaction_timeout_ms=60_000, **settings)
    rig.lead(epoch=9, restoring=BACKUP)
    return rig, operator(rig)


def test_entries_are_appended_as_they_are_and_read_once_the_restore_has_ended() -> None:
    rig, peer = restoring()
    assert end(send(peer)) == (0, 0, -1)
    entries = [stored(0), stored(2, 5)]
    answer = send(peer, (0, 0), *entries)
    assert end(answer) == (4, 0, 5)
    rig.settle()
    answer = send(peer)
    assert answer is not None
    assert answer.whole
    assert [value for _, value in sorted(rig.storage.content("log").items())] == entries
    rig.lead(epoch=10)
    client = rig.client()
    client.ask(produce(), [batch()])
    rig.settle()
    assert rig.replica().hw == (5, 0)
    assert len(client.ask(pull(0))[-1].batches) == 3


def test_what_does_not_continue_the_log_is_not_appended() -> None:
    rig, peer = restoring()
    first, second = stored(0), stored(2)
    assert end(send(peer, (2, 0), second)) == (0, 0, -1)
    assert end(send(peer, (0, 0), first)) == (2, 0, 3)
    assert end(send(peer, (0, 0), first)) == (2, 0, 3), "a repeated request"
    assert end(send(peer, (2, 0), second)) == (4, 0, 3)
    rig.settle()
    assert rig.replica().hw == (4, 0)


@pytest.mark.parametrize(
    ("entries", "changes"),
    [
        ([stored(0)[:-1] + b"!"], {}),
        ([stored(0)], {"crc": 5}),
        ([stored(0)], {"count": 2}),
        ([stored(1)], {}),
        ([stored(0, epoch=10)], {}),
        ([], {"state": b"nonsense", "offset": 5}),
        ([], {"state": msgspec.msgpack.encode([6, 0, [], b""]), "offset": 5}),
    ],
)
def test_what_is_damaged_or_another_backups_is_refused(
    entries: list[bytes], changes: dict[str, Any]
) -> None:
    rig, peer = restoring()
    at = (changes.pop("offset", 0), 0)
    with pytest.raises(InvalidRequest):
        send(peer, at, *entries, **changes)
    rig.settle()
    assert rig.replica().end <= Position(2)
    assert rig.replica().start == 0


def test_an_empty_log_begins_where_the_backups_does() -> None:
    rig, peer = restoring()
    windows = ProducerWindows().encode(Position(0))
    epochs = [(2, 0, 0)]
    state = msgspec.msgpack.encode(ReplicaSnapshot(40, 0, epochs, windows))
    assert end(send(peer, (40, 0), state=state)) == (40, 0, 2)
    assert end(send(peer, (50, 0), state=state)) == (40, 0, 2), "not a second time"
    assert end(send(peer, (40, 0), stored(40))) == (42, 0, 3)
    rig.settle()
    replica = rig.replica()
    assert (replica.start, replica.hw) == (40, (42, 0))
    assert replica.epochs.entries == EpochTable([(2, Position(0)), (3, Position(40))]).entries


def test_an_answer_means_that_all_in_sync_replicas_have_it() -> None:
    rig = Rig()
    both = (ME, "broker-2")
    rig.lead(epoch=9, isr=both, replicas=both, restoring=BACKUP)
    peer, follower = operator(rig), rig.follower()
    follower.ask(fetch(0, (Position(0), -1), epoch=9))
    assert send(peer, (0, 0), stored(0)) is None
    found = [reply.message for reply in follower.taken()]
    assert any(isinstance(each, Replicated) and each.answers[0].frames for each in found)
    follower.ask(fetch(1, (Position(2), 3), epoch=9))
    answers = [reply.message for reply in peer.taken()]
    assert [isinstance(each, EntriesRestored) for each in answers] == [True]
    answer = send(peer)
    assert answer is not None
    assert answer.whole


def test_k5_nobody_reads_or_writes_meanwhile() -> None:
    rig, peer = restoring()
    send(peer, (0, 0), stored(0))
    rig.settle()
    client = rig.client()
    for request, batches in (
        (produce(), [batch()]),
        (pull(0), []),
        (Offsets(0, 5_000, "flights", [0]), []),
    ):
        error = client.ask(request, batches)[-1].error
        assert isinstance(error, Unavailable)
        assert "is being restored from" in error.text


def test_k5_nothing_is_removed_or_released_meanwhile() -> None:
    rig = Rig(retention_check_ms=1, producer_expiry_ms=1)
    gone = TopicConfig(retention_ms=1)
    rig.lead(epoch=9, restoring=BACKUP, config=gone)
    peer = operator(rig)
    delta = encode_control(ControlKind.CURSOR_DELTA, encode_deltas([]))
    send(peer, (0, 0), stored(0), stamp(delta, 2, 3, NOW))
    for _ in range(5):
        rig.settle(100.0)
    replica = rig.replica()
    assert (replica.start, replica.end) == (0, (2, 1))
    rig.lead(epoch=10, config=gone)
    for _ in range(5):
        rig.settle(100.0)
    assert rig.replica().start > 0


def test_k6_a_queue_is_whole_once_all_that_waits_in_it_for_a_decision_is_known() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parked_queue, "APPLIED_AT_ONCE", 1)
        told = told_of_five_undecided()
    assert len(told) > 1, "it takes several turns"
    assert set(told) == {(False, 0), (True, 5)}


def told_of_five_undecided() -> list[tuple[bool, int]]:
    """Whether a queue is whole and how much waits in it, as told until it is whole."""
    _, peer = restoring()
    waits = TransactionId("app", 1, 1)
    parked = [
        stamp(
            encode_control(ControlKind.PARKED, encode_parked(batch(1), NOW, transaction=waits)),
            0,
            3,
            NOW,
        )
        for _ in range(5)
    ]
    answer = send(peer, (0, 0), *parked)
    assert end(answer) == (0, 5, 3)
    told: list[tuple[bool, int]] = []
    while not told or not told[-1][0]:
        answer = send(peer)
        assert answer is not None
        told.append((answer.whole, answer.undecided))
    return told


def test_another_leader_and_a_topic_in_use_are_told() -> None:
    rig, peer = restoring()
    rig.lead(epoch=10)
    with pytest.raises(InvalidRequest, match="is not being restored"):
        send(peer, (0, 0), stored(0))
    rig.lead(epoch=11, leader=None, restoring=BACKUP)
    with pytest.raises(NotLeader):
        send(peer, (0, 0), stored(0))
    client = rig.client()
    request = RestoreEntries(0, 5_000, "flights", 0, 1, BACKUP, 0, 0)
    error = client.ask(request)[0].error
    assert isinstance(error, LogboomError)
    assert error.code == "UNAUTHENTICATED"


def test_k5_another_backup_is_not_mixed_in() -> None:
    rig, peer = restoring()
    for backup in ("another", ""):
        with pytest.raises(InvalidRequest, match="is not being restored"):
            send(peer, (0, 0), stored(0), backup=backup)
        assert rig.replica().end == (0, 0)


def test_copies_of_compaction_come_before_the_log_and_go_to_followers() -> None:
    rig = Rig()
    compacted = TopicConfig(retention_ms=-1, compaction=True)
    both = (ME, "broker-2")
    rig.lead(epoch=9, isr=both, replicas=both, restoring=BACKUP, config=compacted)
    peer, follower = operator(rig), rig.follower()
    state = ReplicaSnapshot(40, 0, [(2, 0, 0)], ProducerWindows().encode(Position(0)))
    send(peer, (40, 0), state=msgspec.msgpack.encode(state))
    asked = msgspec.structs.replace(
        fetch(0, (Position(40), 2), epoch=9),
        queues=[FollowerPosition(1, 0, 9, 40, 0, 2, (0, 40), rebuilds=True)],
    )
    follower.ask(asked)
    follower.taken()
    copies = [
        stamp(encode_batch([b"v"], [key], now_ms=5), offset, 2, NOW)
        for offset, key in ((10, b"a"), (20, b"b"))
    ]
    pages_sent = [(0, copies[0], 20, 20), (20, copies[1], 40, 39), (39, b"", 40, -1)]
    for lacks, copy, copied, left in pages_sent:
        bits = [b""] if copy else []
        answer = send(
            peer, (lacks, 0), *filter(None, [copy]), count=0, survivors=bits, copied=copied
        )
        assert answer is not None
        assert answer.lacks == left
        assert not answer.whole
        rig.settle()
    told = [reply.message for reply in follower.taken()]
    pages = [each.answers[0] for each in told if isinstance(each, Replicated)]
    assert [each.copied for each in pages if each.copied >= 0] == [40]
    assert sum(len(each.survivors) for each in pages) == 2
    follower.ask(fetch(1, (Position(40), 2), epoch=9))
    answer = send(peer)
    assert answer is not None
    assert answer.whole
