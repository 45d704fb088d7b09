"""The second part of the demo: Spark jobs on the flights while the cluster runs.

The flights are archived to Parquet, summarized by carrier, with airlines and airports joined, and
counted by weeks into a topic, exactly once. The content of that topic must match the archive.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from demo.scenario import TOPIC, Steps
from logboom.cli.pipeline_runs import spark_for
from logboom.client import connect
from logboom.pipeline.jobs.archive import archive, audit
from logboom.pipeline.jobs.job_runs import JobReport
from logboom.pipeline.jobs.publishing import Target
from logboom.pipeline.jobs.window import WindowAggregation, outgoing, window_to_topic, windowed
from logboom.pipeline.plot import Line, svg

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELAYS: Final = "delays"
"""The topic of the weeks."""
AT_ONCE: Final = 100_000
"""Flights of one micro-batch of the archive."""
FLIGHT: Final = "carrier string, dest string, dep_delay bigint"
WATERMARK: Final = timedelta(hours=1)
WEEKS: Final = WindowAggregation(
    "carrier string, dep_delay bigint",
    width="7 days",
    by=("carrier",),
    measures=("dep_delay",),
    watermark=f"{WATERMARK.total_seconds():.0f} seconds",
)
OFTEN: Final = 100
"""Flights to a destination that make its mean delay significant."""
DRAWN: Final = 6
"""The number of carriers in the plot."""


class LookupTables(NamedTuple):
    """The tables that the flights are joined with."""

    airlines: Mapping[str, str]
    """Airlines by the two letters of the carrier."""
    airports: Mapping[str, str]
    """Airports by their three letters."""


class CarrierWeek(msgspec.Struct, frozen=True):
    """A message of the topic `delays`: one carrier in one week."""

    carrier: str
    begin: datetime
    end: datetime
    count: int
    """Flights, including cancelled ones."""
    dep_delay_sum: int | None
    dep_delay_avg: float | None
    """Minutes; None if all were cancelled."""


class CarrierYear(NamedTuple):
    """One line of the table."""

    carrier: str
    airline: str | None
    flights: int
    mean_delay_min: float | None
    worst_week: str
    """The first day of the week in the topic with the greatest mean delay."""
    worst_destination: str | None
    """The destination with the greatest mean delay among frequent ones."""


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """The results and durations of the second part."""

    archived: int
    lost: int
    """Flights that are not in the archive."""
    doubled: int
    """Flights that are in the archive more than once."""
    archive_s: float
    weeks: int
    """Messages in the topic of the weeks: one for each carrier and week that is over."""
    wrong_weeks: int
    """Messages missing, doubled or different from what the archive says."""
    window_s: float
    lines: list[CarrierYear]
    archive: Path
    plot: Path
    seconds: float

    @property
    def clean(self) -> bool:
        """True if there was no error."""
        return not (self.lost or self.doubled or self.wrong_weeks)


def pipe(
    servers: Sequence[str], names: LookupTables, total: int, folder: Path, steps: Steps
) -> PipelineReport:
    """Do the second part in a session of its own; to be called by the main thread.

    Raises:
        StartError: Spark cannot run here.
        LogboomError: a Spark job failed.
    """
    begun = time.monotonic()
    steps.step("starting Spark", None)
    before = signal.getsignal(signal.SIGINT)
    try:
        with spark_for("demo", "") as spark:
            steps.say(f"Spark ready after {time.monotonic() - begun:.1f} s")
            return work(spark, ",".join(servers), names, total, folder, steps)
    finally:
        # PySpark's own handler would use the session that no longer exists.
        signal.signal(signal.SIGINT, before)


def work(
    spark: SparkSession, servers: str, names: LookupTables, total: int, folder: Path, steps: Steps
) -> PipelineReport:
    """Archive, join, count and compare.

    Args:
        total: the number of flights in the topic.
        folder: the folder of the archive and the plot. Earlier results in it are replaced.
    """
    begun = time.monotonic()
    place, checkpoint = folder / "flights", folder / "checkpoint"
    for old in (place, checkpoint):
        shutil.rmtree(old, ignore_errors=True)
    steps.step("archiving to Parquet", total)
    archived = _archive(spark, servers, place, steps)
    found = audit(spark, place)
    messages, doubled = (sum(row[name] for row in found) for name in ("messages", "doubled"))
    steps.say(f"{messages:,} flights in the archive after {archived.seconds:.1f} s")

    steps.step(f"counting weeks into topic {DELAYS!r}", None)
    counted = _count(spark, servers, checkpoint)
    weeks = read_weeks(spark, servers)
    steps.say(f"{len(weeks)} weeks of carriers in topic {DELAYS!r} after {counted.seconds:.1f} s")

    steps.step("joining airlines and airports", None)
    flights = spark.read.parquet(str(place))
    wrong = different(weeks, weeks_over(flights))
    lines = carrier_lines(by_carrier(named(flights, *_tables(spark, names))), weeks)
    plot = folder / "delays.svg"
    plot.write_text(drawn(lines, weeks), encoding="utf-8")
    return PipelineReport(
        archived=messages,
        lost=total - (messages - doubled),
        doubled=doubled,
        archive_s=archived.seconds,
        weeks=len(weeks),
        wrong_weeks=wrong,
        window_s=counted.seconds,
        lines=lines,
        archive=place,
        plot=plot,
        seconds=time.monotonic() - begun,
    )


def _archive(spark: SparkSession, servers: str, place: Path, steps: Steps) -> JobReport:
    source = {"servers": servers, "subscribe": TOPIC, "maxOffsetsPerTrigger": str(AT_ONCE)}
    # Each micro-batch covers a whole year, so a file per queue and day would make thousands of
    # files.
    return _ended(archive(spark, source, place, gather=True, on_rows=steps.done))


def _count(spark: SparkSession, servers: str, checkpoint: Path) -> JobReport:
    """Count the weeks in a single micro-batch.

    The data begins with January, October and November. With more micro-batches the watermark would
    drop the months that follow.
    """
    with connect(servers) as boom:
        boom.admin.create_topic(DELAYS, queues=3)
    source = {"servers": servers, "subscribe": TOPIC}
    return _ended(window_to_topic(spark, source, WEEKS, Target(servers, DELAYS), checkpoint))


def _ended(run: JobReport) -> JobReport:
    """Raise KeyboardInterrupt if Ctrl-C stopped the job, because the demo then ends too."""
    if run.stopped:
        raise KeyboardInterrupt
    return run


def read_weeks(spark: SparkSession, servers: str) -> list[CarrierWeek]:
    """Return all messages of the topic of the weeks."""
    reader = spark.read.format("logboom").schema("value binary")
    return _weeks(reader.options(servers=servers, subscribe=DELAYS).load())


def weeks_over(flights: DataFrame) -> list[CarrierWeek]:
    """Return the weeks of an archive that the watermark has passed, which must be in the topic."""
    newest: float = flights.agg(sf.max(sf.col("timestamp").cast("double"))).collect()[0][0]
    over = sf.col("end").cast("double") <= newest - WATERMARK.total_seconds()
    return _weeks(outgoing(windowed(flights, WEEKS).where(over), WEEKS))


def _weeks(messages: DataFrame) -> list[CarrierWeek]:
    decode = msgspec.json.Decoder(CarrierWeek).decode
    return [decode(bytes(row.value)) for row in messages.select("value").collect()]


def different(there: Iterable[CarrierWeek], wanted: Iterable[CarrierWeek]) -> int:
    """Return how many are missing, superfluous or different."""
    found, right = Counter(there), Counter(wanted)
    return (found - right).total() + (right - found).total()


def _tables(spark: SparkSession, names: LookupTables) -> tuple[DataFrame, DataFrame]:
    return (
        spark.createDataFrame(list(names.airlines.items()), "carrier string, airline string"),
        spark.createDataFrame(list(names.airports.items()), "dest string, destination string"),
    )


def named(messages: DataFrame, airlines: DataFrame, airports: DataFrame) -> DataFrame:
    """Return flights as columns, with the names of carrier and destination."""
    told = messages.select(sf.from_json(sf.col("value").cast("string"), FLIGHT).alias("it"))
    flights = told.select("it.*").join(sf.broadcast(airlines), "carrier", "left")
    return flights.join(sf.broadcast(airports), "dest", "left")


def by_carrier(flights: DataFrame) -> DataFrame:
    """Return a row per carrier, most flights first.

    It has the airline, flights, mean delay and worst destination.
    """
    routes = flights.groupBy("carrier", "airline", "destination").agg(
        sf.count("*").alias("flights"),
        sf.count("dep_delay").alias("left"),
        sf.sum("dep_delay").alias("delay"),
        sf.avg("dep_delay").alias("mean"),
    )
    often = sf.when(sf.col("flights") >= OFTEN, sf.col("mean"))
    carriers = routes.groupBy("carrier", "airline").agg(
        sf.sum("flights").alias("flights"),
        sf.try_divide(sf.sum("delay"), sf.sum("left")).alias("mean_delay_min"),
        sf.max_by("destination", often).alias("worst_destination"),
    )
    return carriers.orderBy(sf.desc("flights"), "carrier")


def carrier_lines(carriers: DataFrame, weeks: Sequence[CarrierWeek]) -> list[CarrierYear]:
    """Return the table, with each carrier's worst week."""
    worst: dict[str, CarrierWeek] = {}
    for week in weeks:
        if _mean(week) > _mean(worst.get(week.carrier)):
            worst[week.carrier] = week
    lines = []
    for row in carriers.collect():
        latest = worst.get(row.carrier)
        began = "-" if latest is None else f"{latest.begin:%Y-%m-%d}"
        means = (row.flights, row.mean_delay_min, began, row.worst_destination)
        lines.append(CarrierYear(row.carrier, row.airline, *means))
    return lines


def _mean(week: CarrierWeek | None) -> float:
    mean = week.dep_delay_avg if week else None
    return float("-inf") if mean is None else mean


def drawn(lines: Sequence[CarrierYear], weeks: Sequence[CarrierWeek]) -> str:
    """Return a plot of the mean delays of the largest carriers by week, as SVG."""
    first = min((week.begin for week in weeks), default=None)
    found = []
    for carrier in [line.carrier for line in lines[:DRAWN]]:
        own = sorted((each for each in weeks if each.carrier == carrier), key=lambda each: each.end)
        points = [
            ((each.begin - first) / timedelta(days=7), each.dep_delay_avg)
            for each in own
            if first is not None and each.dep_delay_avg is not None
        ]
        found.append(Line(carrier, points))
    return svg("Mean departure delay of flights from New York", found, "week of 2013", "minutes")
