"""The options of the sink, which the driver reads before it sends any request to the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from logboom.client.transactions.applications import MAX_SEQUENCE, check_chosen
from logboom.pipeline.spark_options import TIMEOUT_MS, SparkOptions, check_options_came
from logboom.wire.errors import InvalidRequest
from logboom.wire.transactions import check_app_id

KNOWN: Final = (
    "servers",
    "kafka.bootstrap.servers",
    "bootstrap.servers",
    "credentials",
    "topic",
    "queues",
    "delivery",
    "txnAppId",
    "txnVersion",
    "txnReplaces",
    "compression",
    "includeHeaders",
    "timeoutMs",
    "checkpointLocation",
    "queryName",
)
"""All options. Case does not matter. The last two are Spark's own."""
BATCH_ONLY: Final = ("txnVersion",)
STREAM_ONLY: Final = ("checkpointLocation", "queryName")
DELIVERIES: Final = ("exactly-once", "at-least-once")
CODECS: Final = ("none", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a writer."""

    servers: str
    topic: str
    """The topic of all rows; "": each row names its own."""
    queues: int
    """Queues of a topic that is created; 0: the topic has to exist."""
    delivery: Literal["exactly-once", "at-least-once"]
    app_id: str
    """From `txnAppId`; "": the query's id, or an id for this write alone."""
    version: int | None
    """From `txnVersion`."""
    replaces: str
    """From `txnReplaces`: the id of the query that had the application id before."""
    compression: str
    include_headers: bool
    timeout_ms: int

    @property
    def named_id(self) -> str:
        """The user's application id in the cluster: it has one for each topic. No topic has a "/"."""
        return f"{self.app_id}/{self.topic}"

    @property
    def exactly_once(self) -> bool:
        """True if rows wait for one decision."""
        return self.delivery == "exactly-once"

    @property
    def timeout_s(self) -> float:
        """Seconds to wait for brokers."""
        return self.timeout_ms / 1000


def sink_options(given: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """Return the options of a write.

    Raises:
        InvalidRequest: an option is unknown, missing or invalid; the text has a remedy.
    """
    # Spark makes no BINARY of a STRING by itself.
    check_options_came(given, "topic", "INSERT INTO t", "(value) SELECT binary('…')")
    options = SparkOptions(given)
    if options.says("path"):
        raise InvalidRequest(
            "a topic has no path: say save() or start() without one, and option topic"
        )
    foreign = BATCH_ONLY if stream else STREAM_ONLY
    options.check_names("sink", KNOWN, foreign, "a stream" if stream else "a batch write")
    known = options.word("delivery", DELIVERIES) == "exactly-once"
    delivery: Literal["exactly-once", "at-least-once"] = (
        "exactly-once" if known else "at-least-once"
    )
    app_id, version = _transaction(options, delivery, stream=stream)
    return SinkOptions(
        options.servers(),
        options.text("topic"),
        options.number("queues"),
        delivery,
        app_id,
        version,
        _replaced(options),
        options.word("compression", CODECS),
        options.truth("includeHeaders", default=True),
        options.number("timeoutMs") or TIMEOUT_MS,
    )


def _replaced(options: SparkOptions) -> str:
    query = options.text("txnReplaces")
    if query and not options.text("txnAppId"):
        raise InvalidRequest(
            "txnReplaces names a query that had a txnAppId: say which, or leave it out"
        )
    if query:
        check_app_id(query)
    return query


def _transaction(options: SparkOptions, delivery: str, *, stream: bool) -> tuple[str, int | None]:
    app_id, version = options.text("txnAppId"), options.text("txnVersion")
    if (app_id or version) and delivery != "exactly-once":
        raise InvalidRequest(f"txnAppId and txnVersion have no meaning with delivery={delivery}")
    if app_id:
        check_app_id(f"{app_id}/{options.text('topic')}")
        check_chosen(app_id)
    if stream:
        return app_id, None
    if bool(app_id) != bool(version):
        text = "txnAppId and txnVersion go together: the version tells the writes of one id apart"
        raise InvalidRequest(text)
    if not version:
        return "", None
    if not version.isdecimal() or int(version) > MAX_SEQUENCE:
        raise InvalidRequest(f"txnVersion is a whole number from 0, and grows, not {version!r}")
    return app_id, int(version)
