"""`python -m tests.chaos`: break a real cluster under load, write .logboom/chaos/report.html.

Producers, readers, a consumer group and two subscriptions are at work on three name servers and three brokers while one
fault after the other strikes: each once, then at random until the minutes are over. Meanwhile the
group's members and the subscriptions' consumers join, leave, are killed and stop for longer than their
session. Then a bulk load of large batches must be taken, and an empty disk be filled while nobody
sends anything. At the end every
message that was acknowledged must lie where it was said, once, in order, on all replicas, have been
read by everybody and consumed by the group; and what a member had finished must not have come again
unless it was killed or not heard. No node may have ended by itself or logged a fault, and no queue
been without service for longer than promised, unless `--busy` allows for it. The exit code is 1 if
it is otherwise.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

from tests.chaos.disk import unmount_below
from tests.chaos.faults import DISASTERS, FAULTS, OPERATIONS
from tests.chaos.links import ProxyLinks
from tests.chaos.namespaces import NamespaceLinks, obstacle
from tests.chaos.plan import Plan
from tests.chaos.report import bar_of, write
from tests.chaos.run import run

LINKS = (ProxyLinks.kind, NamespaceLinks.kind)
BROKEN_OFF = 128 + signal.SIGINT
FOLDER = Path(".logboom/chaos")


def main() -> int:
    """Run it as the options say."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of the choice of faults")
    parser.add_argument(
        "--minutes", type=float, help="how long (5; each once with --operations and --disasters)"
    )
    parser.add_argument("--faults", default="", help=f"some of: {', '.join(FAULTS)}")
    parser.add_argument(
        "--operations",
        action="store_true",
        help="each once, and no minutes: the cluster is rolled, grows to five brokers, shrinks to"
        " three and is rolled again, with kills meanwhile",
    )
    parser.add_argument(
        "--disasters",
        action="store_true",
        help="each once, then at random for --minutes: a lagging name server goes on alone, odd"
        " endpoints are typed, clocks jump to and fro, backups are pruned while one is made",
    )
    parser.add_argument(
        "--links", choices=LINKS, default=LINKS[0], help=f"what stands between nodes ({LINKS[0]})"
    )
    parser.add_argument("--rate", type=float, default=6_000.0, help="messages a second (6000)")
    parser.add_argument(
        "--busy",
        type=float,
        default=1.0,
        help="how often as long a queue may be without service after one fault, on a machine that"
        " does other work (1)",
    )
    parser.add_argument(
        "--bulk", type=int, default=30_000, help="messages of the bulk load at the end (30000)"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where to ({FOLDER})")
    parser.add_argument("--keep", action="store_true", help="keep the cluster's data too")
    given = parser.parse_args()
    for chosen, option in ((OPERATIONS, "operations"), (DISASTERS, "disasters")):
        if vars(given)[option]:
            if given.faults:
                parser.error(f"--{option} chooses the faults itself: leave the others out")
            given.faults = ",".join(chosen)
    if given.minutes is None or given.operations:
        given.minutes = 0.0 if given.operations or given.disasters else 5.0
    names = [name.strip() for name in given.faults.split(",") if name.strip()] or list(FAULTS)
    if given.links == NamespaceLinks.kind and (reason := obstacle()):
        parser.error(f"no network namespaces: {reason}")
    if unknown := [name for name in names if name not in FAULTS]:
        parser.error(f"no fault {unknown[0]!r}: choose from {', '.join(FAULTS)}")
    names = [name for name in names if FAULTS[name].needs in {"", given.links}]
    if not names:
        parser.error(f"{given.faults} needs other links: leave --links {given.links} out")
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    folder = given.folder.absolute()
    work = folder / "run"
    if work.exists():
        unmount_below(work)
        shutil.rmtree(work)
    # As Ctrl-C: everything is stopped, unmounted and removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(
        f"seed {seed}, {given.links}, {len(names)} kinds of faults, {given.minutes} minutes",
        flush=True,
    )
    plan = Plan(
        seed,
        given.minutes * 60,
        names,
        given.rate,
        work,
        given.links,
        bulk=given.bulk,
        busy=given.busy,
        say=lambda line: print(line, flush=True),
    )
    try:
        result = run(plan)
    except KeyboardInterrupt:
        print(f"broken off; what there was is in {work}")
        return BROKEN_OFF
    data, page = write(result, folder)
    verdict = result.verdict
    print(
        f"acknowledged {verdict.acked:,}, stored {verdict.stored:,}, read {verdict.read:,}, "
        f"given up {verdict.failed:,}; {len(result.events)} faults in {result.seconds:.0f} s; "
        f"longest outage of a queue after one fault {result.longest_outage:.2f} s (bar {bar_of(result)}), "
        f"without a message read {result.longest_silence:.2f} s"
    )
    group = result.group
    befell = ", ".join(f"{times} {what}" for what, times in group.fates.items() if times)
    print(
        f"group: delivered {group.delivered:,}, of these again {group.again:,}; "
        f"failed {group.failed:,}, copies of these delivered {group.copies:,}, "
        f"dead letters {group.dead:,}; "
        f"{group.owners} owners of queues; members: {befell}; "
        f"longest time without a message of a queue {group.longest_pause:.2f} s"
    )
    figures = result.subscriptions
    print(
        f"subscriptions: handed out {figures.handed:,}, of these again {figures.again:,}; "
        f"given back {figures.given_back:,}, confirmed {figures.confirmed:,}; consumers: "
        f"{figures.killed} killed, {figures.stopped} stopped"
    )
    if result.kept_aside:
        print(
            f"of topics that a lagging survivor had never heard of: {result.kept_aside:,} kept aside"
        )
    kinds = Counter(event.name for event in result.events)
    print(f"faults: {', '.join(f'{times} {name}' for name, times in sorted(kinds.items()))}")
    for line in result.ended:
        print(f"by itself: {line}")
    for name, count in verdict.broken.items():
        print(f"BROKEN: {name}: {count}, first: {verdict.details[name][0]}")
    print(
        f"{'every promise was kept' if verdict.clean else 'PROMISES WERE BROKEN'}: {page}, {data}"
    )
    if verdict.clean and not given.keep:
        shutil.rmtree(work)
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
