"""What nodes send: every type is in one list or the other, and speaks for its sender alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from logboom.wire.access_requirements import COMMANDS, NODES, REQUESTS
from logboom.wire.commands import (
    AlterIsr,
    CreateTopic,
    ElectLeader,
    RegisterBroker,
    ReportDamage,
    ReportLosses,
    ReportRoom,
    ReportTails,
    StepDown,
)
from logboom.wire.group_commands import CommitOffsets, ExpireMembers
from logboom.wire.messages import Heartbeat, RaftFrame, Replicate, Watch
from logboom.wire.node_requirements import (
    EITHER,
    NODE_COMMANDS,
    NODE_REQUESTS,
    kinds_of,
    node_fault,
)
from logboom.wire.operation_messages import ReportLoad
from logboom.wire.transactions import Decide, ParkedBatches, ReportDecided, TransactionOffsetCommit
from logboom.wire.view import TopicConfig

PAGE = Path(__file__).parents[3] / "docs" / "SECURITY.md"
NOT_BY_NODES = """
    addnameserver addrule adduserkey admitinitialusers allocateproducerids altergroup
    altersettings altersubscription altertopic alteruser awaitdecided barrier cancelreassign
    checkhalves checkparked createrole createuser deletegroup deleterole deletetopic deleteuser
    describeaccess describecluster describeconfig describegroup describesubscriptions
    describeversions detach discardlosttopic endfilling endhalf enduserkeys fencebroker
    fetchentries finalizeupgrade findappendtimes findkey finishrestore groupcommit groupheartbeat
    groupjoin groupleave grouprelease groupstatus kickconnection listconnections listdelayed
    listgroups listunended makeretrytopics newterm opentransaction planbalance produce pull
    raisefeatures readstate reassign recall receive removebroker removenameserver removerule
    removeuserkey resetoffsets restorecounters restoredecisions restoreentries restoregroup
    restoretopic setbrokermode setdefaultquota settarget settlemessages signcopies subscribe
    surveygroups surveyqueues
"""
"""Every request and command that no node sends."""


def tag(kind: type[Struct]) -> str:
    return str(kind.__struct_config__.tag)


def test_every_request_and_command_is_a_nodes_or_not() -> None:
    by_nodes = {tag(each) for each in (*NODE_REQUESTS, *NODE_COMMANDS)}
    others = {tag(each) for each in (*REQUESTS, *COMMANDS)} - by_nodes
    assert others == set(NOT_BY_NODES.split()), "give it an entry in node_requirements.py, or here"
    for_nodes = {each for each, rule in (*REQUESTS.items(), *COMMANDS.items()) if rule is NODES}
    assert for_nodes <= {*NODE_REQUESTS, *NODE_COMMANDS}


def named(node: str) -> list[Any]:
    """One of each that names its sender, which is this node."""
    return [
        Heartbeat(1, 0, node, 1),
        ReportLoad(1, 0, node, 1, 0, 1, 0, 0, 0, 0, []),
        Replicate(1, 0, node, 1, 1, 0, 0, 0, []),
        Watch(1, 0, -1, None, 0, members_at=node),
        RaftFrame(0, node, 1, 0, 0),
        RegisterBroker(node, "store", "one", "b:1", "", False, 0),
        StepDown(node, 1, 0),
        AlterIsr(node, 1, [], 0),
        ReportTails(node, 1, [], 0),
        ReportLosses(node, 1, [], 0),
        ReportDamage(node, 1, [], False, 0),
        ReportRoom(node, 1, True, 0),
        ReportDecided(node, 1, []),
        CommitOffsets(node, [], 0),
        ExpireMembers("g", node, 1, [], 0),
        ElectLeader("t", 0, node, 0),
    ]


@pytest.mark.parametrize("asked", named("me"), ids=lambda each: type(each).__name__)
def test_who_is_named_is_the_sender(asked: Any) -> None:
    rule = NODE_REQUESTS.get(type(asked)) or NODE_COMMANDS.get(type(asked))
    kind = "name-server" if isinstance(asked, RaftFrame) else "broker"
    assert node_fault("me", kind, asked, rule) is None
    assert "speak for themselves" in (node_fault("another", kind, asked, rule) or "")
    other = "broker" if kind == "name-server" else "name-server"
    assert "sends no" in (node_fault("me", other, asked, rule) or "")


def test_everything_that_says_who_sends_it_is_compared() -> None:
    fields = {"broker", "coordinator", "sender", "members_at", "prefer"}
    tables = {**NODE_REQUESTS, **NODE_COMMANDS}
    say = {each for each in tables if fields & {*each.__struct_fields__}}
    assert say == {type(each) for each in named("me")}


CONSUMED = [TransactionOffsetCommit("g", "", 0, [])]
PARKED = [ParkedBatches(1, 0, [])]


@pytest.mark.parametrize(
    ("command", "fits"),
    [
        (CreateTopic("%RETRY%g", 1, 0, TopicConfig(max_message_bytes=9), 0), True),
        (CreateTopic("%DLQ%t%s", 1, 0, TopicConfig(), 0, "alice"), True),
        (CreateTopic("t", 1, 0, TopicConfig(), 0), False),
        (CreateTopic("%RETRY%g", 2, 0, TopicConfig(), 0), False),
        (CreateTopic("%RETRY%g", 1, 3, TopicConfig(), 0), False),
        (CreateTopic("%RETRY%g", 1, 0, TopicConfig(unclean_election=True), 0), False),
        (Decide("a", -1, 1, 1, False, PARKED, [], 0), True),
        (Decide("a", -1, 1, 1, True, PARKED, [], 0), False),
        (Decide("a", 1, 1, 1, False, PARKED, [], 0), False),
        (Decide("a", -1, 1, 1, False, PARKED, CONSUMED, 0), False),
        (ElectLeader("t", 0, None, 0), False),
    ],
)
def test_a_broker_asks_for_what_it_needs(command: Any, fits: bool) -> None:
    fault = node_fault("broker-1", "broker", command, NODE_COMMANDS[type(command)])
    assert (fault is None) is fits


def test_a_node_is_what_it_is_registered_as() -> None:
    assert kinds_of(is_broker=True, is_name_server=False) == ("broker",)
    assert kinds_of(is_broker=False, is_name_server=True) == ("name-server",)
    assert kinds_of(is_broker=False, is_name_server=False) == EITHER
    assert kinds_of(is_broker=True, is_name_server=True) == EITHER


def test_the_page_prints_the_table() -> None:
    page = PAGE.read_text("utf-8")
    lines = page.partition("## What nodes send")[2].partition("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:2] == "| "]
    printed = {name.strip("` "): kind for kind, names, _ in rows[1:] for name in names.split(",")}
    tables = {**NODE_REQUESTS, **NODE_COMMANDS}
    said = {("broker",): "a broker", ("name-server",): "a name server", EITHER: "either"}
    assert printed == {tag(each): said[rule.kinds] for each, rule in tables.items()}
