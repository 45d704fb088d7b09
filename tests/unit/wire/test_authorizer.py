"""Who may send what: decisions on sessions and requests, and answers that tell nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pytest

from logboom.wire.acceptor import MAX_SESSIONS, Acceptor
from logboom.wire.access.access_book import AccessBook, AccessDecision
from logboom.wire.access.access_commands import AddRule
from logboom.wire.access.access_rules import AccessRule, AccessView, RoleView, UserKey, UserView
from logboom.wire.access_requirements import COMMANDS, NOBODY, NODES, REQUESTS, Requirement
from logboom.wire.actor import Effects, PeerAddress
from logboom.wire.authorizer import (
    MAX_RIGHTS,
    MAX_RIGHTS_BY_ID,
    MAX_TOPIC_ID,
    Authorizer,
)
from logboom.wire.base import WireMessage
from logboom.wire.commands import (
    Barrier,
    CreateTopic,
    DeleteTopic,
    NewTerm,
    RemoveBroker,
    StepDown,
)
from logboom.wire.errors import (
    Forbidden,
    InvalidRequest,
    LogboomError,
    Unauthenticated,
    Unavailable,
    UnknownResource,
)
from logboom.wire.frames import decode, encode
from logboom.wire.group_commands import ResetOffsets
from logboom.wire.group_messages import GroupHeartbeat, GroupJoin
from logboom.wire.group_view import GroupConfig
from logboom.wire.hello import PeerKind
from logboom.wire.messages import (
    DescribeGroup,
    Failure,
    Heartbeat,
    Hello,
    NeedHello,
    Offsets,
    Ping,
    Produce,
    Propose,
    Pull,
    Pulled,
    RaftFrame,
    Stats,
    Watch,
    Welcome,
)
from logboom.wire.names import unknown_group_text, unknown_topic_text
from logboom.wire.node_requirements import kinds_of
from logboom.wire.transactions import Decide, OpenApplication, ParkedBatches
from logboom.wire.view import TopicConfig
from tests.unit.wire.work import longest_ms

READ_A = AccessRule(True, "read", "topic", "a")
KEY = UserKey("laptop", "0" * 40, 0)


@dataclass
class Session:
    """A caller."""

    principal: str | None
    user: str = "alice"
    kind: PeerKind = "client"
    proven: bool = False


def authorizer(
    *rules: AccessRule, role: tuple[AccessRule, ...] = (), disabled: bool = False
) -> Authorizer:
    """An authorizer that knows alice with these rules, and a broker."""
    book = AccessBook()
    users = [
        UserView("alice", [KEY], ["team"], list(rules), disabled=disabled, version=5),
        UserView("node:broker-1", [UserKey("first", "1" * 40, 0)]),
    ]
    book.update(AccessView(True, users, [RoleView("team", list(role), version=3)]), 10)
    return Authorizer(lambda: book)


def alice(of: Authorizer) -> Session:
    return Session(of.books().principal_of("0" * 40) or "alice/laptop#0")


def node(of: Authorizer, *, proven: bool = True, kind: PeerKind = "broker") -> Session:
    return Session(of.books().principal_of("1" * 40), "node:broker-1", kind, proven)


def ask(of: Authorizer, message: WireMessage) -> LogboomError | None:
    return of.refusal(alice(of), message)


def allow(verb: Any, kind: Any, pattern: str) -> AccessRule:
    return AccessRule(True, verb, kind, pattern)


def deny(verb: Any, kind: Any, pattern: str) -> AccessRule:
    return AccessRule(False, verb, kind, pattern)


def pull(topic: str, group: str = "") -> Pull:
    return Pull(1, 0, topic, 0, 0, 1, 0, group=group)


def produce(topic: str) -> Produce:
    return Produce(1, 0, topic, 0, "all")


# ── sessions ────────────────────────────────────────────────────────────────────────────────────


def test_open_listeners_are_not_decided_here() -> None:
    of = authorizer()
    assert of.refusal(Session(None, ""), produce("a")) is None
    assert of.refusal_of_command(Session(None, ""), RemoveBroker("b"), lambda _: None) is None
    assert of.sight(Session(None, "")) is None
    assert of.lack(Session(None, ""), None, Requirement("write", "topic", "a")) is None


@pytest.mark.parametrize("message", [Watch(1, 0, -1, None, 0), produce("a")])
def test_who_is_disabled_or_unknown_is_served_nothing(message: WireMessage) -> None:
    everything = allow("write", "topic", "*")
    gone = authorizer(everything, disabled=True)
    assert isinstance(gone.refusal(Session("alice/laptop#0"), message), Unauthenticated)
    assert isinstance(gone.ended("alice/laptop#0"), Unauthenticated)
    good = authorizer(everything)
    assert good.refusal(alice(good), message) is None
    assert good.ended(alice(good).principal or "") is None
    for principal in ("alice/laptop#0", "alice/other", "bob/laptop", ""):
        error = good.refusal(Session(principal, principal.partition("/")[0]), message)
        assert isinstance(error, Unauthenticated)
        assert good.refusal_of_command(Session(principal), Barrier(), lambda _: "a") is not None


def test_a_node_that_knows_no_users_yet_asks_to_wait() -> None:
    error = Authorizer(AccessBook).refusal(Session("alice/laptop#0"), produce("a"))
    assert isinstance(error, Unavailable)


def test_a_node_needs_its_key_and_the_cluster_key_and_must_be_one() -> None:
    of = authorizer()
    beat = Heartbeat(1, 0, "broker-1", 1)
    assert of.refusal(node(of), beat) is None
    assert of.refusal_of_command(node(of), StepDown("broker-1", 1, 0), lambda _: None) is None
    for session in (
        node(of, proven=False),
        node(of, kind="client"),
        node(of, kind="client", proven=False),
        Session(alice(of).principal, "alice", "broker", proven=True),
        Session(alice(of).principal, "alice", "name-server", proven=True),
    ):
        assert isinstance(of.refusal(session, beat), Unauthenticated)
        assert isinstance(of.refusal(session, Watch(1, 0, -1, None, 0)), Unauthenticated)
        assert isinstance(
            of.refusal_of_command(session, Barrier(), lambda _: None), Unauthenticated
        )


def test_a_node_is_of_the_kind_that_it_is_known_as() -> None:
    of = authorizer()
    frame = RaftFrame(0, "broker-1", 1, 0, 0)
    assert of.refusal(node(of, kind="name-server"), frame) is None, "it may become either"
    of.kinds_of = lambda _node: kinds_of(is_broker=True, is_name_server=False)
    assert isinstance(of.refusal(node(of, kind="name-server"), frame), Unauthenticated)
    assert isinstance(of.refusal(node(of), frame), Forbidden)
    assert of.refusal(node(of), Heartbeat(1, 0, "broker-1", 1)) is None


def test_a_node_speaks_for_itself_alone() -> None:
    of = authorizer()
    for message in (Heartbeat(1, 0, "broker-2", 1), produce("a"), pull("a"), Stats(1, 0)):
        assert isinstance(of.refusal(node(of), message), Forbidden)
    for command in (RemoveBroker("b"), NewTerm(1, "", "", 0), StepDown("broker-2", 1, 0)):
        assert isinstance(of.refusal_of_command(node(of), command, lambda _: None), Forbidden)


def test_the_cluster_key_gives_a_user_nothing() -> None:
    of = authorizer()
    session = Session(alice(of).principal, proven=True)
    error = of.refusal(session, Heartbeat(1, 0, "b", 1))
    assert isinstance(error, Forbidden)
    assert error.fields == {"verb": "admin", "kind": "cluster", "name": "cluster"}
    assert isinstance(of.refusal_of_command(session, RemoveBroker("b"), lambda _: None), Forbidden)


def test_the_owner_may_say_who_is_current() -> None:
    book = authorizer(READ_A).books
    of = Authorizer(book, lambda principal: principal == "alice/from-the-config")
    assert of.refusal(Session("alice/from-the-config"), pull("a")) is None
    assert of.refusal(alice(of), pull("a")) is not None


def test_what_a_session_sees() -> None:
    of = authorizer(READ_A, allow("describe", "transaction", "billing"))
    seen = of.sight(alice(of))
    assert seen is not None
    assert (seen.topic("a"), seen.topic("b"), seen.group("g")) == (True, False, False)
    assert seen.transaction("billing")
    assert seen.is_current()
    of.books().update(AccessView(False, [], deleted_users=["alice"]), 11)
    assert not seen.is_current()
    assert not seen.topic("a")
    assert of.sight(node(of)) is None
    assert of.sight(Session(None, "")) is None


def test_a_right_may_be_asked_for_without_a_session() -> None:
    of = authorizer(READ_A)
    assert of.allowed("alice", Requirement("read", "topic", "a"))
    assert not of.allowed("alice", Requirement("write", "topic", "a"))
    assert not of.allowed("bob", Requirement("read", "topic", "a"))


def test_open_sessions_and_nodes_lack_nothing() -> None:
    of = authorizer()
    needed = Requirement("write", "topic", "a")
    assert of.outside(Session(None, "")) is None
    assert of.lack(Session(None, ""), None, needed) is None
    assert of.lack(node(of), None, needed) is None
    # Nor does a node that only the configuration of this one knows yet.
    assert of.lack(Session("node:name-9/initial#0", "node:name-9"), None, needed) is None
    assert of.lack(alice(of), None, needed) is not None


# ── requests ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (allow("read", "topic", "a"), pull("a")),
        (allow("write", "topic", "a.*"), produce("a.b")),
        (allow("write", "topic", "a"), Offsets(1, 0, "a", [0])),
        (allow("describe", "topic", "a"), Offsets(1, 0, "a", [0])),
        (allow("describe", "cluster", "*"), Stats(1, 0)),
        (allow("admin", "cluster", "cluster"), Stats(1, 0)),
        (allow("read", "group", "g"), pull("%RETRY%g")),
        (allow("read", "group", "g"), produce("%RETRY%g")),
        (allow("read", "group", "g"), pull("%DLQ%g")),
        (allow("read", "topic", "t"), produce("%RETRY%t%s")),
    ],
)
def test_a_right_is_needed_and_enough(rule: AccessRule, message: WireMessage) -> None:
    assert ask(authorizer(rule), message) is None
    assert ask(authorizer(role=(rule,)), message) is None
    assert ask(authorizer(), message) is not None
    assert ask(authorizer(allow(rule.verb, rule.kind, "other")), message) is not None
    denied = deny(rule.verb, rule.kind, rule.pattern)
    if rule.verb not in ("write", "admin") or not isinstance(message, Offsets | Stats):
        assert ask(authorizer(rule, denied), message) is not None


def test_all_rights_of_a_request_are_needed() -> None:
    topic, group = allow("read", "topic", "a"), allow("read", "group", "g")
    assert ask(authorizer(topic, group), pull("a", "g")) is None
    assert ask(authorizer(topic), pull("a", "g")) is not None
    assert ask(authorizer(group), pull("a", "g")) is not None
    join = GroupJoin(1, 0, "g", "m", "", "", {"a": "", "b": ""}, True, GroupConfig())
    assert ask(authorizer(topic, group), join) is not None
    assert ask(authorizer(topic, group, allow("read", "topic", "b")), join) is None
    assert ask(authorizer(topic, allow("read", "topic", "b")), join) is not None


def test_one_of_two_verbs_is_enough_where_the_table_says_so() -> None:
    needed = Requirement("write", "topic", "a", "manage")
    for verb in ("write", "manage"):
        of = authorizer(allow(verb, "topic", "a"))
        assert of.lack(alice(of), None, needed) is None
    of = authorizer(allow("read", "topic", "a"))
    assert isinstance(of.lack(alice(of), None, needed), Forbidden)


@pytest.mark.parametrize(
    "message",
    [Heartbeat(1, 0, "broker-1", 1), RaftFrame(0, "name-1", 1, 0), Pulled(1, "FOUND", 0, 0, 0)],
)
def test_what_is_not_for_users_is_refused_to_administrators_too(message: WireMessage) -> None:
    of = authorizer(*(allow(v, k, "*") for v, k in [("admin", "cluster"), ("write", "topic")]))
    assert isinstance(ask(of, message), Forbidden)


def test_no_user_sends_what_nodes_and_the_raft_leader_send() -> None:
    of = authorizer(allow("admin", "cluster", "cluster"), allow("manage", "topic", "*"))
    kinds = [t for t, r in {**REQUESTS, **COMMANDS}.items() if r in (NODES, NOBODY)]
    assert len(kinds) == 25
    for kind in kinds:
        # Nothing of it is looked at.
        message: Any = kind(*[None] * len(kind.__struct_fields__))
        refused = of.refusal if kind in REQUESTS else None
        error = (
            refused(alice(of), message)
            if refused is not None
            else of.refusal_of_command(alice(of), message, lambda _: None)
        )
        assert isinstance(error, Forbidden), kind


# ── answers ─────────────────────────────────────────────────────────────────────────────────────


def test_a_name_that_may_not_be_described_is_unknown() -> None:
    topic, group = ask(authorizer(), produce("a")), ask(authorizer(), DescribeGroup(1, 0, "g"))
    assert isinstance(topic, UnknownResource)
    assert (topic.code, topic.text) == ("UNKNOWN_TOPIC", unknown_topic_text("a"))
    assert topic.fields == {"topic": "a"}
    assert isinstance(group, UnknownResource)
    assert (group.code, group.text) == ("UNKNOWN_GROUP", unknown_group_text("g"))
    assert group.fields == {"group": "g"}
    hidden = ask(
        authorizer(allow("read", "topic", "a"), deny("describe", "topic", "a")), produce("a")
    )
    assert isinstance(hidden, UnknownResource)


def test_who_may_describe_is_told_what_is_missing_and_the_remedy() -> None:
    error = ask(authorizer(READ_A), produce("a"))
    assert isinstance(error, Forbidden)
    assert error.fields == {"verb": "write", "kind": "topic", "name": "a"}
    assert error.text == (
        "user 'alice' may not write topic 'a': an administrator can allow it with "
        "`logboom acl add user:alice allow write topic a`"
    )
    denied = ask(authorizer(READ_A, deny("write", "topic", "*")), produce("a"))
    assert isinstance(denied, Forbidden)
    assert "`logboom acl explain --user alice write topic a`" in denied.text
    assert "*" not in denied.text, "the rule itself is not told"


def test_the_remedy_for_a_groups_topic_is_a_right_on_the_group() -> None:
    error = ask(authorizer(allow("describe", "group", "g")), produce("%RETRY%g"))
    assert isinstance(error, Forbidden)
    assert error.fields == {"verb": "read", "kind": "group", "name": "g"}
    assert error.text.endswith("`logboom acl add user:alice allow read group g`")


def test_what_would_be_created_is_forbidden_whether_it_exists_or_not() -> None:
    of = authorizer()
    for command in (CreateTopic("a", 1, 0, TopicConfig(), 0), OpenApplication("a", 0)):
        assert isinstance(of.refusal_of_command(alice(of), command, lambda _: None), Forbidden)
    join = GroupJoin(1, 0, "g", "m", "", "", {"a": ""}, False, GroupConfig())
    assert isinstance(ask(of, join), Forbidden)
    deletion = of.refusal_of_command(alice(of), DeleteTopic("a", 0), lambda _: None)
    assert isinstance(deletion, UnknownResource)


def test_the_clusters_own_requests_are_forbidden_in_words() -> None:
    error = ask(authorizer(), Stats(1, 0))
    assert isinstance(error, Forbidden)
    assert error.text.startswith("user 'alice' may not describe the cluster: ")
    assert error.fields == {"verb": "describe", "kind": "cluster", "name": "cluster"}


def test_refusals_by_rules_are_told_to_the_owner() -> None:
    of = authorizer(READ_A)
    told: list[tuple[object, Requirement, AccessDecision]] = []
    of.on_refusal = lambda caller, asked, needed, decision: told.append((asked, needed, decision))
    message = produce("a")
    assert ask(of, pull("a")) is None
    assert told == []
    ask(of, message)
    assert [(asked, needed[:3]) for asked, needed, _ in told] == [
        (message, ("write", "topic", "a"))
    ]
    assert not told[0][2].allowed


# ── topics by id ────────────────────────────────────────────────────────────────────────────────

NAMES = {5: "a", 6: "hidden"}


def reset(of: Authorizer, *ids: int) -> LogboomError | None:
    command = ResetOffsets("g", [(topic_id, 0, 1) for topic_id in ids], 0)
    return of.refusal_of_command(alice(of), command, NAMES.get)


def commit(of: Authorizer, *ids: int) -> LogboomError | None:
    parked = [ParkedBatches(topic_id, 0, [(1, 1)]) for topic_id in ids]
    command = Decide("%OWN%1", 0, 1, 1, True, parked, [], 0)
    return of.refusal_of_command(alice(of), command, NAMES.get)


def test_a_topic_that_is_named_by_its_id_needs_the_same_rights() -> None:
    manages = allow("manage", "group", "g")
    reader, writer = authorizer(manages, READ_A), authorizer(manages, allow("write", "topic", "a"))
    assert reset(reader, 5) is None
    assert commit(writer, 5) is None
    error = commit(reader, 5)
    assert isinstance(error, Forbidden)
    assert error.fields["name"] == "a"
    # Whoever may only describe it sees it, and is refused, not passed on.
    for verb in ("describe", "manage"):
        assert isinstance(commit(authorizer(manages, allow(verb, "topic", "a")), 5), Forbidden)


def test_ids_that_are_unknown_or_hidden_are_left_to_the_handler_alike() -> None:
    of = authorizer(allow("manage", "group", "g"), allow("write", "topic", "a"))
    for topic_id in (6, 7, 0, MAX_TOPIC_ID - 1):
        assert reset(of, topic_id) is None
        assert commit(of, 5, topic_id) is None
        reader = authorizer(READ_A)
        assert isinstance(commit(reader, topic_id, 5), Forbidden), "it does not hide what follows"
    # Twice the bound has a sign and 64 bits: ids that are replaced get the bound added.
    for topic_id in (1 << 62, -1, 1 << 63):
        assert isinstance(reset(of, 5, topic_id), InvalidRequest)
        assert isinstance(commit(of, topic_id), InvalidRequest)


def test_an_administrator_adds_rules_and_nobody_else() -> None:
    command = AddRule("user:alice", allow("admin", "cluster", "cluster"))
    of = authorizer(allow("manage", "topic", "*"), allow("describe", "cluster", "cluster"))
    assert isinstance(of.refusal_of_command(alice(of), command, lambda _: None), Forbidden)
    of = authorizer(allow("admin", "cluster", "cluster"))
    assert of.refusal_of_command(alice(of), command, lambda _: None) is None


def test_a_change_of_the_rules_counts_at_once() -> None:
    of = authorizer(READ_A)
    assert ask(of, pull("a")) is None
    changed = UserView("alice", [KEY], [], [], version=11)
    of.books().update(AccessView(False, [changed]), 11)
    assert isinstance(ask(of, pull("a")), UnknownResource)
    assert isinstance(ask(of, GroupHeartbeat(1, 0, "g", "m", 1, -1, 0)), UnknownResource)


def test_rules_in_place_of_others_count_at_once_for_a_user_and_for_a_role() -> None:
    of = authorizer(READ_A, role=(allow("read", "topic", "b"),))
    assert ask(of, pull("a")) is None
    assert ask(of, pull("b")) is None
    changed = UserView("alice", [KEY], ["team"], [allow("read", "topic", "c")], version=11)
    of.books().update(AccessView(False, [changed]), 11)
    assert ask(of, pull("a")) is not None
    assert ask(of, pull("c")) is None
    assert ask(of, pull("b")) is None
    role = RoleView("team", [allow("read", "topic", "d")], version=12)
    of.books().update(AccessView(False, [], [role]), 12)
    assert ask(of, pull("b")) is not None
    assert ask(of, pull("d")) is None
    assert ask(of, pull("c")) is None


# ── the gate ────────────────────────────────────────────────────────────────────────────────────

HERE = PeerAddress("main", b"one")


class Gate:
    """A listener with keys, at which alice has greeted."""

    def __init__(self, *rules: AccessRule) -> None:
        self.authorizer = authorizer(*rules)
        self.acceptor = Acceptor("broker-1", b"key", random.Random(1))
        self.acceptor.authorizer = self.authorizer
        self.principal = alice(self.authorizer).principal
        assert isinstance(self.greet(), Welcome)

    def greet(self) -> object:
        return self.say(Hello(-1, 1, 1, "me", "client", 0))

    def say(self, message: WireMessage) -> object:
        """Return "served", the answer, or None if there is none."""
        out = Effects()
        if self.acceptor.admit(HERE, encode(message), out, 0.0, self.principal) is not None:
            assert out.sends == []
            return "served"
        return decode(out.sends[0].frames) if out.sends else None

    def disable(self) -> None:
        book = self.authorizer.books()
        user = msgspec.structs.replace(book.users["alice"], disabled=True)
        book.update(AccessView(False, [user]), book.version + 1)


def test_the_gate_refuses_and_serves_by_the_rules() -> None:
    gate = Gate(READ_A)
    assert gate.say(pull("a")) == "served"
    refused = gate.say(produce("a"))
    assert isinstance(refused, Failure)
    assert (refused.id, refused.code, refused.retryable) == (1, "FORBIDDEN", False)
    assert refused.fields == {"verb": "write", "kind": "topic", "name": "a"}
    unknown = gate.say(pull("b"))
    assert isinstance(unknown, Failure)
    assert unknown.code == "UNKNOWN_TOPIC"
    assert gate.say(Ping(-2)) is not None
    assert len(gate.acceptor) == 1, "the session goes on"


def test_a_refused_send_without_acknowledgement_gets_no_answer() -> None:
    gate = Gate(READ_A)
    assert gate.say(Produce(0, 0, "a", 0, "none")) is None


def test_a_commands_rights_are_left_to_who_takes_it() -> None:
    assert Gate().say(Propose(1, 0, "me", 1, DeleteTopic("a", 0))) == "served"


def test_a_key_that_is_not_accepted_any_more_ends_the_session() -> None:
    gate = Gate(READ_A)
    assert gate.acceptor.recheck(HERE, pull("a")) is None
    gate.disable()
    assert isinstance(gate.acceptor.recheck(HERE, pull("a")), Unauthenticated)
    refused = gate.say(pull("a"))
    assert isinstance(refused, Failure)
    assert refused.code == "UNAUTHENTICATED"
    assert len(gate.acceptor) == 0
    assert isinstance(gate.say(pull("a")), NeedHello)
    again = gate.greet()
    assert isinstance(again, Failure)
    assert again.code == "UNAUTHENTICATED"
    assert len(gate.acceptor) == 0


def test_no_turn_lasts_when_the_keys_of_all_sessions_end() -> None:
    ended: list[list[PeerAddress]] = []

    def begin() -> Callable[[], bool]:
        gate = Gate(READ_A)
        hello = encode(Hello(-1, 1, 1, "me", "client", 0))
        for number in range(MAX_SESSIONS - 1):
            address = PeerAddress("main", b"%d" % number)
            gate.acceptor.admit(address, hello, Effects(), 0.0, gate.principal)
        assert gate.acceptor.end_revoked(10.0) == []
        gate.disable()
        ended.append([])

        def turn() -> bool:
            ended[-1] += gate.acceptor.end_revoked(20.0)
            return len(gate.acceptor) > 0

        return turn

    # More is left for the connections that are reset.
    assert longest_ms(begin, 3.0) <= 3.0
    assert len(set(ended[-1])) == len(ended[-1]) == MAX_SESSIONS


def test_a_request_that_waits_is_decided_again_by_the_rules_of_now() -> None:
    gate = Gate(READ_A)
    assert isinstance(gate.acceptor.recheck(HERE, pull("b")), UnknownResource)
    elsewhere = PeerAddress("main", b"two")
    assert isinstance(gate.acceptor.recheck(elsewhere, pull("a")), Unavailable)


def test_a_gate_without_users_serves_no_user() -> None:
    gate = Acceptor("broker-1", b"key", random.Random(1))
    out = Effects()
    for message in (Hello(-1, 1, 1, "me", "client", 0), pull("a")):
        assert gate.admit(HERE, encode(message), out, 0.0, "alice/laptop#0") is None
    assert len(gate) == 0


def test_who_has_no_session_any_more_sees_nothing() -> None:
    gate = Gate(READ_A)
    seen = gate.acceptor.sight(HERE)
    assert seen is not None
    assert seen.topic("a")
    gate.acceptor.end(HERE)
    gone = gate.acceptor.sight(HERE)
    assert gone is not None
    assert not gone.topic("a")
    assert not gone.cluster()


def decided(ask: Callable[[], LogboomError | None]) -> LogboomError | None:
    """The answer once all rights are decided, as somebody gets it who asks again."""
    for _ in range(10):
        error = ask()
        if error is None or error.code != "BUSY":
            return error
    raise AssertionError("it does not come to an end")


def test_who_lacks_the_first_right_has_cost_nothing_and_too_many_are_not_decided() -> None:
    topics = {f"t{number}": "" for number in range(MAX_RIGHTS)}
    join = GroupJoin(1, 0, "g", "m", "", "", topics, replace=False, config=GroupConfig())
    of = authorizer(allow("read", "group", "g"), allow("read", "topic", "*"))
    error = decided(lambda: ask(of, join))
    assert isinstance(error, InvalidRequest)
    assert error.code == "TOO_LARGE"
    join.subscription = dict(list(topics.items())[: MAX_RIGHTS - 1])
    assert decided(lambda: ask(of, join)) is None
    asked: list[Requirement] = []
    nobody = authorizer()
    nobody.on_refusal = lambda _caller, _asked, needed, _decision: asked.append(needed)
    assert isinstance(ask(nobody, join), Forbidden)
    assert [each.kind for each in asked] == ["group"]


def test_a_command_that_names_too_many_topics_is_not_decided() -> None:
    of = authorizer(allow("manage", "group", "g"), allow("describe", "topic", "*"))
    for count, code in ((MAX_RIGHTS_BY_ID, None), (MAX_RIGHTS_BY_ID + 1, "TOO_LARGE")):
        command = ResetOffsets("g", [(number, 0, 0) for number in range(count)], 0)
        error = decided(partial(of.refusal_of_command, alice(of), command, str))
        assert (None if error is None else error.code) == code
