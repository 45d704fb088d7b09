"""What a restore will do, decided before anything is changed; pure.

Into a cluster without topics and groups, a backup is restored as it was, under the ids it had.
Elsewhere, topics are restored beside those that are there, with new ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec
from msgspec import Struct

from logboom.backup.backup_format import Manifest, QueueRecord, TopicRecord
from logboom.client.admin_flows.open_transactions import OpenTransaction
from logboom.wire.access.access_rules import Quota
from logboom.wire.backup_messages import ClusterSnapshot
from logboom.wire.commands import (
    RestoreCounters,
    RestoredApplication,
    RestoredDecision,
    RestoreDecisions,
    RestoredOffsets,
    RestoreGroup,
    RestoreTopic,
)
from logboom.wire.errors import AlreadyExists, InvalidRequest, Refused, Unavailable
from logboom.wire.group_view import UNKNOWN_START, GroupOffsets
from logboom.wire.names import is_reserved
from logboom.wire.settings import find_setting
from logboom.wire.transactions import ParkedBatches
from logboom.wire.view import SettingView, TopicView

COMMAND_BYTES: Final = 54 * 1024
"""Approximate size of a command: an entry of the name servers' log has at most 60 KiB."""
OFFSETS_AT_ONCE: Final = 1_000
"""Queues whose offsets are in one row."""
PRODUCERS_AFTER_CUT: Final = 1 << 40
"""Producer ids that are skipped after those of the cut: the logs were copied later, so they hold
batches of producers that were opened meanwhile. A new producer that got such an id would lose its
first messages as duplicates. Ids are i64, so millions of restores fit, one after the other."""
SPARE_BYTES: Final = 64 * 1024 * 1024
"""Bytes that each broker shall have free besides those that it gets."""


class RestoreOptions(Struct, frozen=True):
    """What to restore, and under which names."""

    topics: Sequence[str] = ()
    """Names or patterns; empty: all."""
    new_name: str = ""
    """The name of the one topic that is restored."""
    prefix: str = ""
    """Put before the names of all topics."""
    replicas: int = 0
    """Copies of each queue; 0: as many as there were."""


class PlannedTopic(Struct, frozen=True):
    """A topic that is restored."""

    record: TopicRecord
    """As it is in the backup."""
    command: RestoreTopic
    finished: bool = False
    """True if a former try has restored it already."""


class RestorePlan(Struct, frozen=True):
    """What a restore does, in its order."""

    backup: str
    """What name servers and brokers call the backup."""
    topics: list[PlannedTopic]
    groups: list[str]
    """Groups of which offsets are restored."""
    beside: bool
    """True if the topics come beside others: then no other state is restored."""
    resumed: bool
    """True if a restore that was interrupted goes on."""
    size: int
    """Bytes of the files that are read."""
    messages: int
    counters: RestoreCounters
    notes: list[str]
    """What somebody who restores should know before."""
    settings: list[SettingView] = []
    """Replicated settings that are set."""
    default_quota: Quota | None = None
    """Limits of users without their own that are set."""


class CutOffset(Struct, frozen=True):
    """An offset of a group that lay beyond what the backup has of a queue."""

    group: str
    topic: str
    queue: int
    committed: int
    restored: int


def backup_mark(manifest: Manifest) -> str:
    """Return what name servers and brokers call a backup while it is restored."""
    return f"{manifest.id} of {manifest.cluster_id}"


