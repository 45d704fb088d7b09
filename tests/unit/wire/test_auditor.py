"""What the parts of a node tell the audit log."""

import json
import random
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from logboom.wire.acceptor import Acceptor, PeerSession
from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_commands import AddUserKey, EndUserKeys
from logboom.wire.access.access_rules import (
    AccessRule,
    AccessView,
    RoleView,
    UserKey,
    UserView,
    principal_of,
)
from logboom.wire.access_requirements import REQUESTS
from logboom.wire.actor import Effects, Instant, PeerAddress
from logboom.wire.audit_file import DEFAULT_FILES, MAX_FILE_BYTES, AuditFiles
from logboom.wire.audit_log import (
    COUNTED_EVERY_S,
    MAX_LINE_BYTES,
    SHARE_BYTES,
    SHARE_BYTES_PER_HOUR,
)
from logboom.wire.auditor import (
    COUNTED_REQUESTS,
    MANAGEMENT,
    MANAGEMENT_REQUESTS,
    Auditor,
)
from logboom.wire.authorizer import Authorizer
from logboom.wire.base import WireMessage
from logboom.wire.commands import AnyCommand, Barrier, CreateTopic, DeleteTopic
from logboom.wire.errors import InvalidRequest, NotLeader, Refused
from logboom.wire.frames import encode
from logboom.wire.group_commands import DeleteGroup
from logboom.wire.messages import Hello, Produce, Propose, RemoveNameServer, Replicate, Stats
from logboom.wire.stats import Statistics
from logboom.wire.subscription_messages import AlterSubscription
from logboom.wire.transactions import MADE_UP, NOT_FENCED, Decide
from logboom.wire.view import TopicConfig

KEY = UserKey("laptop", "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", 0)
ALICE = principal_of("alice", KEY)
HERE = PeerAddress("main", b"\x01")
SECRET = b"what nobody else may read"

ROUTINE = frozenset(
    [
        "allocateproducerids",
        "alterisr",
        "barrier",
        "commitoffsets",
        "decide",
        "expiremembers",
        "fencebroker",
        "joingroup",
        "leavegroup",
        "newterm",
        "opentransaction",
        "releasequeues",
        "reportdamage",
        "reportdecided",
        "reportlosses",
        "reportroom",
        "reporttails",
        "setstart",
        "settarget",
        "stepdown",
    ]
)
"""Commands that are not told."""
ROUTINE_REQUESTS = frozenset(
    [
        "awaitdecided",
        "checkhalves",
        "checkparked",
        "describeaccess",
        "describecluster",
        "describeconfig",
        "describegroup",
        "describesubscriptions",
        "describeversions",
        "detach",
        "endhalf",
        "findappendtimes",
        "findkey",
        "groupcommit",
        "groupheartbeat",
        "groupjoin",
        "groupleave",
        "grouprelease",
        "groupstatus",
        "heartbeat",
        "hello",
        "listconnections",
        "listdelayed",
        "listgroups",
        "listunended",
        "makeretrytopics",
        "offsetfortime",
        "offsets",
        "ping",
        "planbalance",
        "produce",
        "propose",
        "prove",
        "pull",
        "raftframe",
        "recall",
        "receive",
        "replicate",
        "reportload",
        "settlemessages",
        "signcopies",
        "stats",
        "subscribe",
        "surveygroups",
        "surveyqueues",
        "watch",
    ]
)
"""Requests that are not told."""


class Gate:
    """A gate with an audit log behind it, and alice, who may read what begins with "mine."."""

    def __init__(self) -> None:
        self.book = AccessBook()
        self.let_in([KEY])
        self.auditor = Auditor("broker-1", Statistics())
        self.auditor.address_of = lambda address: f"10.0.0.{address.routing_id[0]}"
        self.auditor.begin(Instant(1.0, 1_000))
        self.acceptor = Acceptor("broker-1", b"k" * 32, random.Random(1))
        self.acceptor.authorizer = Authorizer(lambda: self.book)
        self.acceptor.authorizer.on_refusal = self.auditor.refused_by_rule
        self.acceptor.on_denial = self.auditor.refused
        self.now = 1.0

    def let_in(self, keys: list[UserKey]) -> None:
        role = RoleView("reader", [AccessRule(True, "read", "topic", "mine.*")], 1)
        alice = UserView("alice", keys, ["reader"])
        view = AccessView(full=True, users=[alice], roles=[role])
        self.book.update(view, self.book.version + 1)

    def say(self, message: WireMessage, principal: str | None = ALICE) -> bool:
        """Whether it is served."""
        frames = encode(message, [SECRET] if isinstance(message, Produce) else ())
        admitted = self.acceptor.admit(HERE, frames, Effects(), self.now, principal)
        return admitted is not None

    def told(self) -> list[dict[str, Any]]:
        lines = self.auditor.log.take()
        assert not any(SECRET in line or KEY.public.encode() in line for line in lines)
        return [json.loads(line) for line in lines]


