"""The last backup of a run, restored into a fresh cluster, holds what was acknowledged before it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from logboom.deploy import Cluster
from logboom.deploy.layout import KEY_FILE
from logboom.wire.errors import StartError
from tests.chaos.ledger import Verdict
from tests.chaos.plan import Plan
from tests.chaos.record import Acked, Record
from tests.chaos.replicas import stored
from tests.chaos.rig import TOPIC
from tests.sim.judges.logs import Log, Stored

RESTORED: Final = "what was acknowledged before a backup is restored from it, as it was"
RESTORE_S: Final = 400.0


def judge_restored(
    records: Sequence[Record],
    held: Mapping[int, Sequence[Stored]],
    restored: Mapping[int, Sequence[Stored]],
    begun: float,
    verdict: Verdict,
) -> int:
    """Put what is wrong into `verdict`; how many messages were restored.

    Args:
        records: of all clients.
        held: queue → what its replicas hold in the end.
        restored: queue → what was restored.
        begun: when the backup began, in seconds of the records.
        verdict: what is wrong goes in there.
    """
    ends: dict[int, int] = {}
    for queue, rows in restored.items():
        log = Log(queue, held[queue])
        for row in rows:
            for detail in log.differing(row.offset, row.stream, row.first, row.count):
                verdict.found(RESTORED, f"restored at {detail}")
        ends[queue] = sum(row.count for row in rows)
    for record in records:
        if isinstance(record, Acked) and record.at < begun:
            lacks = record.offset + record.count - ends.get(record.queue, 0)
            if lacks > 0:
                detail = f"queue {record.queue} ends at {ends.get(record.queue, 0)}"
                verdict.found(RESTORED, f"{detail}, {record.offset} was acknowledged before", lacks)
    return sum(ends.values())


def restore(
    plan: Plan,
    records: Sequence[Record],
    held: Mapping[int, Sequence[Stored]],
    begun: float,
    verdict: Verdict,
) -> None:
    """Restore the newest backup into one name server and one broker, and judge it."""
    try:
        restored = _restored(plan, verdict)
    except (StartError, subprocess.TimeoutExpired) as error:
        verdict.found(RESTORED, str(error)[-600:])
        return
    count = judge_restored(records, held, restored, begun, verdict)
    plan.say(f"the last backup: {count:,} messages restored into a fresh cluster and compared")


def _restored(plan: Plan, verdict: Verdict) -> dict[int, list[Stored]]:
    with Cluster(1, 1, plan.folder / "restored") as cluster:
        command = [sys.executable, "-m", "logboom.cli", "backup", "restore"]
        command += [str(plan.backups), "--replicas", "1", "--yes"]
        command += ["--servers", ",".join(cluster.endpoints)]
        command += ["--key-file", str(cluster.data / KEY_FILE)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RESTORE_S, check=False
        )
        if done.returncode:
            raise StartError(f"restore: {(done.stderr or done.stdout)[-600:]}")
        topic = next(each for each in cluster.view([TOPIC]).topics if each.name == TOPIC)
        folders = {"broker-1": cluster.data / "broker-1" / "data"}
        cluster.stop("broker-1")
        return stored(folders, topic.id, [["broker-1"]] * plan.queues, verdict)