def plan_restore(
    manifest: Manifest, state: ClusterSnapshot, target: ClusterSnapshot, options: RestoreOptions
) -> RestorePlan:
    """Decide what a restore does; `target` is the state of the cluster that gets it.

    Raises:
        InvalidRequest: no such topic is in the backup, or the names cannot be.
        AlreadyExists: a topic exists.
        Refused: TOO_FEW_BROKERS.
    """
    backup = backup_mark(manifest)
    renamed = bool(options.new_name or options.prefix)
    chosen, notes = _choose(manifest, options, renamed=renamed)
    views = {topic.id: topic for topic in state.topics}
    chosen, lacking = _without_parts(chosen, views, options)
    notes += lacking
    existing = {topic.name: topic for topic in target.topics}
    resumed = any(topic.restoring == backup for topic in target.topics)
    own = {record.name for record in chosen}
    beside = renamed or any(name not in own for name in existing)
    if not resumed:
        beside = beside or bool(target.groups)
    keeps_ids = not beside and all(
        _may_keep_id(each, existing.get(each.name), backup, target) for each in chosen
    )
    planned = [
        _plan_topic(
            record, views[record.id], options, backup, target, state.clock_ms, keeps_ids=keeps_ids
        )
        for record in sorted(chosen, key=lambda record: record.id)
    ]
    planned = list(_without_taken(planned, existing, backup, resumed=resumed))
    notes += [
        f"{each.command.name} was restored by an earlier try, and stays as it is"
        for each in planned
        if each.finished
    ]
    _check_brokers(planned, target, options)
    for each, record in zip(planned, sorted(chosen, key=lambda record: record.id), strict=True):
        was = views[record.id].config.min_in_sync
        if each.command.config.min_in_sync != was:
            notes.append(
                f"{each.command.name}: min_in_sync {was} becomes a majority of the replicas"
            )
    if manifest.notes:
        notes += manifest.notes
    settings: list[SettingView] = []
    quota = None
    if not beside:
        settings, unknown = _settings(state, target)
        notes += unknown
        if state.default_quota != Quota() and target.default_quota == Quota():
            quota = state.default_quota
    ids = {each.record.id for each in planned}
    groups = [
        each.group.name
        for each in state.groups
        if not beside or any(row.topic_id in ids for row in each.offsets)
    ]
    records = [
        record
        for topic in planned
        for queue in topic.record.queues
        for record in (*queue.copies, *queue.segments)
    ]
    counters = RestoreCounters(
        state.version,
        # Ids that are kept are above the next one; they move it themselves.
        1 if keeps_ids else state.next_topic_id,
        state.next_producer_id + PRODUCERS_AFTER_CUT,
        state.next_instance_epoch,
        state.next_group_id,
    )
    return RestorePlan(
        backup,
        planned,
        groups,
        beside,
        resumed,
        sum(record.size for record in records),
        sum(each.messages for topic in planned for q in topic.record.queues for each in q.segments),
        counters,
        notes,
        settings,
        quota,
    )


def _settings(
    state: ClusterSnapshot, target: ClusterSnapshot
) -> tuple[list[SettingView], list[str]]:
    """Return the settings that are to be set, and notes on others. What is set already stays."""
    there = {(each.scope, each.name) for each in target.settings}
    nodes = {"", *(each.id for each in target.brokers), *(each.id for each in target.name_servers)}
    settings: list[SettingView] = []
    notes: list[str] = []
    for each in state.settings:
        if (each.scope, each.name) in there:
            continue
        if each.scope not in nodes:
            notes.append(f"setting {each.name} of {each.scope} is left out: no such node is here")
            continue
        try:
            find_setting(each.name).parse(each.value)
        except InvalidRequest as error:
            notes.append(f"setting {each.name} is left out: {error.text}")
        else:
            settings.append(each)
    return settings, notes


def _choose(
    manifest: Manifest, options: RestoreOptions, *, renamed: bool
) -> tuple[list[TopicRecord], list[str]]:
    for pattern in options.topics:
        if not any(fnmatchcase(topic.name, pattern) for topic in manifest.topics):
            text = (
                f"backup {manifest.id} has no topic {pattern!r}: `logboom backup show` lists them"
            )
            raise InvalidRequest(text)
    chosen = [
        topic
        for topic in manifest.topics
        if not options.topics or any(fnmatchcase(topic.name, each) for each in options.topics)
    ]
    if options.new_name and options.prefix:
        raise InvalidRequest("give --as or --prefix, not both")
    if options.new_name and len(chosen) != 1:
        text = f"--as names one topic, and {len(chosen)} are chosen: name it with --topics"
        raise InvalidRequest(text)
    notes: list[str] = []
    if renamed:
        left = [topic.name for topic in chosen if is_reserved(topic.name)]
        chosen = [topic for topic in chosen if not is_reserved(topic.name)]
        if left:
            notes.append(f"retries and dead letters are left out: {', '.join(left)}")
    return chosen, notes


