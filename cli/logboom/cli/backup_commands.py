"""`logboom backup`: back up a cluster to a folder or an object store, and look after its backups."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from cyclopts import App, Parameter

from logboom.backup.backup_checks import verify as verify_backup
from logboom.backup.backup_format import Manifest, TopicRecord
from logboom.backup.backup_pruning import prune as prune_backups
from logboom.backup.backup_pruning import survey_pruning
from logboom.backup.backup_reader import BackupReader
from logboom.backup.backup_writer import BackupOptions, BackupWriter
from logboom.backup.object_store import BackupStore
from logboom.backup.restore import Restore, abandon_restore, check_files, free_bytes
from logboom.backup.restore_plan import (
    RestoreOptions,
    RestorePlan,
    backup_mark,
    check_room,
    plan_restore,
)
from logboom.backup.user_restore import restore_users
from logboom.cli.connection import open_operator_client
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import Apply, OperatorServers, Output
from logboom.cli.progress_bar import progress
from logboom.client import Client
from logboom.client.written_values import bytes_text, counted, size_bytes
from logboom.wire.errors import InvalidRequest, LogboomError

app = App(
    name="backup",
    help="Backups of a cluster: create, look at, verify, restore, prune.\n\n"
    "A backup has topics with their messages, groups with their offsets, subscriptions, "
    "transactions, users and rules, as of one cut that is true for all of them. It goes to a folder "
    "or to an object store (`s3://bucket/folder`, `gs://…`), of which you need the library "
    "(`pip install s3fs`) and whose credentials are taken from where that takes them.",
)

BackupUrl: TypeAlias = Annotated[
    str, Parameter(help="A folder, or a URL such as s3://bucket/folder, that holds your backups.")
]
BackupId: TypeAlias = Annotated[
    str, Parameter(help="A backup, as `logboom backup list` shows it; the newest by default.")
]
TopicPatterns: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name=["--topics", "--topic", "-t"],
        help="Only these: names or patterns such as 'orders*'.",
        consume_multiple=True,
        negative="",
    ),
]


@app.command
def create(
    url: BackupUrl,
    /,
    *,
    topics: TopicPatterns = None,
    base: Annotated[
        Literal["latest", "none"],
        Parameter(
            help="latest: continue from the newest backup there, so that only what is new is "
            "copied. none: copy everything."
        ),
    ] = "latest",
    rate: Annotated[
        str, Parameter(help="Read at most this much per second: 50m; any is no limit.")
    ] = "any",
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Back up the cluster while it runs. Producers and consumers go on.

    If it is interrupted, give the same command again: it continues. For example:

        logboom backup create /backups/prod
        logboom backup create s3://acme-backups/prod --rate 50m
        logboom backup create /backups/orders --topics 'orders*' --base none
    """
    limit = _rate(rate)
    store = BackupStore(url)
    options = BackupOptions(tuple(topics or ()), base == "latest", limit)
    with open_operator_client(servers) as boom, progress("backup", 0, in_bytes=True) as bar:

        def show_progress(done: int, total: int) -> None:
            bar.expect(total)
            bar.to(done)

        writer = BackupWriter(boom, store, options, show_progress)
        try:
            manifest = writer.create()
        # Ctrl-C too: it is said how to go on.
        except BaseException:
            if writer.id:
                note(f"backup {writer.id} is not finished: the same command continues it")
            raise
    for text in manifest.notes:
        note(text)
    if output == "json":
        show_json(_row(manifest))
        return
    continued = f", continues {manifest.base}" if manifest.base else ""
    print(
        f"backup {manifest.id}: {counted(len(manifest.topics), 'topic')}, "
        f"{counted(manifest.messages, 'message')}, {bytes_text(manifest.new_bytes)} new of "
        f"{bytes_text(manifest.size)}{continued}"
    )


@app.command(name="list")
def list_backups(url: BackupUrl, /, *, output: Output = "table") -> None:
    """List the backups, oldest first.

    For example:

        logboom backup list /backups/prod
    """
    reader = BackupReader(BackupStore(url))
    rows: list[dict[str, Any]] = []
    finished, unfinished = reader.found()
    for backup in finished:
        try:
            manifest = reader.find_manifest(backup)
        except LogboomError as error:
            rows.append({"id": backup, "state": "damaged", "text": error.text})
        else:
            rows += [] if manifest is None else [_row(manifest)]
    rows += [{"id": backup, "state": "unfinished"} for backup in unfinished]
    rows.sort(key=lambda row: str(row["id"]))
    if output == "table":
        for row in rows:
            for name in ("size", "new_bytes"):
                if name in row:
                    row[name] = bytes_text(row[name])
    columns = ["id", "state", "base", "topics", "messages", "size", "new_bytes", "seconds"]
    show(rows, columns, output)