def hello(name: str = "me", kind: Any = "client") -> Hello:
    return Hello(-1, 1, 1, name, kind, 0)


def tags(*types: type[msgspec.Struct]) -> set[str]:
    """Names of types as they stand in messages."""
    return {str(each.__struct_config__.tag) for each in types}


def test_each_command_is_management_or_routine() -> None:
    assert not tags(*MANAGEMENT) & ROUTINE
    assert tags(*MANAGEMENT) | ROUTINE == tags(*get_args(AnyCommand))


def test_each_request_is_management_counted_or_routine() -> None:
    lists = (tags(*MANAGEMENT_REQUESTS), tags(*COUNTED_REQUESTS), ROUTINE_REQUESTS)
    assert sum(map(len, lists)) == len(set().union(*lists))
    assert set().union(*lists) == tags(*REQUESTS)


FILLED: dict[str, Any] = {"topic": "t", "group": "g", "name": "n", "name_server": "n", "id": 4}


def filled(of: Any) -> Any:
    """A message or command with something in each field."""
    hints = get_type_hints(of)
    fields = msgspec.structs.fields(of)
    return of(**{f.name: FILLED.get(f.name, _some(hints[f.name])) for f in fields if f.required})


def _some(hint: Any) -> Any:
    for kind, value in (("str", ""), ("int", 0), ("bool", False), ("bytes", b""), ("list", [])):
        if kind in str(hint):
            return value
    return None


@pytest.mark.parametrize("of", sorted(REQUESTS, key=repr))
def test_each_request_is_told_as_its_list_says(of: Any) -> None:
    gate = Gate()
    for _ in range(3):
        gate.auditor.requested(session(), filled(of))
    gate.auditor.begin(Instant(5.0, 5_000))
    told = [(line["request"], line["user"], line.get("count", 0)) for line in gate.told()]
    tag = of.__struct_config__.tag
    if of in MANAGEMENT_REQUESTS:
        assert told == [(tag, "alice", 0)] * 3
    elif of in COUNTED_REQUESTS:
        assert told == [(tag, "alice", 1), (tag, "alice", 2)]
    else:
        assert told == []


@pytest.mark.parametrize("of", sorted(get_args(AnyCommand), key=repr))
def test_each_command_is_told_as_its_list_says(of: Any) -> None:
    gate = Gate()
    gate.auditor.commanded(session(), Propose(5, 1_000, "", 1, filled(of)), "")
    told = [(line["request"], line["result"]) for line in gate.told()]
    assert told == ([(of.__struct_config__.tag, "ok")] if of in MANAGEMENT else [])


def test_a_decision_that_is_not_the_applications_own_is_told() -> None:
    gate = Gate()
    for epoch, app_id in ((3, "job"), (NOT_FENCED, "job"), (NOT_FENCED, f"{MADE_UP}secret")):
        command = Decide(app_id, epoch, 1, 1, False, [], [], 0)
        gate.auditor.commanded(session(), Propose(5, 1_000, "", 1, command), "")
    lines = gate.auditor.log.take()
    assert [json.loads(line)["details"]["app_id"] for line in lines] == ["job", MADE_UP]
    assert b"secret" not in b"".join(lines)


HOURS = 48
"""Hours for which one user and strangers together push nothing out of as many files as are kept."""


def most_bytes(hours: int) -> int:
    """The bytes that one share of the log may take: what is saved up, what comes, numbers."""
    saved_up = SHARE_BYTES + MAX_LINE_BYTES
    numbers = int(hours * 3600 / COUNTED_EVERY_S) + 2
    return saved_up + hours * SHARE_BYTES_PER_HOUR + numbers * MAX_LINE_BYTES


def test_the_shares_are_small_enough() -> None:
    older_files = DEFAULT_FILES - 1
    # What a user does and is refused, and what strangers are refused.
    assert 3 * most_bytes(HOURS) < older_files * MAX_FILE_BYTES
    # As SECURITY.md says it.
    assert 2 * most_bytes(24) < 7.5 * 1024**2
    assert most_bytes(24) < 3.75 * 1024**2