def _may_keep_id(
    record: TopicRecord, known: TopicView | None, backup: str, target: ClusterSnapshot
) -> bool:
    """Return True if a topic has its id of the backup, or can get it.

    A restore that is resumed may have begun with new ids, or ids may be taken since.
    """
    if known is None:
        return record.id >= target.next_topic_id
    return known.restoring != backup or known.id == record.id


def _without_parts(
    chosen: Iterable[TopicRecord], views: Mapping[int, TopicView], options: RestoreOptions
) -> tuple[list[TopicRecord], list[str]]:
    """Return the topics of which the backup has all queues, and notes on the others.

    A topic may have been deleted while it was copied. That must not stop the restore of all others.

    Raises:
        InvalidRequest: such a topic was asked for by its name.
    """
    whole: list[TopicRecord] = []
    notes: list[str] = []
    for record in chosen:
        there, wanted = len(record.queues), len(views[record.id].queues)
        if there == wanted:
            whole.append(record)
        elif options.new_name or record.name in options.topics:
            text = f"the backup has {there} of the {wanted} queues of {record.name}"
            raise InvalidRequest(f"{text}: restore it from another backup")
        else:
            notes.append(
                f"topic {record.name} is left out: the backup has {there} of its {wanted} queues"
            )
    return whole, notes


def _plan_topic(
    record: TopicRecord,
    view: TopicView,
    options: RestoreOptions,
    backup: str,
    target: ClusterSnapshot,
    clock_ms: int,
    *,
    keeps_ids: bool,
) -> PlannedTopic:
    replicas = options.replicas or view.replicas or len(view.queues[0].replicas)
    config = view.config
    if config.min_in_sync > replicas:
        config = msgspec.structs.replace(config, min_in_sync=0)
    owners = {user.name for user in target.users}
    command = RestoreTopic(
        options.new_name or options.prefix + record.name,
        record.id if keeps_ids else 0,
        config,
        replicas,
        clock_ms,
        view.owner if view.owner in owners else "",
        [max(queue.last_epoch, queue.leader_epoch) for queue in record.queues],
        backup,
    )
    return PlannedTopic(record, command)


def _without_taken(
    planned: Iterable[PlannedTopic],
    existing: Mapping[str, TopicView],
    backup: str,
    *,
    resumed: bool,
) -> Iterator[PlannedTopic]:
    """Yield the topics, after a look at those that are there.

    Raises:
        AlreadyExists: one is there, and this restore has not made it.
    """
    taken: list[str] = []
    planned = list(planned)
    names = [each.command.name for each in planned]
    # All are made in the order of the plan before the first is filled, and finished in that order.
    # So one that is finished has a lower id than all those that wait, and comes before them.
    waiting = [
        (names.index(topic.name), topic.id)
        for topic in existing.values()
        if topic.restoring == backup and topic.name in names
    ]
    first = min(waiting, default=(0, 0))
    for place, each in enumerate(planned):
        known = existing.get(each.command.name)
        if known is None or known.restoring == backup:
            yield each
        elif (
            resumed
            and not known.restoring
            and place < first[0]
            and known.id < first[1]
            and _has_restored_epochs(known, each)
        ):
            yield msgspec.structs.replace(each, finished=True)
        else:
            taken.append(each.command.name)
    if taken:
        text = (
            f"these topics exist already: {', '.join(sorted(taken)[:5])}"
            f"{' …' if len(taken) > 5 else ''}; restore beside them (--topics NAME --as NEW, or "
            "--prefix restored-), or delete them first"
        )
        raise AlreadyExists(text, "TOPIC_EXISTS")


def _has_restored_epochs(known: TopicView, planned: PlannedTopic) -> bool:
    """Return True if a topic's leader epochs are those of one that was restored and finished."""
    # One epoch began with the restore, and one with its end.
    return len(known.queues) == len(planned.command.epochs) and all(
        queue.leader_epoch >= epoch + 2
        for queue, epoch in zip(known.queues, planned.command.epochs, strict=True)
    )


