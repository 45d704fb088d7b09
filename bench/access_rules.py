"""1,000 users and 10,000 rules: a change in the name server's state, and at a node that follows it.

Everything runs in this process. Processor time is used instead of wall time, because the loop of a
node does nothing else meanwhile.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from bench.figures import Figure
from logboom.metadata.raft.log_commands import AnyLogCommand, decode_result, encode_entry, entry_of
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.access.access_book import MAX_CACHED, AccessBook
from logboom.wire.access.access_commands import AddRule, AlterUser, CreateRole, CreateUser
from logboom.wire.access.access_rules import AccessRule, AccessView, ResourceKind, UserKey, Verb
from logboom.wire.authorizer import Authorizer
from logboom.wire.base import WireMessage
from logboom.wire.commands import NewTerm
from logboom.wire.hello import PeerKind
from logboom.wire.messages import Produce, Pull
from logboom.wire.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

ROLES: Final = 20
"""Roles, which have half of the rules; every user has one of them, and the first role too."""
DECISION_BAR_US: Final = 2.0
EFFECT_BAR_MS: Final = 200.0
MEMORY_BAR_MIB: Final = 50.0
ROUNDS: Final = 15
GRANTED: Final[tuple[tuple[Verb, ResourceKind], ...]] = (
    ("write", "topic"),
    ("read", "topic"),
    ("read", "group"),
)
"""What the requests need whose decisions are measured."""
BATCH: Final = 20_000
"""Decisions of a round."""


@dataclass(slots=True)
class _Session:
    """A session, as decisions see it."""

    user: str
    principal: str | None
    kind: PeerKind = "client"
    proven: bool = False


class AccessBench:
    """A state with users, roles and rules, and a node that follows it."""

    def __init__(self, users: int, rules: int) -> None:
        self.state = StateMachine()
        self.apply(NewTerm(1, "name-1", "bench", 0))
        self.roles = [f"team-{number}" for number in range(ROLES)]
        self.users = [f"user-{number}" for number in range(users)]
        for role in self.roles:
            self.apply(CreateRole(role))
        for number in range(rules // 2):
            self.apply(AddRule(f"role:{self.roles[number % ROLES]}", _rule(number)))
        for number, user in enumerate(self.users):
            keys = [UserKey("laptop", f"{number:040}", 0)]
            roles = sorted({self.roles[0], self.roles[number % ROLES]})
            self.apply(CreateUser(user, keys, roles, 0))
        for number in range(rules - rules // 2):
            self.apply(AddRule(f"user:{self.users[number % users]}", _rule(number)))
        self.book = AccessBook()
        view = self.view(-1)
        self.book.update(view, self.state.version)

    def apply(self, command: AnyLogCommand) -> None:
        """Apply a command as it comes out of the log."""
        result = self.state.apply(encode_entry(entry_of("", 0, 0, command)))
        assert not decode_result(result).code, decode_result(result).text

    def view(self, version: int) -> AccessView:
        """Return what a node at this version is told, decoded from the wire."""
        view = view_since(self.state.cluster, version, [], [], None, access=True)
        told = msgspec.msgpack.decode(msgspec.msgpack.encode(view), type=View).access
        assert told is not None
        return told

    def effect(self, command: AnyLogCommand) -> float:
        """Apply a change, tell it, take it over, and decide for every user again; ms."""
        version = self.state.version
        began = time.process_time()
        self.apply(command)
        self.book.update(self.view(version), self.state.version)
        for user in self.users:
            self.book.decide(user, "read", "topic", "orders.7")
        return 1000 * (time.process_time() - began)

    def decision(self, first: int, names: int) -> float:
        """Return the time of a decision on these topics, one after the other; µs."""
        decide, users = self.book.decide, self.users
        asked = [
            (users[number % 100], f"area-{first + number % names}.orders")
            for number in range(BATCH)
        ]
        began = time.process_time()
        for user, name in asked:
            decide(user, "write", "topic", name)
        return 1e6 * (time.process_time() - began) / BATCH

    def request(self, make: Callable[[str], WireMessage]) -> float:
        """Return the time of the decision on a request about one of 50 names, all allowed; µs.

        It is what a broker decides on each request: the session, its key, and the rights.
        """
        user = self.users[-1]
        session = _Session(user, self.book.principal_of(self.book.public_keys_of(user)[0]))
        requests = [make(f"granted-{number % 50}") for number in range(BATCH)]
        refusal = Authorizer(lambda: self.book).refusal
        assert not any(refusal(session, each) for each in requests[:50])
        began = time.process_time()
        for each in requests:
            refusal(session, each)
        return 1e6 * (time.process_time() - began) / BATCH

    def memory(self) -> float:
        """Return the memory of another copy with as many decisions as are remembered; MiB."""
        version = self.state.version
        encoded = msgspec.msgpack.encode(
            view_since(self.state.cluster, -1, [], [], None, access=True)
        )
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        book = AccessBook()
        view = msgspec.msgpack.decode(encoded, type=View).access
        assert view is not None
        book.update(view, version)
        del view
        for number in range(MAX_CACHED):
            name = f"a-topic-with-a-longer-name.{number}"
            book.decide(self.users[number % len(self.users)], "write", "topic", name)
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return used / 1024 / 1024


def _rule(number: int) -> AccessRule:
    """Return one of many rules, of which a third have prefixes."""
    pattern = f"area-{number}.*" if number % 3 == 0 else f"area-{number}.orders"
    return AccessRule(number % 10 > 0, "write" if number % 2 else "read", "topic", pattern)


def rows(users: int, rules: int) -> list[Figure]:
    """Measure a cluster with this many users and rules."""
    bench = AccessBench(users, rules)
    what = f"{users:,} users, {rules:,} rules"
    granting = AccessRule(True, "read", "topic", "orders*")
    role_ms, user_ms = list[float](), list[float]()
    for number in range(ROUNDS):
        rule = msgspec.structs.replace(granting, pattern=f"orders{number}*")
        role_ms.append(bench.effect(AddRule(f"role:{bench.roles[0]}", rule)))
        user = bench.users[number]
        user_ms.append(bench.effect(AlterUser(user, True, None, None, 0)))
    cached = [bench.decision(0, 50) for _ in range(ROUNDS)]
    version = bench.state.version
    for verb, kind in GRANTED:
        bench.apply(AddRule(f"user:{bench.users[-1]}", AccessRule(True, verb, kind, "granted-*")))
    bench.book.update(bench.view(version), bench.state.version)
    # The least of all rounds: other work on the machine only ever adds to so short a time.
    produce = [bench.request(lambda name: Produce(9, 1, name, 0, "all")) for _ in range(ROUNDS)]
    pull = [
        bench.request(lambda name: Pull(9, 1, name, 0, 0, 1, 0, group=name)) for _ in range(ROUNDS)
    ]
    fresh = [bench.decision(number * BATCH, BATCH) for number in range(1, ROUNDS)]
    return [
        Figure(
            f"access: rule of everybody's role to effect, {what}",
            statistics.median(role_ms),
            "ms CPU",
            EFFECT_BAR_MS,
            "less",
        ),
        Figure(
            f"access: a user is disabled, to effect, {what}",
            statistics.median(user_ms),
            "ms CPU",
            EFFECT_BAR_MS,
            "less",
        ),
        Figure(
            "access: a decision that is remembered",
            statistics.median(cached),
            "µs CPU",
            DECISION_BAR_US,
            "less",
        ),
        Figure(
            "access: the decision on a produce",
            min(produce),
            "µs CPU",
            DECISION_BAR_US,
            "less",
        ),
        Figure(
            "access: the decision on a pull with a group",
            min(pull),
            "µs CPU",
            DECISION_BAR_US,
            "less",
        ),
        Figure("access: a decision that is not", statistics.median(fresh), "µs CPU"),
        Figure(f"access: a node's copy, {what}", bench.memory(), "MiB", MEMORY_BAR_MIB, "less"),
    ]
