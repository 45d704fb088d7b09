"""Frames: round trips of every message, and hostile bytes that must only be refused."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from logboom.wire.base import MAX_NAME, WireMessage
from logboom.wire.commands import AlterIsr, CreateTopic, IsrChange
from logboom.wire.errors import CODES, InvalidRequest, LogboomError, error_for
from logboom.wire.frames import decode, encode
from logboom.wire.group_commands import (
    CommitOffsets,
    GroupCommits,
    JoinGroup,
    MemberCommits,
    QueueCommit,
    SetTarget,
)
from logboom.wire.group_view import (
    GroupConfig,
    GroupOffsets,
    GroupSummary,
    GroupView,
    MemberView,
    OwnedQueue,
    StrategyOptions,
)
from logboom.wire.messages import (
    MAX_BATCH_BYTES,
    MAX_MESSAGE_FRAME,
    DescribeGroup,
    Failure,
    FindKey,
    FollowerPosition,
    GroupDescribed,
    Hello,
    Produce,
    Propose,
    Pull,
    QueueAnswer,
    Replicate,
    Replicated,
    Watch,
    WatchResult,
)
from logboom.wire.parking import DelayedBatch, DelayedListed, ListDelayed
from logboom.wire.survey_messages import (
    AppendTimesFound,
    CursorSurvey,
    FindAppendTimes,
    GroupsSurveyed,
    GroupSurvey,
    QueuesSurveyed,
    QueueSurvey,
    SurveyGroups,
    SurveyQueues,
)
from logboom.wire.transactions import (
    HALF,
    AppliedDecision,
    AwaitDecided,
    CheckHalves,
    CheckParked,
    ConsumedOffset,
    Decide,
    DecisionView,
    EndHalf,
    HalfEnded,
    HalvesToCheck,
    ListUndecided,
    OpenApplication,
    ParkedBatches,
    ParkedChecked,
    ReportDecided,
    TransactionId,
    TransactionOffsetCommit,
    UndecidedBatch,
    UndecidedListed,
)
from logboom.wire.view import BrokerView, NameServerView, QueueView, TopicConfig, TopicView, View

VIEW = View(
    version=7,
    full=True,
    cluster_id="c",
    brokers=[BrokerView("broker-1", "127.0.0.1:7711", "a", 3, True, 2)],
    topics=[
        TopicView(
            "flights",
            1,
            TopicConfig(),
            [QueueView(["broker-1"], "broker-1", 4, 5, ["broker-1"], [])],
            6,
        )
    ],
    deleted=["old"],
    deleted_brokers=[],
    name_servers=[NameServerView("name-1", "127.0.0.1:7701")],
    raft_leader=None,
    deleted_groups=["gone"],
)

GROUP = GroupView(
    name="billing",
    id=1,
    config=GroupConfig(options=StrategyOptions(config={"m": [("t", 0)]})),
    subscription={"t": "*"},
    subscription_version=1,
    coordinator="broker-1",
    coordinator_epoch=2,
    group_epoch=4,
    target_epoch=4,
    fault="",
    version=8,
    member_count=1,
    full=True,
    members=[MemberView("m", 3, "me", "", "", 1, [OwnedQueue(1, 0, 4, 5, b"", True)], 8)],
    gone=["old"],
    unstarted=[(1, 1)],
)

WHOSE = TransactionId("billing", 7, -3)
DECISION = DecisionView(9, "billing", 7, -3, True, [ParkedBatches(1, 3, [(17, 2)])])
UNENDED = UndecidedBatch("flights", 1, 3, 17, 2, TransactionId("shop", HALF, 0), 5, 1, 1, 300)

SAMPLES = [
    Hello(-1, 1, 1, "me", "client", 0),
    Failure(3, "NOT_LEADER", "broker-2 leads", True, {"leader": "broker-2", "epoch": 4}),
    Produce(1, 500, "flights", 3, "all"),
    Pull(2, 500, "flights", 3, 17, 1 << 20, 100, 32, ["late"]),
    Replicate(4, 900, "broker-2", 1, 5, 0, 500, 1 << 20, [FollowerPosition(1, 0, 4, 10, 1, 3)]),
    Replicated(4, [QueueAnswer(1, 0, 4, "CUT", 8, 0, 0, 0, 3, 9, 0)]),
    Watch(5, 900, -1, ["flights"], 800),
    WatchResult(5, VIEW),
    Propose(6, 900, "me", 1, CreateTopic("flights", 8, 3, TopicConfig(), 5)),
    Propose(7, 900, "b", 2, AlterIsr("b", 1, [IsrChange(1, 0, 4, 5, [("b", 1), ("c", 2)])], 5)),
    Watch(5, 900, -1, [], 800, ["billing"], "broker-1"),
    Propose(
        8,
        900,
        "b",
        3,
        JoinGroup("billing", "m", "left", "me", "", {"t": "*"}, False, GroupConfig(start=7), 2, 5),
    ),
    Propose(
        9,
        900,
        "b",
        4,
        CommitOffsets(
            "b",
            [GroupCommits("billing", 2, [MemberCommits("m", 3, [QueueCommit(1, 0, 4, 5, 6)])])],
            5,
        ),
    ),
    Propose(10, 900, "n", 5, SetTarget("billing", 4, [(1, b"\0\0")], True, "", 5)),
    DescribeGroup(11, 900, "billing"),
    GroupDescribed(11, GROUP, [GroupOffsets(1, "t", True, [5], [6], [(0, b"r")])], 9),
    Produce(12, 500, "flights", 3, "all", 7, transaction=WHOSE),
    Watch(13, 900, -1, [], 800, decisions=True),
    WatchResult(13, structs.replace(VIEW, decisions=[DECISION], ended_decisions=[8])),
    Propose(14, 900, "me", 6, OpenApplication("billing", 5)),
    Propose(
        15,
        900,
        "me",
        7,
        Decide(
            "billing",
            2,
            7,
            -3,
            True,
            [ParkedBatches(1, 3, [(17, 2)])],
            [TransactionOffsetCommit("billing", "m", 3, [ConsumedOffset(1, 0, 4, 5, 6)])],
            5,
        ),
    ),
    Propose(16, 900, "b", 8, ReportDecided("b", 1, [AppliedDecision(9, 1, 3)])),
    AwaitDecided(17, 900, "flights", 3, 9, 1),
    CheckParked(18, 900, "flights", 3, WHOSE, [(17, 2)], 1, 4_096),
    ParkedChecked(18, [(17, 2)]),
    EndHalf(19, 900, "flights", 3, 17, 2, True, 1),
    HalfEnded(19, "unknown"),
    CheckHalves(20, 900, "shop", 800),
    HalvesToCheck(20, [UNENDED]),
    ListDelayed(21, 900, "flights", 10, DelayedBatch("flights", 1, 3, 17, 2, 9, 40)),
    DelayedListed(21, [DelayedBatch("flights", 1, 3, 17, 2, 9, 40)], True),
    ListUndecided(21, 900, "shop", 10),
    UndecidedListed(21, [UNENDED], True),
    SurveyQueues(22, 900, (1, 3)),
    QueuesSurveyed(
        22, [QueueSurvey(1, 3, 5, 9, 700, [CursorSurvey("s", 6, 2, 1, ["c"])], "t", 8)], (1, 3)
    ),
    QueuesSurveyed(22, [], None),
    SurveyGroups(23, 900, "billing"),
    GroupsSurveyed(
        23,
        [
            GroupSurvey(
                GroupSummary("billing", 1, "clustering", ["t"], 1, "broker-1", 4, 4, ""),
                [GroupOffsets(1, "t", True, [5], [6], [(0, b"r")])],
            )
        ],
        True,
    ),
    FindAppendTimes(24, 900, [(1, 3, 5)]),
    AppendTimesFound(24, [-1, 5]),
]


@pytest.mark.parametrize("message", SAMPLES, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_as_it_was(message: WireMessage) -> None:
    assert decode(encode(message)) == message


def test_batches_travel_untouched() -> None:
    frames = encode(Produce(1, 500, "flights", 0, "all"), [b"one", memoryview(b"two")])
    assert frames[1:] == [b"one", b"two"]


def test_fields_of_a_later_version_are_ignored() -> None:
    raw = msgspec.msgpack.decode(encode(Watch(5, 900, -1, None, 800))[0])
    assert decode([msgspec.msgpack.encode([*raw, "new field"])]) == Watch(5, 900, -1, None, 800)


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused(data: bytes) -> None:
    # Anything but InvalidRequest fails the test.
    with contextlib.suppress(InvalidRequest):
        decode([data])


@given(st.sampled_from(SAMPLES), st.data())
def test_a_changed_or_cut_message_never_does_worse(
    message: WireMessage, data: st.DataObject
) -> None:
    raw = bytearray(encode(message)[0])
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(InvalidRequest):
        decode([bytes(raw)])


def test_a_cut_message_is_malformed() -> None:
    raw = bytes(encode(SAMPLES[2])[0])
    with pytest.raises(InvalidRequest) as caught:
        decode([raw[:-1]])
    assert caught.value.code == "MALFORMED"


def test_an_unknown_type_names_the_request_it_answers() -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode([msgspec.msgpack.encode(["teleport", 7])])
    assert (caught.value.code, caught.value.fields["id"]) == ("UNKNOWN_TYPE", 7)


def test_a_wrong_value_is_malformed_not_unknown() -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode([msgspec.msgpack.encode(["produce", 7, 1, "t", 0, "some"])])
    assert caught.value.code == "MALFORMED"


def test_no_frame_at_all_is_malformed() -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        decode([])


def test_oversize_frames_are_refused_unread() -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode([bytes(MAX_MESSAGE_FRAME + 1)])
    assert caught.value.code == "TOO_LARGE"
    produce = encode(Produce(9, 500, "flights", 0, "all"), [bytes(MAX_BATCH_BYTES + 1025)])
    with pytest.raises(InvalidRequest) as caught:
        decode(produce)
    assert (caught.value.code, caught.value.fields["id"]) == ("TOO_LARGE", 9)


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_has_its_class(code: str) -> None:
    error = error_for(code, "text", {"leader": "broker-1"})
    assert isinstance(error, CODES[code])
    assert (error.code, str(error), error.fields["leader"]) == (code, "text", "broker-1")


def test_a_code_of_a_later_version_is_still_an_error() -> None:
    assert type(error_for("NEW_THING", "text")) is LogboomError


def test_names_in_requests_are_bounded() -> None:
    assert isinstance(decode(encode(FindKey(7, 500, "x" * MAX_NAME, 0, 1, 1, 1))), FindKey)
    with pytest.raises(InvalidRequest) as caught:
        decode(encode(FindKey(7, 500, "x" * (MAX_NAME + 1), 0, 1, 1, 1)))
    assert caught.value.code == "MALFORMED"
    assert caught.value.fields["id"] == 7