@app.command(name="show")
def show_backup(url: BackupUrl, backup: BackupId = "", /, *, output: Output = "table") -> None:
    """Show what a backup holds: its topics, groups and users, and what it could not copy.

    For example:

        logboom backup show /backups/prod
        logboom backup show /backups/prod 20261124T021500Z -o json
    """
    reader = BackupReader(BackupStore(url))
    manifest = reader.manifest(backup)
    state = reader.state(manifest)
    rows = [_topic_row(topic) for topic in manifest.topics]
    groups = [each.group.name for each in state.groups]
    users = [user.name for user in state.users]
    if output == "json":
        about = {"groups": groups, "users": users, "notes": manifest.notes, "topics": rows}
        show_json(_row(manifest) | about | {"needs": sorted(manifest.needs())})
        return
    print(f"backup {manifest.id} of cluster {manifest.cluster_id}")
    print(f"begun {_time(manifest.begun_ms)}, ended {_time(manifest.ended_ms)}")
    if manifest.base:
        print(f"needs files of {', '.join(sorted(manifest.needs() - {manifest.id}))}")
    print(f"groups: {', '.join(groups) or 'none'}")
    print(f"users: {', '.join(users) or 'none'}")
    for text in manifest.notes:
        print(f"note: {text}")
    for row in rows:
        row["size"] = bytes_text(row["size"])
    show(rows, ["topic", "queues", "messages", "size"], output)


@app.command
def verify(url: BackupUrl, backup: BackupId = "", /, *, output: Output = "table") -> int:
    """Read a backup back, with all files of earlier ones that it needs, and check every checksum.

    The exit code is 1 if anything is missing, truncated or damaged. For example:

        logboom backup verify /backups/prod
    """
    reader = BackupReader(BackupStore(url))
    manifest = reader.manifest(backup)
    with progress("verify", manifest.size, in_bytes=True) as bar:
        check = verify_backup(reader, manifest, bar.to)
    if output == "json":
        show_json(check)
    else:
        for fault in check.faults:
            print(f"{fault.file}: {fault.fault}")
        if check.faults:
            print(f"backup {check.backup}: {counted(len(check.faults), 'fault')}")
        else:
            print(
                f"backup {check.backup}: {counted(check.files, 'file')}, "
                f"{bytes_text(check.size)}, {counted(check.messages, 'message')}: all sound"
            )
    return int(bool(check.faults))


