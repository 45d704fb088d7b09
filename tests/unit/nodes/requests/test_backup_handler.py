"""FETCHENTRIES: what a backup gets of a queue, and when a leader does not answer it."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from logboom.backup.backup_format import position_after
from logboom.nodes.log.keys import Position, log_key
from logboom.nodes.replica.replica import ReplicaSnapshot
from logboom.nodes.requests import backup_handler
from logboom.wire.backup_messages import EntriesFetched, FetchEntries
from logboom.wire.batch import peek, split_entries, validate_batch
from logboom.wire.errors import DataDamaged, Forbidden, LogboomError, NotLeader, Unavailable
from logboom.wire.head import ControlKind
from logboom.wire.hello import Identity
from logboom.wire.validation import crc32c
from tests.unit.nodes.rig import KEY, ME, Peer, Rig, batch, fetch, produce
from tests.unit.nodes.transactions.transactions_rig import commit, of, park
from tests.unit.wire.work import cost_ms

START = (-1, 0, -1)
MOST_MS = 10.0


def operator(rig: Rig) -> Peer:
    """A client with the cluster key."""
    return rig._peer("operator", Identity("operator", cluster_key=KEY))  # noqa: SLF001 - as `follower`


def ask(
    peer: Peer,
    at: tuple[int, int, int] = START,
    *,
    max_bytes: int = 1 << 20,
    version: int = -1,
    **others: Any,
) -> tuple[EntriesFetched, list[bytes]]:
    """The answer about queue 0, from (offset, side, last epoch) on, and its entries."""
    request = FetchEntries(0, 5_000, "flights", 0, 1, *at, max_bytes, version, **others)
    replies = peer.ask(request)
    assert len(replies) == 1
    if replies[0].error is not None:
        raise replies[0].error
    answer = replies[0].message
    assert isinstance(answer, EntriesFetched)
    found = [bytes(each) for frame in replies[0].batches for each in split_entries(bytes(frame))]
    if replies[0].batches:
        assert answer.crc == crc32c(bytes(replies[0].batches[0]))
    assert len(found) == answer.count
    return answer, found


def after(answer: EntriesFetched) -> tuple[int, int, int]:
    """From where to go on."""
    return answer.offset, answer.side, answer.last_epoch


def filled(values: int = 5, **settings: Any) -> tuple[Rig, Peer, Peer]:
    """A broker that leads a queue of one replica with some batches, a client and an operator."""
    rig = Rig(transaction_timeout_ms=60_000, **settings)
    rig.lead()
    client = rig.client()
    for number in range(values):
        client.ask(produce(), [batch(2, value=b"v%d" % number)])
    rig.settle()
    return rig, client, operator(rig)


def kinds(entries: list[bytes]) -> list[int]:
    """The kind of each entry."""
    return [peek(entry).kind for entry in entries]


# ── what is read ────────────────────────────────────────────────────────────────────────────────


def test_a_log_is_read_page_by_page_as_it_is_stored() -> None:
    rig, client, peer = filled()
    begin, nothing = ask(peer)
    assert (begin.start, after(begin), nothing) == ("trimmed", (0, 0, -1), [])
    snapshot = msgspec.msgpack.decode(begin.state, type=ReplicaSnapshot)
    assert (snapshot.offset, snapshot.side, snapshot.epochs) == (0, 0, [])
    assert begin.log_bytes == rig.replica().size
    assert begin.more
    park(client, b"parked")
    at, found = after(begin), list[bytes]()
    pages = 0
    while True:
        answer, entries = ask(peer, at, max_bytes=250)
        assert answer.start == "here"
        at, found, pages = after(answer), found + entries, pages + 1
        if not answer.more:
            break
    assert pages > 2
    stored = [value for _, value in sorted(rig.storage.content("log").items())]
    assert found == stored
    assert kinds(found) == [0] * 5 + [ControlKind.PARKED]
    assert at == (10, 1, 1)
    position = (0, 0)
    for entry in found:
        assert validate_batch(entry).base_offset == position[0]
        position = position_after(position, peek(entry).count)
    assert position == (10, 1)


def test_an_answer_of_small_entries_makes_no_turn_last() -> None:
    rig, _, peer = filled(1)
    rig.fill(20_000)
    rig.replica().raise_hw(rig.replica().end)
    rig.settle()
    assert cost_ms(lambda: ask(peer, (0, 0, -1), max_bytes=1 << 30), MOST_MS) <= MOST_MS
    answer, _ = ask(peer, (0, 0, -1), max_bytes=1 << 30)
    assert answer.more
    answer, _ = ask(peer, after(answer), max_bytes=1 << 30)
    assert answer.start == "here"
    assert answer.count > 0


def test_nothing_is_read_beyond_the_hw_or_the_wanted_end() -> None:
    rig, client, peer = filled(3)
    answer, entries = ask(peer, (0, 0, -1), until=(4, 0))
    assert (after(answer), len(entries), answer.more) == ((4, 0, 1), 2, False)
    rig.auto_sync = False
    client.ask(produce(), [batch()])
    answer, entries = ask(peer, (0, 0, -1))
    assert (after(answer), len(entries), answer.more) == ((6, 0, 1), 3, False)
    rig.auto_sync = True
    rig.sync()
    answer, entries = ask(peer, after(answer))
    assert (after(answer), len(entries)) == ((7, 0, 1), 1)


def test_a_position_is_compared_without_entries() -> None:
    _, _, peer = filled(3)
    answer, entries = ask(peer, (4, 0, 1), max_bytes=0)
    assert (answer.start, after(answer), entries, answer.more) == ("here", (4, 0, 1), [], True)


@pytest.mark.parametrize(
    "at",
    [
        (3, 0, 1),
        (4, 1, 1),
        (4, 0, 2),
        (4, 0, -1),
        (7, 0, 1),
        (6, 1, 1),
        (1 << 60, 0, 1),
        (4, -1, 1),
        (4, 1 << 40, 1),
    ],
)
@pytest.mark.parametrize("cached", [True, False])
def test_an_invented_position_is_no_damage(at: tuple[int, int, int], cached: bool) -> None:
    rig, _, peer = filled(3, **({} if cached else {"cache_bytes": 0}))
    answer, entries = ask(peer, at)
    assert (answer.start, after(answer), entries) == ("diverged", (0, 0, -1), [])
    assert answer.state
    assert rig.replica().damage is None


def test_what_retention_removed_is_told() -> None:
    rig, _, peer = filled(3)
    replica = rig.replica()
    replica.trimmed(4, 100)
    answer, entries = ask(peer, (2, 0, 1))
    assert (answer.start, after(answer), entries) == ("trimmed", (4, 0, 1), [])
    snapshot = msgspec.msgpack.decode(answer.state, type=ReplicaSnapshot)
    assert (snapshot.offset, snapshot.epochs) == (4, [(1, 0, 0)])
    answer, entries = ask(peer, after(answer))
    assert len(entries) == 1


def test_an_answer_has_a_limit_whatever_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, peer = filled()
    monkeypatch.setattr(backup_handler, "MOST_BYTES", 1)
    answer, entries = ask(peer, (0, 0, -1), max_bytes=1 << 40)
    assert (len(entries), answer.more) == (1, True)


# ── the cut ─────────────────────────────────────────────────────────────────────────────────────


def test_k2_reading_ends_before_a_decision_that_was_made_after_the_state() -> None:
    rig, client, peer = filled(1)
    first = park(client, b"first", of(1))
    second = park(client, b"second", of(2))
    version = rig.version + 1
    rig.announce(commit(version, first, sequence=1))
    rig.settle()
    rig.announce(commit(version + 3, second, sequence=2))
    rig.settle()
    client.ask(produce(), [batch()])
    _, everything = ask(peer, (0, 0, -1))
    decided = [number for number, kind in enumerate(kinds(everything)) if kind == 3]
    assert len(decided) == 2
    answer, entries = ask(peer, (0, 0, -1), version=version)
    assert entries == everything[: decided[1]]
    assert (answer.decided, answer.more) == (True, False)
    # The released batch of the first decision is in, whole.
    assert kinds(entries)[-2:] == [ControlKind.DECIDED, ControlKind.MESSAGES]
    again, nothing = ask(peer, after(answer), version=version)
    assert (again.decided, nothing) == (True, [])
    answer, entries = ask(peer, after(answer), version=version + 3)
    assert entries == everything[decided[1] :]
    assert (answer.decided, answer.more) == (False, False)


def test_k1_a_leader_without_its_lease_does_not_answer() -> None:
    rig, _, peer = filled(1)
    rig.granting = False
    rig.settle(3.0)
    with pytest.raises(LogboomError) as error:
        ask(peer)
    assert error.value.retryable


def test_k1_a_new_leader_answers_once_it_knows_what_was_acknowledged() -> None:
    pair = (ME, "broker-2")
    rig = Rig()
    rig.lead(isr=pair, replicas=pair)
    client, follower, peer = rig.client(), rig.follower(), operator(rig)
    client.ask(produce(), [batch()])
    rig.lead(epoch=2, isr=pair, replicas=pair)
    with pytest.raises(Unavailable, match="has a new leader"):
        ask(peer, (0, 0, -1))
    follower.ask(fetch(0, (Position(1, 0), 1), epoch=2))
    answer, entries = ask(peer, (0, 0, -1))
    assert (len(entries), answer.leader_epoch) == (1, 2)


def test_k1_another_history_is_not_appended() -> None:
    _, _, peer = filled(3)
    answer, entries = ask(peer, (4, 0, 2))
    assert (answer.start, entries) == ("diverged", [])


# ── who is answered ─────────────────────────────────────────────────────────────────────────────


def test_who_has_no_cluster_key_reads_nothing() -> None:
    _, client, _ = filled(1)
    with pytest.raises(LogboomError) as error:
        ask(client, (0, 0, -1))
    assert error.value.code in ("UNAUTHENTICATED", Forbidden.default_code)


def test_a_broker_that_does_not_lead_names_who_does() -> None:
    rig, _, peer = filled(1)
    rig.lead(epoch=2, replicas=(ME, "broker-2"), isr=("broker-2",), leader="broker-2")
    with pytest.raises(NotLeader, match="broker-2"):
        ask(peer, (0, 0, -1))


def test_a_damaged_entry_is_not_copied() -> None:
    rig, _, peer = filled(3, cache_bytes=0)
    rig.storage.flip(random.Random(1), lambda key: key == log_key(1, 0, 2))
    answer, entries = ask(peer, (0, 0, -1), max_bytes=1)
    assert len(entries) == 1
    with pytest.raises((DataDamaged, Unavailable)):
        ask(peer, after(answer))
    assert rig.replica().damage is not None


# ── copies of compaction ────────────────────────────────────────────────────────────────────────


def test_a_queue_that_is_not_compacted_has_no_copies() -> None:
    _, _, peer = filled(3)
    answer, entries = ask(peer, copies=(0, 4))
    assert (answer.copied, answer.survivors, entries) == (4, [], [])
    for span in ((0, 1 << 40), (-1, 2), (3, 2)):
        with pytest.raises(LogboomError, match="there are none"):
            ask(peer, copies=span)