def test_one_user_and_strangers_push_out_nothing_for_two_days(tmp_path: Path) -> None:
    gate = Gate()
    auditor = gate.auditor
    auditor.address_of = lambda address: f"2001:db8::{int.from_bytes(address.routing_id):x}"
    files = AuditFiles(tmp_path, "broker-1")
    carol = session(principal=principal_of("carol", KEY))
    strange = "\u202e\U000e0041"
    others: list[int] = []

    def serve(of: PeerSession, number: int, name: str) -> None:
        create = Propose(number, 1_000, "", 1, CreateTopic(name, 1, 1, TopicConfig(), 0))
        auditor.commanded(of, create, "")

    def refuse(of: PeerSession, number: int, name: str) -> None:
        auditor.refused(
            of.address, of.principal, of, DeleteGroup(name, 0), Refused(name, "FORBIDDEN")
        )

    def write(seconds: float) -> None:
        now = Instant(seconds, int(seconds * 1_000))
        files.write(auditor.log, now)
        auditor.begin(now)

    served = 0
    for step in range(HOURS * 60):
        seconds = 60.0 * step
        write(seconds)
        if step % 60 == 10:
            others.append(step)
            serve(carol, step, "orders")
            refuse(carol, step, "orders")
        # First all at once, and then more than any share has.
        for number in range(3_000 if step == 11 else 4):
            worst = session()
            worst.address = PeerAddress("main", number.to_bytes(4) + step.to_bytes(4))
            worst.client_id = strange * (128 if number % 2 else 1)
            serve(worst, 0, strange * 40 if number % 3 else "t")
            refuse(worst, 0, strange * 40)
            auditor.refused_key(f"2001:db8:1::{step:x}:{number:x}", "main")
            served += 1
    files.close(auditor.log)
    written = [line for path in tmp_path.iterdir() for line in path.read_bytes().splitlines()]
    assert max(map(len, written)) < MAX_LINE_BYTES
    lines: list[dict[str, Any]] = [json.loads(line) for line in written]
    # Each line of others is there, and the number of all that are not.
    of_carol = [line for line in lines if line.get("user") == "carol"]
    done = [line["request_id"] for line in of_carol if line["event"] == "command"]
    assert sorted(done) == others
    assert [line["count"] for line in of_carol if line["event"] == "refused"] == [1] * len(others)
    of_alice = [line for line in lines if line.get("user") == "alice"]
    counts = [line.get("count", 1) for line in of_alice if line["event"] == "command"]
    assert sum(counts) == served
    assert {line.get("beyond_share", False) for line in of_alice} == {True, False}
    # The number comes at once, and then once an hour, for what is done and what is refused.
    assert sum(line.get("beyond_share", False) for line in of_alice) <= 2 * (HOURS + 2)


def test_a_user_with_few_rights_cannot_push_out_what_administrators_did() -> None:
    gate = Gate()
    log = gate.auditor.log
    gate.auditor.commanded(session(), Propose(5, 1_000, "", 1, AddUserKey("bob", KEY)), "")
    alter = filled(AlterSubscription)
    size = 0
    for at in range(10_000):
        gate.auditor.begin(Instant(1.0 + at / 1_000, at))
        gate.auditor.requested(session(), alter)
        gate.auditor.commanded(session(), Propose(5, 1_000, "", 1, DeleteTopic("t", 0)), "X")
        size += sum(map(len, log.take()))
    assert size < most_bytes(1)
    (kept,) = log.take_kept()
    assert json.loads(kept)["request"] == "adduserkey"


def test_what_is_served_is_not_told() -> None:
    gate = Gate()
    gate.say(hello())
    gate.say(Stats(1, 1_000))
    assert [line["request"] for line in gate.told()] == ["stats"]
    assert gate.say(Propose(2, 1_000, "", 1, Barrier()))
    assert gate.told() == []


def test_a_refusal_by_rule_is_told_once_with_the_rule() -> None:
    gate = Gate()
    gate.say(hello())
    assert not gate.say(Produce(7, 1_000, "yours", 0, "all"))
    (line,) = gate.told()
    assert line.pop("key").startswith("laptop#")
    del line["time"]
    assert line == {
        "node": "broker-1",
        "event": "refused",
        "user": "alice",
        "address": "10.0.0.1",
        "client": "me",
        "request": "produce",
        "verb": "write",
        "resource": "topic:yours",
        "result": "FORBIDDEN",
        "rule": "no rule allows it",
        "request_id": 7,
        "count": 1,
    }


