"""The options of the source: the names of Spark's Kafka source, and a few of our own.

Read once, on the driver, before anything is asked of the cluster: what cannot be is said here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from logboom.pipeline.offsets import EARLIEST, LATEST, Offsets, read_offsets, read_queues
from logboom.wire.errors import InvalidRequest

KNOWN: Final = (
    "servers",
    "kafka.bootstrap.servers",
    "bootstrap.servers",
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
    "filterPushdown",
    "commitGroup",
    "timeoutMs",
)
"""Every option there is, as it is written; case does not matter."""
SERVERS: Final = ("servers", "kafka.bootstrap.servers", "bootstrap.servers")
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
"""What `startingOffsets` begins with to begin where a consumer group is."""
TIMEOUT_MS: Final = 60_000
"""How long brokers are waited for unless `timeoutMs` says otherwise."""
TRIGGER_DELAY_MS: Final = 15 * 60_000
"""How long a trigger waits for `minOffsetsPerTrigger` unless `maxTriggerDelay` says otherwise."""

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading begins or ends."""

    kind: Literal["earliest", "latest", "offsets", "time", "times", "group"]
    offsets: Offsets = field(default_factory=dict)
    """With "offsets" those, with "times" a message time in ms of each queue."""
    time_ms: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a reader was asked for."""

    servers: str
    topics: tuple[str, ...]
    """By `subscribe`."""
    pattern: str
    """By `subscribePattern`; "" if that was not said."""
    assigned: dict[str, list[int]]
    """By `assign`."""
    starting: Bound
    ending: Bound
    without_match: Literal["error", "latest"]
    """What a starting time comes to that no message has reached."""
    max_offsets: int
    """Of a micro-batch; 0: no bound. So are the others here."""
    min_offsets: int
    max_trigger_delay_ms: int
    max_bytes: int
    min_partitions: int
    max_records: int
    fail_on_data_loss: bool
    include_headers: bool
    filter_pushdown: bool
    commit_group: str
    timeout_ms: int

    @property
    def timeout_s(self) -> float:
        """How long to wait for brokers."""
        return self.timeout_ms / 1000

    @property
    def fixed_topics(self) -> tuple[str, ...]:
        """Topics that must exist; none with a pattern."""
        return self.topics or tuple(self.assigned)

    def wants(self, topic: str) -> bool:
        """Whether the pattern holds of a topic: of its whole name, as in Kafka."""
        return re.fullmatch(self.pattern, topic) is not None


def source_options(given: Mapping[str, str], *, stream: bool) -> SourceOptions:
    """The options of a read.

    Raises:
        InvalidRequest: one is unknown, missing, or cannot be; says how to write it.
    """
    options = _Given(given)
    options.check_names(BATCH_ONLY if stream else STREAM_ONLY, stream=stream)
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
        options.truth("filterPushdown", default=False),
        options.text("commitGroup"),
        options.number("timeoutMs") or TIMEOUT_MS,
    )


def _check_batch(starting: Bound, ending: Bound) -> None:
    if starting.kind == "latest" or LATEST in starting.offsets.values():
        text = 'a batch cannot begin at "latest": say startingOffsets "earliest", offsets or a time'
        raise InvalidRequest(text)
    if ending.kind == "earliest" or EARLIEST in ending.offsets.values():
        text = 'a batch cannot end at "earliest": say endingOffsets "latest", offsets or a time'
        raise InvalidRequest(text)


class _Given:
    """Options by lower-case name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def check_names(self, foreign: tuple[str, ...], *, stream: bool) -> None:
        """Refuse what is not known, or of the other kind of read."""
        known = {name.lower(): name for name in KNOWN}
        other = {name.lower() for name in foreign}
        for name in self._given:
            if name == "path":
                text = "a topic has no path: say load() without one, and option subscribe"
                raise InvalidRequest(text)
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {known[close[0]]}?" if close else f"there are {_list(KNOWN)}"
                raise InvalidRequest(f"the source has no option {name!r}: {hint}")
            if name in other:
                kind = "a stream" if stream else "a batch read"
                raise InvalidRequest(f"{known[name]} has no meaning for {kind}: leave it out")

    def text(self, name: str) -> str:
        """An option's text; "" if it was not said."""
        return self._given.get(name.lower(), "").strip()

    def servers(self) -> str:
        """The nodes, by whichever name."""
        found = [name for name in SERVERS if self.text(name)]
        if len(found) != 1:
            said = f"both {_list(found)}" if found else "none"
            raise InvalidRequest(f"say with servers which nodes to ask (host:port, …), not {said}")
        return self.text(found[0])

    def subscription(self) -> tuple[tuple[str, ...], str, dict[str, list[int]]]:
        """Topics, pattern, assigned queues; one of them is not empty."""
        found = [name for name in WAYS if name.lower() in self._given]
        if len(found) != 1:
            said = " and ".join(found) or "none of them"
            raise InvalidRequest(f"say what to read with one of {_list(WAYS)}, not with {said}")
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
        return tuple(dict.fromkeys(name for name in names if name)), "", {}

    def bound(self, which: Literal["starting", "ending"], default: str) -> Bound:
        """Where to begin or end; times come before offsets, as in Kafka."""
        if time := self.text(f"{which}Timestamp"):
            if not time.isdecimal():
                raise InvalidRequest(f"{which}Timestamp is in ms since 1970 UTC, not {time!r}")
            return Bound("time", time_ms=int(time))
        by_time = f"{which}OffsetsByTimestamp"
        if times := self.text(by_time):
            return Bound("times", read_offsets(times, by_time, 0))
        name = f"{which}Offsets"
        text = self.text(name) or default
        if text.lower() in ("earliest", "latest"):
            return Bound("earliest" if text.lower() == "earliest" else "latest")
        if text.lower().startswith(GROUP) and which == "starting":
            group = text[len(GROUP) :].strip()
            if not group:
                raise InvalidRequest(f"{name} names no group: write {GROUP}billing")
            return Bound("group", group=group)
        if not text.startswith("{"):
            raise InvalidRequest(f"{name} is earliest, latest, {_FORMS[which]}, not {text!r:.80}")
        return Bound("offsets", read_offsets(text, name))

    def strategy(self) -> Literal["error", "latest"]:
        """What a time without a message means."""
        name = "startingOffsetsByTimestampStrategy"
        text = self.text(name).lower() or "error"
        if text == "error":
            return "error"
        if text == "latest":
            return "latest"
        raise InvalidRequest(f"{name} is error or latest, not {text!r}")

    def number(self, name: str) -> int:
        """A number from 1; 0 if it was not said."""
        text = self.text(name)
        if not text and name.lower() not in self._given:
            return 0
        if not text.isdecimal() or int(text) < 1:
            raise InvalidRequest(f"{name} is a number from 1, not {text!r}")
        return int(text)

    def truth(self, name: str, *, default: bool) -> bool:
        """true or false."""
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise InvalidRequest(f"{name} is true or false, not {text!r}")
        return default if not text else text == "true"

    def duration_ms(self, name: str, default: int) -> int:
        """A duration such as 15m or 500ms."""
        text = self.text(name)
        if not text:
            return default
        match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
        if match is None:
            raise InvalidRequest(f"{name} is a duration such as 30s or 15m, not {text!r}")
        return int(match[1]) * _UNITS_MS[match[2]]


_FORMS: Final = {
    "starting": 'group:<name> or JSON such as {"flights": {"0": 12}}',
    "ending": 'or JSON such as {"flights": {"0": 12}}',
}


def _list(names: object) -> str:
    return ", ".join(map(str, names)) if isinstance(names, tuple | list) else str(names)