def _check_brokers(
    planned: Sequence[PlannedTopic], target: ClusterSnapshot, options: RestoreOptions
) -> None:
    live = [broker for broker in target.brokers if broker.alive and broker.mode == "active"]
    hosts = len({broker.host or broker.id for broker in live})
    most = max((each.command.replicas for each in planned if not each.finished), default=0)
    if most > hosts:
        remedy = f"--replicas {hosts}" if hosts else "start some"
        if options.replicas:
            remedy = f"give at most {hosts}, or start more"
        raise Refused(
            f"{most} replicas need brokers on {most} machines, and {hosts} can take some: {remedy}",
            "TOO_FEW_BROKERS",
        )


def check_room(plan: RestorePlan, free: Mapping[str, int]) -> list[str]:
    """Refuse a restore that cannot fit; `free` is the free bytes of each live broker.

    Returns:
        A note for each broker that has less room than an even share of what is restored.

    Raises:
        Unavailable: DISK_FULL.
    """
    if plan.resumed or not free:
        return []
    wanted = sum(
        min(each.command.replicas, len(free))
        * sum(r.size for q in each.record.queues for r in (*q.copies, *q.segments))
        for each in plan.topics
    )
    rooms = {broker: max(0, size - SPARE_BYTES) for broker, size in free.items()}
    # No broker gets two replicas of a queue.
    room = sum(min(size, plan.size) for size in rooms.values())
    if wanted > room:
        raise Unavailable(
            f"the restored queues take {wanted >> 20} MiB with all replicas, and the brokers have "
            f"{room >> 20} MiB free for them: free some, add brokers, or restore fewer topics or --replicas",
            "DISK_FULL",
        )
    share = wanted // len(rooms)
    return [
        f"{broker} has {size >> 20} MiB of room, and an even share is {share >> 20} MiB: the restore "
        "stops if its disk is full"
        for broker, size in sorted(rooms.items())
        if size < share
    ]


# ── groups, applications, decisions ─────────────────────────────────────────────────────────────


def group_commands(
    plan: RestorePlan, state: ClusterSnapshot, ids: Mapping[int, int]
) -> tuple[list[RestoreGroup], list[CutOffset]]:
    """Return the commands that set offsets, and what was cut to the ends of queues.

    Args:
        ids: topic id in the backup → topic id here, of topics that are still being restored.
    """
    topics = {each.record.id: each for each in plan.topics}
    names = {each.record.name: each.command.name for each in plan.topics}
    commands: list[RestoreGroup] = []
    cut: list[CutOffset] = []
    for each in state.groups:
        if each.group.name not in plan.groups:
            continue
        subscription = dict(each.group.subscription)
        if plan.beside:
            subscription = {names[t]: f for t, f in subscription.items() if t in names}
        rows: list[RestoredOffsets] = []
        for offsets in each.offsets:
            if offsets.topic_id in ids:
                queues = topics[offsets.topic_id].record.queues
                rows += _rows(each.group.name, offsets, queues, ids[offsets.topic_id], cut)
        head = RestoreGroup(each.group.name, each.group.config, subscription, [], plan.backup)
        chunks = list(_chunks(rows)) or [[]]
        commands += [msgspec.structs.replace(head, offsets=chunk) for chunk in chunks]
    return commands, cut


def _rows(
    group: str,
    offsets: GroupOffsets,
    queues: Sequence[QueueRecord],
    topic_id: int,
    cut: list[CutOffset],
) -> Iterator[RestoredOffsets]:
    ranges = dict(offsets.ranges)
    row = RestoredOffsets(topic_id, 0, [], [], [])
    size = 0
    for queue, (committed, seen) in enumerate(
        zip(offsets.committed, offsets.seen_ends, strict=True)
    ):
        if queue >= len(queues):
            break
        end, kept = queues[queue].end[0], ranges.get(queue, b"")
        if committed > end:
            cut.append(CutOffset(group, offsets.topic, queue, committed, end))
        if seen > end:
            kept = b""  # Finished messages beyond the end are not there.
        full = len(row.committed) >= OFFSETS_AT_ONCE or size + len(kept) > COMMAND_BYTES // 4
        if row.committed and full:
            yield row
            row, size = RestoredOffsets(topic_id, queue, [], [], []), 0
        row.committed.append(min(committed, end) if committed != UNKNOWN_START else committed)
        row.seen_ends.append(min(seen, end))
        if kept:
            row.ranges.append((queue, kept))
        size += len(kept) + 24
    if row.committed:
        yield row


