"""`logboom topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from cyclopts import App, Parameter

from logboom.cli.confirmation import confirmed
from logboom.cli.connection import open_client, open_operator_client
from logboom.cli.move_wait import agreed, report, wait_for
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import (
    Compaction,
    Confirmed,
    DeleteRetention,
    DispatchBytes,
    DispatchMessages,
    MaxMessage,
    MinInSync,
    OperatorServers,
    Output,
    Retention,
    RetentionBytes,
    Servers,
    TopicName,
    UncleanElection,
    Wait,
    WaitTimeout,
)
from logboom.client import Client
from logboom.client.move_plans import plan_replicas
from logboom.client.move_progress import moves_of
from logboom.client.written_values import (
    bytes_text,
    counted,
    duration_ms,
    duration_text,
    size_bytes,
)
from logboom.wire.errors import InvalidRequest
from logboom.wire.internal_topics import message_limit
from logboom.wire.view import QueueView, TopicConfig, TopicView

Switch: TypeAlias = Literal["on", "off"]

app = App(name="topic", help="Topics: create, list, describe, alter, delete; give up lost ones.")


@app.command
def create(
    name: str,
    *,
    queues: Annotated[int, Parameter(name=["--queues", "-q"])] = 4,
    replicas: Annotated[int, Parameter(name=["--replicas", "-r"])] = 0,
    min_in_sync: MinInSync[int] = 0,
    retention: Retention[str] = "7d",
    retention_bytes: RetentionBytes[str] = "any",
    max_message: MaxMessage[str] = "4m",
    unclean_election: Annotated[UncleanElection[bool], Parameter(negative="")] = False,
    compaction: Compaction[Switch] = "off",
    delete_retention: DeleteRetention[str] = "1d",
    dispatch_messages: DispatchMessages[int] = 0,
    dispatch_bytes: DispatchBytes[str] = "any",
    servers: Servers = None,
) -> None:
    """Create a topic.

    For example:

        logboom topic create flights --queues 8 --replicas 3 --retention 30d

    Parameters
    ----------
    name
        Its name: 1 to 127 characters of A-Z a-z 0-9 . _ % | -
    queues
        How many queues, 1 to 1024. More queues allow more consumers in parallel.
    replicas
        Copies of each queue; 0 means 3, or as many as there are brokers.
    """
    config = TopicConfig(
        min_in_sync=min_in_sync,
        retention_ms=duration_ms(retention),
        retention_bytes=size_bytes(retention_bytes),
        max_message_bytes=size_bytes(max_message),
        unclean_election=unclean_election,
        compaction=compaction == "on",
        delete_retention_ms=duration_ms(delete_retention),
        dispatch_messages_per_s=dispatch_messages,
        dispatch_bytes_per_s=max(0, size_bytes(dispatch_bytes)),
    )
    with open_client(servers) as boom:
        boom.admin.create_topic(
            name, queues=queues, replicas=replicas, **msgspec.structs.asdict(config)
        )
    note(f"created {name}")


@app.command(name="list")
def list_topics(*, servers: Servers = None, output: Output = "table") -> None:
    """List the topics.

    For example:

        logboom topic list -o json
    """
    with open_client(servers) as boom:
        topics = sorted(boom.admin.topics(), key=lambda topic: topic.name)
    rows = [_summary(topic) for topic in topics]
    columns = ["name", "queues", "replicas", "without_leader", "under_replicated", "retention"]
    show(rows, columns, output, least=("retention", "replicas", "queues"))


def _summary(topic: TopicView) -> dict[str, Any]:
    return {
        "name": topic.name,
        "queues": len(topic.queues),
        "replicas": topic.replicas
        or max((len(queue.replicas) for queue in topic.queues), default=0),
        "without_leader": sum(queue.leader is None for queue in topic.queues),
        "under_replicated": sum(len(q.isr) < len(q.replicas) for q in topic.queues),
        "retention": duration_text(topic.config.retention_ms),
    }


@app.command
def describe(name: TopicName, *, servers: Servers = None, output: Output = "table") -> None:
    """Show a topic's settings and, for each queue, its leader, replicas and offsets.

    For example:

        logboom topic describe flights
    """
    with open_client(servers) as boom:
        topic = boom.admin.describe_topic(name)
        offsets = _offsets(boom, topic)
        horizons = boom.admin.horizons(name) if topic.config.compaction else {}
    rows = [
        _queue(n, queue, offsets.get(n)) | {"horizon": horizons.get(n)}
        for n, queue in enumerate(topic.queues)
    ]
    settings = msgspec.structs.asdict(topic.config)
    if output == "json":
        show_json({"name": name, "id": topic.id, "config": settings, "queues": rows})
        return
    print(_settings_line(topic))
    columns = ["queue", "leader", "epoch", "replicas", "isr", "first_offset", "next_offset"]
    if topic.config.compaction:
        columns.append("horizon")
    show(rows, columns, output, least=("epoch", "horizon", "first_offset", "isr"))


def _offsets(boom: Client, topic: TopicView) -> dict[int, tuple[int, int]]:
    """Return the first and the next offset per queue. Queues without a leader are left out."""
    led = [n for n, queue in enumerate(topic.queues) if queue.leader is not None]
    return boom.admin.offsets(topic.name, led) if led else {}


def _queue(number: int, queue: QueueView, offsets: tuple[int, int] | None) -> dict[str, Any]:
    return {
        "queue": number,
        "leader": queue.leader or "no leader",
        "epoch": queue.leader_epoch,
        "replicas": queue.replicas,
        "isr": queue.isr,
        "eligible": queue.eligible,
        "first_offset": offsets[0] if offsets else None,
        "next_offset": offsets[1] if offsets else None,
    }


def _settings_line(topic: TopicView) -> str:
    config = topic.config
    size = config.retention_bytes
    return (
        f"{topic.name}: kept for {duration_text(config.retention_ms)}"
        f"{'' if size < 0 else f' or {bytes_text(size)} a queue'}, "
        f"messages up to {bytes_text(message_limit(topic))}, "
        f"min in sync {config.min_in_sync or 'majority'}"
        f"{', unclean election' if config.unclean_election else ''}"
        f"{_compaction_text(config)}"
        f"{_dispatch_text(config)}"
    )


def _compaction_text(config: TopicConfig) -> str:
    if not config.compaction:
        return ""
    kept = config.delete_retention_ms
    return (
        f", compacted, tombstones kept for {duration_text(kept)} after the log"
        if kept
        else ", compacted"
    )


def _dispatch_text(config: TopicConfig) -> str:
    """Return the dispatch rate of each queue, or "" without one."""
    messages, size = config.dispatch_messages_per_s, config.dispatch_bytes_per_s
    said = [f"{messages:,} messages/s"] * (messages > 0) + [f"{bytes_text(size)}/s"] * (size > 0)
    return f", each queue delivers up to {' and '.join(said)} to subscriptions" if said else ""


@app.command
def alter(
    name: TopicName,
    *,
    queues: Annotated[int | None, Parameter(name=["--queues", "-q"])] = None,
    replicas: Annotated[int | None, Parameter(name=["--replicas", "-r"])] = None,
    min_in_sync: MinInSync[int | None] = None,
    retention: Retention[str | None] = None,
    retention_bytes: RetentionBytes[str | None] = None,
    max_message: MaxMessage[str | None] = None,
    unclean_election: UncleanElection[bool | None] = None,
    compaction: Compaction[Switch | None] = None,
    delete_retention: DeleteRetention[str | None] = None,
    dispatch_messages: DispatchMessages[int | None] = None,
    dispatch_bytes: DispatchBytes[str | None] = None,
    wait: Wait = False,
    timeout: WaitTimeout = 0.0,
    yes: Confirmed = False,
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Change a topic's settings, its number of queues or replicas; what is not named stays.

    With another number of replicas it shows what that copies and costs, and asks. The name servers
    then add or remove replicas queue by queue; --wait waits for the last.

    For example:

        logboom topic alter flights --retention 30d --queues 16
        logboom topic alter flights --replicas 3 --yes --wait

    Parameters
    ----------
    queues
        The new number of queues, which can only grow. Keys may move to other queues.
    replicas
        The new number of copies of each queue, more or fewer.
    """
    settings: dict[str, Any] = {
        "min_in_sync": min_in_sync,
        "retention_ms": None if retention is None else duration_ms(retention),
        "retention_bytes": None if retention_bytes is None else size_bytes(retention_bytes),
        "max_message_bytes": None if max_message is None else size_bytes(max_message),
        "unclean_election": unclean_election,
        "compaction": None if compaction is None else compaction == "on",
        "delete_retention_ms": None if delete_retention is None else duration_ms(delete_retention),
        "dispatch_messages_per_s": dispatch_messages,
        "dispatch_bytes_per_s": (
            None if dispatch_bytes is None else max(0, size_bytes(dispatch_bytes))
        ),
    }
    changed = {key: value for key, value in settings.items() if value is not None}
    if not changed and queues is None and replicas is None:
        raise InvalidRequest("nothing to change: give --queues, --retention or another setting")
    with open_client(servers) as boom:
        if replicas is None:
            boom.admin.alter_topic(name, queues=queues, **changed)
            note(f"altered {name}")
            return
        topic = boom.admin.describe_topic(name)
        at_least = topic.config.min_in_sync if min_in_sync is None else min_in_sync
        plan = plan_replicas(boom.admin.describe_cluster(name), topic, replicas, at_least)
        question = f"Give {name} {counted(replicas, 'replica')}?"
        if not agreed(plan, question, "nothing was changed", yes=yes, output=output):
            return
        boom.admin.alter_topic(name, queues=queues, replicas=replicas, **changed)
        look = (
            f"see `logboom queue list --topic {name}`, go back with "
            f"`logboom topic alter {name} --replicas {plan.facts['replicas_before']}`"
        )
        if not wait and not _has_replicas(boom, name, replicas):
            report(plan, "begun", f"altered {name}, replicas follow: {look}", output)
            return
        wait_for(
            boom,
            f"{name} gets {counted(replicas, 'replica')}",
            lambda now: _has_replicas(boom, name, replicas),
            lambda now: moves_of(now.moves, topic=name),
            expected_bytes=plan.copied_bytes,
            timeout_s=timeout,
            goes_on=f"The name servers go on with it: {look}",
        )
    report(plan, "done", f"altered {name}", output)


