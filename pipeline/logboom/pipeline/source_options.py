"""The options of the source: the names of Spark's Kafka source, and a few of our own.

They are read once, on the driver, before any request to the cluster. Errors are reported here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from logboom.pipeline.queue_offsets import EARLIEST, LATEST, Offsets, read_offsets, read_queues
from logboom.pipeline.spark_options import TIMEOUT_MS, SparkOptions, check_options_came, listed
from logboom.wire.errors import InvalidRequest

KNOWN: Final = (
    "servers",
    "kafka.bootstrap.servers",
    "bootstrap.servers",
    "credentials",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "commitGroup",
    "timeoutMs",
)
"""All options. Case does not matter."""
WAYS: Final = ("subscribe", "subscribePattern", "assign")
STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "commitGroup",
)
BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
GROUP: Final = "group:"
"""The prefix of `startingOffsets` that begins at a consumer group's offsets."""
TRIGGER_DELAY_MS: Final = 15 * 60_000
"""How long a trigger waits for `minOffsetsPerTrigger` by default (`maxTriggerDelay`)."""


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """The position where reading begins or ends."""

    kind: Literal["earliest", "latest", "offsets", "time", "times", "group"]
    offsets: Offsets = field(default_factory=dict)
    """The offsets, or, with "times", a message time in ms for each queue."""
    time_ms: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a reader."""

    servers: str
    topics: tuple[str, ...]
    """From `subscribe`."""
    pattern: str
    """From `subscribePattern`; "" if it was not given."""
    assigned: dict[str, list[int]]
    """From `assign`."""
    starting: OffsetBound
    ending: OffsetBound
    without_match: Literal["error", "latest"]
    """The meaning of a starting time that no message has reached."""
    max_offsets: int
    """The limit of a micro-batch; 0: none. The same holds for the limits below."""
    min_offsets: int
    max_trigger_delay_ms: int
    max_bytes: int
    min_partitions: int
    max_records: int
    fail_on_data_loss: bool
    include_headers: bool
    commit_group: str
    timeout_ms: int

    @property
    def timeout_s(self) -> float:
        """Seconds to wait for brokers."""
        return self.timeout_ms / 1000

    @property
    def fixed_topics(self) -> tuple[str, ...]:
        """Topics that must exist. There are none with a pattern."""
        return self.topics or tuple(self.assigned)

    def wants(self, topic: str) -> bool:
        """Return True if the pattern matches the whole name of a topic, as in Kafka."""
        return re.fullmatch(self.pattern, topic) is not None


def source_options(given: Mapping[str, str], *, stream: bool) -> SourceOptions:
    """Return the options of a read.

    Raises:
        InvalidRequest: an option is unknown, missing or invalid; the text has a remedy.
    """
    check_options_came(given, "subscribe", "SELECT … FROM t")
    options = _SourceOptionReader(given)
    options.check(BATCH_ONLY if stream else STREAM_ONLY, stream=stream)
    topics, pattern, assigned = options.subscription()
    starting = options.bound("starting", "latest" if stream else "earliest")
    ending = options.bound("ending", "latest")
    if not stream:
        _check_batch(starting, ending)
    return SourceOptions(
        options.servers(),
        topics,
        pattern,
        assigned,
        starting,
        ending,
        options.strategy(),
        options.number("maxOffsetsPerTrigger"),
        options.number("minOffsetsPerTrigger"),
        options.duration_ms("maxTriggerDelay", TRIGGER_DELAY_MS),
        options.number("maxBytesPerTrigger"),
        options.number("minPartitions"),
        options.number("maxRecordsPerPartition"),
        options.truth("failOnDataLoss", default=True),
        options.truth("includeHeaders", default=False),
        options.text("commitGroup"),
        options.number("timeoutMs") or TIMEOUT_MS,
    )


def _check_batch(starting: OffsetBound, ending: OffsetBound) -> None:
    if starting.kind == "latest" or LATEST in starting.offsets.values():
        text = 'a batch cannot begin at "latest": say startingOffsets "earliest", offsets or a time'
        raise InvalidRequest(text)
    if ending.kind == "earliest" or EARLIEST in ending.offsets.values():
        text = 'a batch cannot end at "earliest": say endingOffsets "latest", offsets or a time'
        raise InvalidRequest(text)


class _SourceOptionReader(SparkOptions):
    """A reader of a read's options."""

    def check(self, foreign: tuple[str, ...], *, stream: bool) -> None:
        """Refuse what is not known, or of the other kind of read."""
        if self.says("path"):
            raise InvalidRequest(
                "a topic has no path: say load() without one, and option subscribe"
            )
        if self.says("filterPushdown"):
            # Spark 4.3 reuses the remaining filters of a frame's last use for its other uses.
            raise InvalidRequest(
                "filterPushdown is gone, since Spark gave wrong rows with it: leave it out, and bound "
                "the read by assign, startingOffsets or startingTimestamp, endingOffsets or "
                "endingTimestamp"
            )
        self.check_names("source", KNOWN, foreign, "a stream" if stream else "a batch read")

    def subscription(self) -> tuple[tuple[str, ...], str, dict[str, list[int]]]:
        """Return topics, pattern and assigned queues. One of them is not empty."""
        found = [name for name in WAYS if self.says(name)]
        if len(found) != 1:
            said = " and ".join(found) or "none of them"
            raise InvalidRequest(f"say what to read with one of {listed(WAYS)}, not with {said}")
        (way,) = found
        text = self.text(way)
        if not text:
            raise InvalidRequest(f"{way} is empty: name a topic")
        if way == "assign":
            return (), "", read_queues(text, way)
        if way == "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise InvalidRequest(f"{way} {text!r} is no pattern: {error}") from None
            return (), text, {}
        names = [name.strip() for name in text.split(",")]
        if not all(names):
            raise InvalidRequest(f"{way} names no topic between two commas or at an end: {text!r}")
        return tuple(dict.fromkeys(names)), "", {}

    def bound(self, which: Literal["starting", "ending"], default: str) -> OffsetBound:
        """Return where to begin or end. Times take precedence over offsets, as in Kafka."""
        if time := self.text(f"{which}Timestamp"):
            if not time.isdecimal():
                raise InvalidRequest(f"{which}Timestamp is in ms since 1970 UTC, not {time!r}")
            return OffsetBound("time", time_ms=int(time))
        by_time = f"{which}OffsetsByTimestamp"
        if times := self.text(by_time):
            return OffsetBound("times", read_offsets(times, by_time, 0))
        name = f"{which}Offsets"
        text = self.text(name) or default
        if text.lower() in ("earliest", "latest"):
            return OffsetBound("earliest" if text.lower() == "earliest" else "latest")
        if text.lower().startswith(GROUP) and which == "starting":
            group = text[len(GROUP) :].strip()
            if not group:
                raise InvalidRequest(f"{name} names no group: write {GROUP}billing")
            return OffsetBound("group", group=group)
        if not text.startswith("{"):
            raise InvalidRequest(f"{name} is earliest, latest, {_FORMS[which]}, not {text!r:.80}")
        return OffsetBound("offsets", read_offsets(text, name))

    def strategy(self) -> Literal["error", "latest"]:
        """Return the meaning of a time without a message."""
        name = "startingOffsetsByTimestampStrategy"
        return "error" if self.word(name, ("error", "latest")) == "error" else "latest"


_FORMS: Final = {
    "starting": 'group:<name> or JSON such as {"flights": {"0": 12}}',
    "ending": 'or JSON such as {"flights": {"0": 12}}',
}