def _chunks(rows: Iterable[RestoredOffsets]) -> Iterator[list[RestoredOffsets]]:
    chunk: list[RestoredOffsets] = []
    size = 0
    for row in rows:
        more = len(msgspec.msgpack.encode(row))
        if chunk and size + more > COMMAND_BYTES // 2:
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += more
    if chunk:
        yield chunk


def outstanding_decisions(state: ClusterSnapshot, ids: Mapping[int, int]) -> list[RestoredDecision]:
    """Return the decisions that queues had not reported at the cut, in their order."""
    found: list[RestoredDecision] = []
    for each in sorted(state.decisions, key=lambda decision: decision.number):
        queues = [
            ParkedBatches(ids[parked.topic_id], parked.queue, parked.places)
            for parked in each.queues
            if parked.topic_id in ids
        ]
        if queues:
            whose = (each.app_id, each.sequence, each.attempt)
            found.append(RestoredDecision(*whose, each.commit, queues))
    return found


def undecided_aborts(
    found: Iterable[OpenTransaction],
    ours: Collection[int],
    decisions: Iterable[RestoredDecision],
) -> list[RestoredDecision]:
    """Return aborts of what waits in the restored queues for a decision that nobody makes.

    Args:
        found: all that waits in the cluster.
        ours: ids of the restored topics.
        decisions: those of the cut, which end what they name.
    """
    decided = {
        (each.app_id, each.sequence, parked.topic_id, parked.queue)
        for each in decisions
        for parked in each.queues
    }
    aborts: list[RestoredDecision] = []
    for each in found:
        if each.is_half:
            continue
        queues = sorted({(batch.topic_id, batch.queue) for batch in each.parked})
        parked = [
            ParkedBatches(*key, [])
            for key in queues
            if key[0] in ours and (each.app_id, each.sequence, *key) not in decided
        ]
        if parked:
            aborts.append(RestoredDecision(each.app_id, each.sequence, each.attempt, False, parked))
    return aborts


def lists_all(found: Iterable[OpenTransaction], undecided: Mapping[tuple[int, int], int]) -> bool:
    """Return True if a list has all batches that wait in the restored queues.

    A broker lists those of the queues that it leads, as far as it knows them then.

    Args:
        undecided: (topic id, queue) → how many wait there.
    """
    listed = Counter((batch.topic_id, batch.queue) for each in found for batch in each.parked)
    return all(listed[key] >= count for key, count in undecided.items())


def known_applications(state: ClusterSnapshot) -> list[RestoredApplication]:
    """Return what is known of applications; producers of before the cut are fenced."""
    return [
        RestoredApplication(
            each.app_id, each.epoch + 1, each.committed, each.aborted, each.used_ms, each.owner
        )
        for each in state.applications
    ]


def decision_commands(
    backup: str, applications: Sequence[RestoredApplication], decisions: Sequence[RestoredDecision]
) -> Iterator[RestoreDecisions]:
    """Yield the commands that add them, in their order."""
    apps: list[RestoredApplication] = []
    made: list[RestoredDecision] = []
    size = 0
    for each in (*applications, *decisions):
        more = len(msgspec.msgpack.encode(each))
        if size and size + more > COMMAND_BYTES:
            yield RestoreDecisions(apps, made, backup)
            apps, made, size = [], [], 0
        if isinstance(each, RestoredApplication):
            apps.append(each)
        elif isinstance(each, RestoredDecision):
            made.append(each)
        size += more
    if size:
        yield RestoreDecisions(apps, made, backup)