def _has_replicas(boom: Client, name: str, replicas: int) -> bool:
    """Return True if every queue has so many replicas and none is moved."""
    return all(
        len(queue.replicas) == replicas and not queue.adding and not queue.removing
        for queue in boom.admin.describe_topic(name).queues
    )


@app.command
def delete(name: TopicName, *, yes: Confirmed = False, servers: Servers = None) -> None:
    """Delete a topic with all its messages.

    For example:

        logboom topic delete flights --yes
    """
    refusal = f"deleting {name} cannot be undone: say --yes to do it"
    question = f"Delete {name} with all its messages?"
    if not (yes or confirmed(question, refusal, "nothing was deleted")):
        return
    with open_client(servers) as boom:
        boom.admin.delete_topic(name)
    note(f"deleted {name}")


@app.command
def discard_lost(topic_id: int, *, yes: Confirmed = False, servers: OperatorServers = None) -> None:
    """Give up a topic that the name servers have lost: brokers delete what they kept of it.

    After `logboom name-server recover`, brokers keep the replicas of topics that the survivor has never
    heard of. `logboom doctor` names their ids, and OPERATING.md tells what to do first.

    For example:

        logboom topic discard-lost 17 --yes

    Parameters
    ----------
    topic_id
        Its id, as doctor names it.
    """
    refusal = f"deleting what is left of topic {topic_id} cannot be undone: say --yes to do it"
    question = f"Delete what brokers have kept of the lost topic {topic_id}?"
    if not (yes or confirmed(question, refusal, "nothing was deleted")):
        return
    with open_operator_client(servers) as boom:
        boom.admin.discard_lost_topic(topic_id)
    note(f"gave up topic {topic_id}: brokers delete what they had kept of it")