@app.command
def restore(
    url: BackupUrl,
    backup: BackupId = "",
    /,
    *,
    topics: TopicPatterns = None,
    new_name: Annotated[
        str, Parameter(name="--as", help="Restore the one topic under this name, beside others.")
    ] = "",
    prefix: Annotated[
        str, Parameter(help="Put this before the names of all topics, and restore beside others.")
    ] = "",
    replicas: Annotated[
        int, Parameter(help="Copies of each queue; by default as many as there were.")
    ] = 0,
    users: Annotated[
        bool, Parameter(help="Restore users with their public keys, roles and rules, too.")
    ] = False,
    abandon: Annotated[
        bool, Parameter(help="Give up a restore that was interrupted: delete its topics.")
    ] = False,
    yes: Apply = False,
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Restore a backup into a cluster: everything into an empty one, or topics beside others.

    Until it has ended, the topics take and give no messages. If it is interrupted, give the same
    command again: it continues. Without --yes it only says what it would do. For example:

        logboom backup restore /backups/prod --yes
        logboom backup restore /backups/prod --topics flights --as flights-restored --yes
        logboom backup restore /backups/prod 20261124T021500Z --prefix restored- --yes
    """
    reader = BackupReader(BackupStore(url))
    manifest = reader.manifest(backup)
    with open_operator_client(servers) as boom:
        if abandon:
            _abandon(boom, manifest, yes=yes, output=output)
            return
        state = reader.state(manifest)
        options = RestoreOptions(tuple(topics or ()), new_name, prefix, replicas)
        target = boom.admin.read_state()
        plan = plan_restore(manifest, state, target, options)
        plan.notes.extend(check_room(plan, free_bytes(boom)))
        check_files(reader, plan)
        if not yes:
            _show_plan(manifest, plan, output)
            return
        for text in plan.notes:
            note(text)
        with progress("restore", plan.size, in_bytes=True) as bar:
            try:
                report = Restore(boom, reader, manifest, state, plan, bar.to).run()
            # Ctrl-C too: it is said how to go on.
            except BaseException:
                note(
                    "the restore is not finished, and its topics wait: the same command continues "
                    "it, --abandon deletes them"
                )
                raise
        restored = restore_users(boom, state, target) if users else []
    if output == "json":
        show_json({**msgspec.structs.asdict(report), "users": restored})
        return
    print(
        f"backup {report.backup}: {counted(len(report.topics), 'topic')}, "
        f"{counted(report.messages, 'message')}, {bytes_text(report.size)} restored; "
        f"{counted(len(report.groups), 'group')}, {counted(len(restored), 'user')}"
    )
    for cut in report.offsets_cut:
        print(
            f"group {cut.group}: offset {cut.committed} in {cut.topic}/{cut.queue} is beyond the "
            f"end, it begins at {cut.restored}"
        )
    if report.transactions_aborted:
        print(f"{counted(report.transactions_aborted, 'undecided transaction')} aborted")


def _abandon(
    boom: Client, manifest: Manifest, *, yes: bool, output: Literal["table", "json"]
) -> None:
    mark = backup_mark(manifest)
    if yes:
        gone = abandon_restore(boom, mark)
    else:
        gone = [each.name for each in boom.admin.read_state().topics if each.restoring == mark]
    if output == "json":
        show_json({"topics": gone, "deleted": yes})
        return
    print(f"{'deleted' if yes else 'would be deleted'}: {', '.join(gone) or 'nothing'}")
    if gone and not yes:
        note("say --yes to delete them")


def _show_plan(manifest: Manifest, plan: RestorePlan, output: Literal["table", "json"]) -> None:
    rows = [
        _topic_row(topic.record) | {"as": topic.command.name, "replicas": topic.command.replicas}
        for topic in plan.topics
    ]
    if output == "json":
        show_json(
            {
                "backup": manifest.id,
                "messages": plan.messages,
                "size": plan.size,
                "groups": plan.groups,
                "resumed": plan.resumed,
                "settings": plan.settings,
                "default_quota": plan.default_quota,
                "notes": plan.notes,
                "topics": rows,
            }
        )
        return
    begun = "would be continued" if plan.resumed else "would be restored"
    print(
        f"backup {manifest.id}: {counted(len(rows), 'topic')}, "
        f"{counted(plan.messages, 'message')}, {bytes_text(plan.size)} {begun}"
    )
    print(f"groups: {', '.join(plan.groups) or 'none'}")
    for each in plan.settings:
        print(f"setting: {each.name} = {each.value}{f' of {each.scope}' if each.scope else ''}")
    if plan.default_quota is not None:
        limits = msgspec.structs.asdict(plan.default_quota).items()
        print(f"default quota: {', '.join(f'{name} {limit}' for name, limit in limits if limit)}")
    for text in plan.notes:
        print(f"note: {text}")
    for row in rows:
        row["size"] = bytes_text(row["size"])
    show(rows, ["topic", "as", "queues", "replicas", "messages", "size"], output)
    note("say --yes to restore them")


@app.command
def prune(
    url: BackupUrl,
    /,
    *,
    keep: Annotated[int, Parameter(help="How many of the newest backups to keep.")],
    yes: Apply = False,
    output: Output = "table",
) -> None:
    """Remove all but the newest backups. Files that a kept one needs stay.

    Incremental backups need the files of those before them, so space becomes free once a backup
    with `--base none` is among the kept ones. Without --yes it only says what it would do. For
    example:

        logboom backup prune /backups/prod --keep 7 --yes
    """
    if keep < 1:
        raise InvalidRequest("--keep: keep at least one backup")
    store = BackupStore(url)
    reader = BackupReader(store)
    plan = survey_pruning(reader, keep, time.time())
    if yes:
        plan = prune_backups(store, reader, plan, keep, time.time())
    if output == "json":
        show_json(plan)
        return
    done = "removed" if yes else "would be removed"
    print(f"{done}: {', '.join(plan.removed) or 'nothing'} ({bytes_text(plan.size)})")
    print(f"kept: {', '.join(plan.kept) or 'nothing'}")
    if not yes and plan.removed:
        note("say --yes to remove them")


def _row(manifest: Manifest) -> dict[str, Any]:
    return {
        "id": manifest.id,
        "state": "finished",
        "base": manifest.base or None,
        "cluster_id": manifest.cluster_id,
        "topics": len(manifest.topics),
        "messages": manifest.messages,
        "size": manifest.size,
        "new_bytes": manifest.new_bytes,
        "seconds": round((manifest.ended_ms - manifest.begun_ms) / 1000, 1),
        "begun": _time(manifest.begun_ms),
        "notes": len(manifest.notes),
    }


def _topic_row(topic: TopicRecord) -> dict[str, Any]:
    """Return what a backup holds of a topic."""
    return {
        "topic": topic.name,
        "queues": len(topic.queues),
        "messages": sum(each.messages for q in topic.queues for each in q.segments),
        "size": sum(each.size for q in topic.queues for each in (*q.segments, *q.copies)),
    }


def _rate(text: str) -> int:
    found = size_bytes(text)
    if found == 0:
        raise InvalidRequest("--rate 0 would never end: write 50m, or any")
    return max(0, found)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