def test_a_key_that_has_ended_is_told() -> None:
    gate = Gate()
    gate.say(hello())
    gate.let_in([UserKey("other", "x" * 40, 0)])
    assert not gate.say(Stats(1, 1_000))
    assert not gate.say(hello())
    gate.auditor.begin(Instant(3.0, 3_000))
    told = [(line["event"], line["user"], line["result"]) for line in gate.told()]
    assert told == [
        ("refused", "alice", "UNAUTHENTICATED"),
        ("authentication", "alice", "UNAUTHENTICATED"),
    ]


def test_on_an_open_listener_what_is_for_nodes_is_told_without_a_user() -> None:
    gate = Gate()
    gate.say(hello("x"), None)
    assert not gate.say(Replicate(1, 1_000, "b", 0, 0, 0, 0, 0, []), None)
    (line,) = gate.told()
    assert "user" not in line
    assert (line["client"], line["address"]) == ("x", "10.0.0.1")
    assert (line["request"], line["result"]) == ("replicate", "UNAUTHENTICATED")


def test_an_unknown_key_is_told_with_its_address() -> None:
    gate = Gate()
    gate.auditor.refused_key("10.0.0.7", "main")
    (line,) = gate.told()
    assert (line["event"], line["address"]) == ("authentication", "10.0.0.7")


def session(kind: Any = "client", principal: str | None = ALICE) -> PeerSession:
    return PeerSession(HERE, "me", kind, 0, 1, 1.0, principal=principal)


@pytest.mark.parametrize(
    ("command", "code", "expected"),
    [
        (CreateTopic("mine.a", 4, 1, TopicConfig(), 0), "", ("manage", "topic:mine.a", "ok")),
        (DeleteTopic("t", 0), "UNKNOWN_TOPIC", ("manage", "topic:t", "UNKNOWN_TOPIC")),
        (AddUserKey("bob", KEY), "", ("admin", "cluster:cluster", "ok")),
        (Barrier(), "", None),
    ],
)
def test_management_is_told_with_its_result(
    command: AnyCommand, code: str, expected: tuple[str, str, str] | None
) -> None:
    gate = Gate()
    gate.auditor.commanded(session(), Propose(5, 1_000, "", 1, command), code)
    told = gate.told()
    found = [(line["verb"], line["resource"], line["result"]) for line in told]
    assert found == ([] if expected is None else [expected])
    if told:
        assert told[0]["user"] == "alice"
        assert told[0]["request_id"] == 5
        assert told[0]["details"]["name"]


def test_a_command_that_did_not_enter_the_log_is_told_unless_it_was_asked_at_the_wrong_place() -> (
    None
):
    gate = Gate()
    propose = Propose(5, 1_000, "", 1, DeleteTopic("t", 0))
    gate.auditor.proposed(session(), propose, NotLeader("ask another"))
    assert gate.told() == []
    gate.auditor.proposed(session(), propose, InvalidRequest("no"))
    gate.auditor.proposed(session(), propose, Refused("no", "FORBIDDEN"))
    told = [(line["event"], line["request"], line["result"]) for line in gate.told()]
    assert told == [
        ("command", "deletetopic", "INVALID_ARGUMENT"),
        ("refused", "deletetopic", "FORBIDDEN"),
    ]


def test_a_command_that_a_rule_refuses_is_told_once() -> None:
    gate = Gate()
    propose = Propose(5, 1_000, "", 1, DeleteTopic("yours", 0))
    error = gate.acceptor.authorizer.refusal_of_command(session(), propose.command, lambda _: None)
    assert error is not None
    gate.auditor.proposed(session(), propose, error)
    gate.auditor.begin(Instant(3.0, 3_000))
    (line,) = gate.told()
    assert (line["event"], line["resource"], line["count"]) == ("refused", "topic:yours", 1)


def test_what_the_raft_leader_does_to_keys_by_itself_is_told() -> None:
    gate = Gate()
    gate.auditor.commanded_itself(EndUserKeys(5), "")
    gate.auditor.commanded_itself(Barrier(), "")
    kept = gate.auditor.log.take_kept()
    assert [json.loads(line) for line in kept] == gate.told()
    (line,) = map(json.loads, kept)
    assert (line["request"], line["result"]) == ("enduserkeys", "ok")


def test_requests_of_management_that_are_no_commands_are_told() -> None:
    gate = Gate()
    gate.auditor.requested(session(), RemoveNameServer(4, 1_000, "name-3"), "BUSY")
    gate.auditor.requested(session(), Stats(5, 1_000))
    (line,) = gate.told()
    assert (line["event"], line["request"], line["result"]) == (
        "request",
        "removenameserver",
        "BUSY",
    )
    assert line["details"] == {"name_server": "name-3"}
