"""logboom beside Kafka, RocketMQ, Redis Streams, NATS JetStream and RabbitMQ streams on this machine.

Every rival runs on the loopback of a network of its own, with an fsync before each acknowledgement, where it has one; the
table says where it has not. All run at once, and take turns in short bursts in random order; the
figures are medians over the rounds. What a rival needs is installed into the cache (Python clients,
jars, a server built by Go) or named with the line that installs it (Debian packages); a rival that is
missing is left out, and the others go on. Every process that this starts ends with it, also on Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from bench.rivals import limits, machine, private_network
from bench.rivals.bursts import Contest, Measured, Plan
from bench.rivals.installs import Cache, default_folder
from bench.rivals.plots import plots
from bench.rivals.report import markdown
from bench.rivals.results import OWN, Competitor, RunReport, merge
from bench.rivals.rival import RivalUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.rivals.rival import Rival

MODULES: Final = {
    "logboom": "bench.rivals.logboom",
    "kafka": "bench.rivals.kafka",
    "rocketmq": "bench.rivals.rocketmq",
    "redis": "bench.rivals.redis_streams",
    "nats": "bench.rivals.nats_jetstream",
    "rabbitmq": "bench.rivals.rabbitmq_streams",
}
"""Name → module of each rival."""
QUICK: Final = Plan(
    sizes=(100,), codecs=("none",), rounds=1, burst_s=0.1, latency_s=0.5, warm_up_s=0.2
)
EPILOG: Final = """\
examples:
  make bench-rivals                                   all rivals, about 15 minutes
  make bench-rivals ARGS="--quick --rivals kafka"     does it run? about a minute
  make bench-rivals ARGS="--rivals kafka,nats --brokers 3 --rounds 10"
  make bench-rivals ARGS="--report one.json three.json --out figures"
                                                      write tables and plots of earlier runs again

