"""The options of the source, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.pipeline.sink_options import sink_options
from logboom.pipeline.source_options import OffsetBound, SourceOptions, source_options
from logboom.wire.errors import InvalidRequest

LEAST = {"servers": "127.0.0.1:7711", "subscribe": "flights"}


def read(**options: str) -> SourceOptions:
    """The options of a batch, beside what every read needs."""
    return source_options({**LEAST, **options}, stream=False)


def read_stream(**options: str) -> SourceOptions:
    """The same of a stream."""
    return source_options({**LEAST, **options}, stream=True)


def test_defaults_are_those_of_kafka() -> None:
    batch, stream = read(), read_stream()
    assert (batch.starting, batch.ending) == (OffsetBound("earliest"), OffsetBound("latest"))
    assert stream.starting == OffsetBound("latest")
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert batch.timeout_s == 60.0
    assert stream.max_offsets == stream.max_bytes == stream.min_partitions == 0


def test_credentials_stand_beside_the_nodes_or_alone() -> None:
    assert read(credentials="/etc/alice.toml").servers == "127.0.0.1:7711@/etc/alice.toml"
    alone = {"subscribe": "t", "Credentials": "/etc/alice.toml"}
    assert source_options(alone, stream=True).servers == "@/etc/alice.toml"
    sink = sink_options({"topic": "t", "credentials": "alice.toml"}, stream=False)
    assert sink.servers == "@alice.toml"
    with pytest.raises(InvalidRequest, match="two credentials files"):
        read(servers="a:1@bob.toml", credentials="alice.toml")
    with pytest.raises(InvalidRequest, match="say with servers which nodes"):
        source_options({"subscribe": "t", "credentials": " "}, stream=False)


def test_case_does_not_matter() -> None:
    options = source_options(
        {"KAFKA.bootstrap.SERVERS": "a:1", "SUBSCRIBE": "x, y,x", "failondataloss": "FALSE"},
        stream=False,
    )
    assert options.topics == ("x", "y")
    assert options.servers == "a:1"
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("name", "text", "bound"),
    [
        ("startingOffsets", "EARLIEST", OffsetBound("earliest")),
        ("startingOffsets", "group: billing", OffsetBound("group", group="billing")),
        ("startingOffsets", '{"t": {"0": -2}}', OffsetBound("offsets", {("t", 0): -2})),
        ("startingOffsetsByTimestamp", '{"t": {"0": 5}}', OffsetBound("times", {("t", 0): 5})),
        ("startingTimestamp", "12", OffsetBound("time", time_ms=12)),
    ],
)
def test_beginnings(name: str, text: str, bound: OffsetBound) -> None:
    assert read_stream(**{name: text}).starting == bound


def test_times_come_before_offsets() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t": {"0": 5}}'}
    assert read(**given).starting.kind == "times"
    assert read(**given, startingTimestamp="3").starting == OffsetBound("time", time_ms=3)
    assert read(endingOffsets="latest", endingTimestamp="9").ending == OffsetBound(
        "time", time_ms=9
    )


def test_other_options() -> None:
    options = read_stream(
        maxOffsetsPerTrigger="5",
        minOffsetsPerTrigger="2",
        maxTriggerDelay="2m",
        maxBytesPerTrigger="6",
        minPartitions="7",
        maxRecordsPerPartition="8",
        includeHeaders="true",
        commitGroup="g",
        timeoutMs="1500",
        startingOffsetsByTimestampStrategy="latest",
    )
    assert (options.max_offsets, options.min_offsets, options.max_bytes) == (5, 2, 6)
    assert (options.min_partitions, options.max_records) == (7, 8)
    assert options.max_trigger_delay_ms == 120_000
    assert (options.commit_group, options.timeout_s) == ("g", 1.5)
    assert options.include_headers
    assert options.without_match == "latest"


def test_assigned_and_matched_topics() -> None:
    least: dict[str, str] = {"bootstrap.servers": "a:1"}
    assigned = source_options({**least, "assign": '{"t": [1, 0]}'}, stream=False)
    assert (assigned.assigned, assigned.fixed_topics) == ({"t": [0, 1]}, ("t",))
    matched = source_options({**least, "subscribePattern": "fl.*s"}, stream=False)
    assert matched.wants("flights")
    assert not matched.wants("flights2")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"subscribes": "t"}, "no option 'subscribes': did you mean subscribe"),
    ({"x": "t"}, "no option 'x': there are servers, "),
    ({"path": "t"}, r"a topic has no path: say load\(\) without one"),
    ({"assign": "{}"}, "with one of subscribe, subscribePattern, assign, not with subscribe and"),
    ({"subscribe": " "}, "subscribe is empty"),
    ({"subscribe": " , "}, "subscribe names no topic between two commas or at an end: ','"),
    ({"subscribe": "a,,b"}, "subscribe names no topic between two commas"),
    ({"subscribe": "a,"}, "subscribe names no topic between two commas or at an end"),
    ({"assign": "{}", "subscribe": None}, "assign names no topic"),
    ({"bootstrap.servers": "a:1"}, "not both servers, bootstrap.servers"),
    ({"servers": ""}, "say with servers which nodes to ask"),
    ({"startingOffsets": "latest"}, 'a batch cannot begin at "latest"'),
    ({"startingOffsets": '{"t": {"0": -1}}'}, 'a batch cannot begin at "latest"'),
    ({"endingOffsets": "earliest"}, 'a batch cannot end at "earliest"'),
    ({"endingOffsets": '{"t": {"0": -2}}'}, 'a batch cannot end at "earliest"'),
    ({"endingOffsets": "group:g"}, "endingOffsets is earliest, latest, or JSON"),
    ({"startingOffsets": "first"}, "startingOffsets is earliest, latest, group:<name> or JSON"),
    ({"startingOffsets": "group:"}, "startingOffsets names no group"),
    ({"startingTimestamp": "yesterday"}, "startingTimestamp is in ms since 1970 UTC"),
    ({"startingOffsetsByTimestampStrategy": "x"}, "is error or latest, not 'x'"),
    ({"minPartitions": "0"}, "minPartitions is a number from 1, not '0'"),
    ({"minPartitions": ""}, "minPartitions is a number from 1"),
    ({"failOnDataLoss": "yes"}, "failOnDataLoss is true or false, not 'yes'"),
    ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger has no meaning for a batch read"),
    ({"commitGroup": "g"}, "commitGroup has no meaning for a batch read"),
    ({"filterPushdown": "true"}, "filterPushdown is gone, .* leave it out, and bound the read by"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=[str(given) for given, _ in WRONG])
def test_what_cannot_be_is_refused(given: dict[str, str | None], said: str) -> None:
    whole: dict[str, str | None] = {**LEAST, **given}
    asked = {name: text for name, text in whole.items() if text is not None}
    with pytest.raises(InvalidRequest, match=said):
        source_options(asked, stream=False)


def test_a_table_without_options_says_how_to_get_them() -> None:
    for given in ({}, {"path": "/warehouse/t"}):
        with pytest.raises(
            InvalidRequest, match=r"Of CREATE TABLE Spark keeps none: use CREATE TEMP"
        ):
            source_options(given, stream=False)
        with pytest.raises(
            InvalidRequest,
            match=r"INSERT INTO t WITH \(servers = '…', topic = '…'\) \(value\) SELECT binary\('…'\)",
        ):
            sink_options(given, stream=False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets has no meaning for a stream"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a duration such as 30s"),
        ({"filterPushdown": "true"}, "filterPushdown is gone"),
    ],
)
def test_what_no_stream_can_be_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        source_options({**LEAST, **given}, stream=True)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"subscribePattern '\(' is no pattern"):
        source_options({"servers": "a:1", "subscribePattern": "("}, stream=True)
    with pytest.raises(InvalidRequest, match="not with none of them"):
        source_options({"servers": "a:1"}, stream=True)


def test_an_application_id_is_one_for_each_topic() -> None:
    sink = {"servers": "a:1", "txnAppId": "nightly", "txnReplaces": "4f1c"}
    assert sink_options({**sink, "topic": "sums"}, stream=True).named_id == "nightly/sums"
    # Where each row names its topic, all of them are one write.
    assert sink_options(sink, stream=True).named_id == "nightly/"
    assert sink_options(sink, stream=True).replaces == "4f1c"
    with pytest.raises(InvalidRequest, match="an application id has 1 to 255"):
        sink_options({**sink, "txnAppId": "n" * 250, "topic": "sums-of-all"}, stream=True)
    with pytest.raises(InvalidRequest, match="txnReplaces names a query that had a txnAppId"):
        sink_options({"servers": "a:1", "topic": "t", "txnReplaces": "4f1c"}, stream=True)