Leave the machine alone meanwhile: the report says how many cores others took.
"""


def say(text: str) -> None:
    """Tell the user on standard error."""
    print(text, file=sys.stderr, flush=True)


def numbers(text: str) -> tuple[int, ...]:
    """Convert "1,3" to numbers."""
    return tuple(int(part) for part in text.split(","))


def words(text: str) -> tuple[str, ...]:
    """Convert "none,lz4" to words."""
    return tuple(text.split(","))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="make bench-rivals",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    others = [name for name in MODULES if name != OWN]
    add("--rivals", type=words, default=others, help=f"of {','.join(others)}; logboom always is")
    add("--brokers", type=numbers, default=(1, 3), help="1,3: how many brokers, and replicas")
    add("--sizes", type=numbers, help="100,1024: bytes of a message")
    add("--codecs", type=words, help="none,lz4")
    add("--rounds", type=int, help="5: each rival does all work once in each")
    add("--burst-s", type=float, help="0.4: seconds of a burst")
    add("--quick", action="store_true", help="one short round of 100 B, to see that it runs")
    add("--seed", type=int, default=1, help="of the order of the bursts")
    add("--cache", type=Path, default=default_folder(), help="what is installed; %(default)s")
    add("--data", type=Path, help="a folder on the disk to measure; that of --out")
    add("--out", type=Path, default=Path(".logboom/rivals"), help="of the report; %(default)s")
    add(
        "--report", type=Path, nargs="+", metavar="JSON", help="only write these runs' report again"
    )
    return found


def plan_of(arguments: argparse.Namespace) -> Plan:
    """Return what the command line asks for."""
    given = {name: getattr(arguments, name) for name in ("sizes", "codecs", "rounds", "burst_s")}
    changes = {name: value for name, value in given.items() if value is not None}
    base = QUICK if arguments.quick else Plan()
    return msgspec.structs.replace(base, seed=arguments.seed, **changes)


def check(arguments: argparse.Namespace, found: argparse.ArgumentParser) -> None:
    """End with a usage error if an argument is invalid."""
    if unknown := [name for name in arguments.rivals if name not in MODULES]:
        found.error(f"no rival {unknown[0]!r}: choose from {', '.join(MODULES)}")
    if not set(arguments.brokers) <= {1, 3}:
        found.error("--brokers takes 1, 3 or 1,3")
    if not set(arguments.codecs or ()) <= {"none", "lz4"}:
        found.error("--codecs takes none, lz4 or none,lz4")
    if arguments.rounds is not None and arguments.rounds < 1:
        found.error("--rounds is 1 or more")
    if any(size < 100 for size in arguments.sizes or ()):
        found.error("--sizes are 100 or more")


def install(names: Sequence[str], cache: Cache) -> tuple[list[Rival], list[Competitor]]:
    """Return the rivals that can run, and all with what is known of them."""
    rivals, competitors = [], []
    for name in dict.fromkeys((OWN, *names)):
        rival: Rival = importlib.import_module(MODULES[name]).RIVAL(cache)
        try:
            version = rival.install()
        except RivalUnavailable as error:
            say(f"{rival.title} is left out: {error}")
            competitors.append(Competitor(name, rival.title, left_out={"all": str(error)}))
            continue
        rivals.append(rival)
        competitors.append(
            Competitor(name, rival.title, version, rival.durability, dict(rival.left_out))
        )
    return rivals, competitors


def run(arguments: argparse.Namespace) -> RunReport:
    """Install and measure."""
    plan = plan_of(arguments)
    rivals, competitors = install(arguments.rivals, Cache(arguments.cache))
    arguments.out.mkdir(parents=True, exist_ok=True)
    # Not in /tmp, which may be memory: then nothing would reach a disk.
    disk = arguments.data or arguments.out
    disk.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="data-", dir=disk.absolute()))
    p50, p99 = limits.sync_ms(folder)
    about = machine.describe()
    about |= {"fdatasync_p50_ms": f"{p50:.2f}", "fdatasync_p99_ms": f"{p99:.2f}"}
    report = RunReport(time.strftime("%Y-%m-%d"), about, plan.rounds, competitors, [])
    exposed = ""
    try:
        private_network.enter()
    except OSError as error:
        exposed = f"its servers listen on all addresses, and no private network is allowed: {error}"
    try:
        for brokers in arguments.brokers:
            inner = folder / f"brokers-{brokers}"
            with Contest(plan, brokers, inner, say) as contest:
                for rival in rivals:
                    if exposed and brokers in rival.exposed_with:
                        contest.take_out(rival, exposed)
                    elif brokers in rival.broker_counts:
                        contest.enter(rival)
                contest.run()
            add(report, contest.found, brokers)
            # The logs tell why a rival failed.
            if not contest.found.failures:
                shutil.rmtree(inner, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    with contextlib.suppress(OSError):
        folder.rmdir()
    return report


def add(report: RunReport, found: Measured, brokers: int) -> None:
    """Add what was measured with so many brokers to the report."""
    report.results += found.results
    report.idle_cores[str(brokers)] = found.idle_cores
    report.foreign_cores[str(brokers)] = found.foreign_cores
    for at, each in enumerate(report.competitors):
        if each.name in found.failures:
            left_out = each.left_out | {f"{brokers} brokers": found.failures[each.name]}
            report.competitors[at] = msgspec.structs.replace(each, left_out=left_out)


def write(report: RunReport, folder: Path) -> None:
    """Write JSON, Markdown and plots."""
    folder.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(report), indent=1)
    (folder / "rivals.json").write_bytes(encoded + b"\n")
    text = markdown(report)
    (folder / "rivals.md").write_text(text, "utf-8")
    for name, drawn in plots(report).items():
        (folder / name).write_text(drawn, "utf-8")
    print(text)
    say(f"written to {folder}")


def end(*_: object) -> NoReturn:
    """End as on Ctrl-C, so that everything started is ended first."""
    raise KeyboardInterrupt


def main() -> int:
    """Measure or report, and return the exit code."""
    found = parser()
    arguments = found.parse_args()
    check(arguments, found)
    # SIGINT too, because shells start what runs in their background with it ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    if arguments.report:
        try:
            read = [
                msgspec.json.decode(each.read_bytes(), type=RunReport) for each in arguments.report
            ]
            write(merge(read), arguments.out)
        except (OSError, ValueError) as error:
            found.error(str(error))
        return 0
    try:
        write(run(arguments), arguments.out)
    except KeyboardInterrupt:
        say("broken off: all processes are ended, and nothing is written")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
