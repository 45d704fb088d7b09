"""Whether a node serves a request of a user: the rights that it needs against the rules, pure.

A decision depends on the session's principal, on names in the request and on the rules alone, never
on what exists. So the answer on a name that the user may not describe is that on an unknown one,
and tells nothing. Sessions of open listeners have no principal and are not decided here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import inf
from typing import Final, Protocol

from msgspec import Struct

from logboom.wire.access.access_book import AccessBook, AccessDecision, Right
from logboom.wire.access.access_rules import CLUSTER, NODE_PREFIX, is_node_user, user_of
from logboom.wire.access_requirements import (
    COMMANDS,
    REQUESTS,
    RequestRule,
    Requirement,
    requirements_by_id,
)
from logboom.wire.base import Command, WireMessage
from logboom.wire.errors import (
    Forbidden,
    InvalidRequest,
    LogboomError,
    Unauthenticated,
    Unavailable,
    UnknownResource,
)
from logboom.wire.hello import PeerKind
from logboom.wire.names import (
    unknown_group_text,
    unknown_subscription_text,
    unknown_topic_text,
)
from logboom.wire.node_requirements import (
    EITHER,
    NODE_COMMANDS,
    NODE_REQUESTS,
    NodeKind,
    NodeRule,
    node_fault,
)
from logboom.wire.sight import Sight, TopicById

MAX_RIGHTS: Final = 1_100
"""Maximum rights that a request may need: a group subscribes to at most 1,024 topics."""
MAX_RIGHTS_BY_ID: Final = 3_000
"""Maximum topics that a command may name by id: a decision names at most as many parked batches."""
MOST_UNITS: Final = 20_000
"""Units of work (`AccessBook.units`) after which the rest of a request's rights is left to the next try:
some five milliseconds. Whatever was decided is remembered."""
MAX_TOPIC_ID: Final = 1 << 62
"""Upper bound of the topic ids in a user's command; the ids beyond are used for unknown topics."""


class Caller(Protocol):
    """A session, as decisions see it."""

    @property
    def kind(self) -> PeerKind:
        """What the peer is."""

    @property
    def proven(self) -> bool:
        """True if it holds the cluster key."""

    @property
    def principal(self) -> str | None:
        """User and key of the connection; None on an open listener."""

    @property
    def user(self) -> str:
        """The user of the principal; "" without one."""


class Authorizer:
    """The decisions of one node, by its copy of users and rules."""

    def __init__(
        self, books: Callable[[], AccessBook], is_current: Callable[[str], bool] | None = None
    ) -> None:
        """Create it.

        Args:
            books: returns the newest copy of users and rules.
            is_current: says in place of the copy which principals may connect.
        """
        self.books = books
        self.is_current = is_current or (lambda principal: books().is_current(principal))
        self.kinds_of: Callable[[str], Collection[NodeKind]] = lambda _: EITHER
        """Returns what the node of an id may be; the owner sets it."""
        self.on_refusal: Callable[[Caller, object, Requirement, AccessDecision], None] | None = None
        """Is told of each refusal by rules: the caller, the request or command, the right that it
        lacks, and the decision."""

    @property
    def book(self) -> AccessBook:
        """The newest copy of users and rules."""
        return self.books()

    # ── requests ────────────────────────────────────────────────────────────────────────────────

    def refusal(self, caller: Caller, message: WireMessage) -> LogboomError | None:
        """Return why a request is not served, or None. The command of PROPOSE is not looked at."""
        principal = caller.principal
        if principal is None:
            return None
        if caller.kind != "client" or is_node_user(caller.user) or not self.is_current(principal):
            return self.outside(caller) or _node_refusal(caller, message, NODE_REQUESTS)
        end = self.books().units + MOST_UNITS
        return self._refusal(caller, message, REQUESTS.get(type(message)), end)

    def refusal_of_command(
        self, caller: Caller, command: Command, topics: TopicById
    ) -> LogboomError | None:
        """Return why a command is not accepted from a session, or None.

        `topics` returns the names of the topics that the command names by id.
        """
        if caller.principal is None:
            return None
        outside = self.outside(caller)
        if outside is not None:
            return outside
        if caller.kind != "client":
            return _node_refusal(caller, command, NODE_COMMANDS)
        end = self.books().units + MOST_UNITS
        return self._refusal(
            caller, command, COMMANDS.get(type(command)), end
        ) or self._refusal_by_id(caller, command, topics, end)

    def outside(self, caller: Caller) -> LogboomError | None:
        """Return why a session is not served at all, whatever it asks, or None."""
        principal = caller.principal
        if principal is None:
            return None
        if not self.is_current(principal):
            return self.ended(principal)
        # A node holds two keys, its own and that of the cluster, and greets as what it is.
        if caller.kind == "client":
            fits = not is_node_user(caller.user)
        else:
            fits = caller.proven and self.is_node_of(caller.user, caller.kind)
        if fits:
            return None
        text = f"the key of {caller.user!r} is not one for a {caller.kind}"
        return Unauthenticated(f"{text}: connect with another credentials file")

    def is_node_of(self, user: str, kind: PeerKind) -> bool:
        """Return True if a user is a node that may be of a kind: a broker is no name server (A7)."""
        return is_node_user(user) and kind in self.kinds_of(user.removeprefix(NODE_PREFIX))

    def ended(self, principal: str) -> LogboomError | None:
        """Return why a key is not accepted, or not any more, or None."""
        if self.is_current(principal):
            return None
        if not self.books().known:
            return Unavailable("this node is starting and knows no users yet: ask again")
        user = user_of(principal)
        return Unauthenticated(
            f"the key of user {user!r} with which this connection was opened is not accepted (any "
            f"more): see `logboom user describe {shlex.quote(user)}`"
        )

    def _refusal(
        self, caller: Caller, asked: object, rule: RequestRule | None, end: float
    ) -> LogboomError | None:
        """Decide on the rights of a request, until `AccessBook.units` is past `end`."""
        if rule is None or rule.needs is None:
            return _only_nodes(caller.user, type(asked).__name__)
        user, book = caller.user, self.books()
        decide = book.decide
        for count, requirement in enumerate(rule.needs(asked)):
            if count >= MAX_RIGHTS:
                return _too_many(asked, MAX_RIGHTS)
            if book.units > end:
                return _unfinished(asked)
            verb, kind, name, instead, _ = requirement
            if decide(user, verb, kind, name).allowed:
                continue
            if instead is None or not decide(user, instead, kind, name).allowed:
                return self._lacks(caller, asked, requirement)
        return None

    def _refusal_by_id(
        self, caller: Caller, command: Command, topics: TopicById, end: float
    ) -> LogboomError | None:
        """Decide on the topics that a command names by id, as far as the user may describe them."""
        book = self.books()
        decide = book.decide
        for count, (topic_id, verb, instead) in enumerate(requirements_by_id(command)):
            if not 0 <= topic_id < MAX_TOPIC_ID:
                return InvalidRequest(f"there is no topic of id {topic_id}")
            if count >= MAX_RIGHTS_BY_ID:
                return _too_many(command, MAX_RIGHTS_BY_ID)
            if book.units > end:
                return _unfinished(command)
            name = topics(topic_id)
            if name is None or decide(caller.user, verb, "topic", name).allowed:
                continue
            if not self._sees(caller.user, name):
                continue
            error = self.lack(caller, command, Requirement(verb, "topic", name, instead))
            if error is not None:
                return error
        return None

    # ── rights ──────────────────────────────────────────────────────────────────────────────────

    def lack(self, caller: Caller, asked: object, requirement: Requirement) -> LogboomError | None:
        """Return the error if a user lacks a right that only the handler of a request knows."""
        if caller.principal is None or is_node_user(caller.user):
            return None
        return self._refusal(caller, asked, RequestRule("", lambda _: (requirement,)), inf)

    def allowed(self, user: str, requirement: Requirement) -> bool:
        """Return True if a user has a right."""
        verb, kind, name = requirement[:3]
        return self.book.decide(user, verb, kind, name).allowed

    def sight(self, caller: Caller) -> Sight | None:
        """Return what a session may see; None: everything."""
        if caller.principal is None or is_node_user(caller.user):
            return None
        return Sight(self.books, caller.user, partial(self.is_current, caller.principal))

    def _sees(self, user: str, topic: str) -> bool:
        return self.books().decide(user, "describe", "topic", topic).allowed

    def _lacks(self, caller: Caller, asked: object, needed: Requirement) -> LogboomError:
        user, (verb, kind, name, _, creates) = caller.user, needed
        decide = self.books().decide
        decision = decide(user, verb, kind, name)
        if self.on_refusal is not None:
            self.on_refusal(caller, asked, needed, decision)
        if not creates and not decide(user, "describe", kind, name).allowed:
            if kind == "topic":
                return UnknownResource(unknown_topic_text(name), "UNKNOWN_TOPIC", topic=name)
            if kind == "group":
                return UnknownResource(unknown_group_text(name), "UNKNOWN_GROUP", group=name)
            if kind == "subscription":
                return UnknownResource(unknown_subscription_text(name), "UNKNOWN_SUBSCRIPTION")
        lacked = next(
            right
            for right in self.books().rights_behind(verb, kind, name)
            if not decide(user, *right).allowed
        )
        return forbidden(user, needed, lacked, decision)


def forbidden(
    user: str, needed: Requirement, lacked: Right, decision: AccessDecision
) -> LogboomError:
    """Build FORBIDDEN, with the remedy: a rule for what is lacked of what is needed."""
    verb, kind, name = needed[:3]
    what = "the cluster" if kind == "cluster" else f"{kind} {name!r}"
    text = f"user {user!r} may not {verb} {what}"
    verb, kind, name = lacked
    rule = f"{verb} {kind} {shlex.quote(name)}"
    if decision.rule is None:
        mend = f"an administrator can allow it with `logboom acl add user:{user} allow {rule}`"
    else:
        mend = f"a rule denies it; `logboom acl explain --user {user} {rule}` shows which"
    return Forbidden(f"{text}: {mend}", verb=verb, kind=kind, name=name)


def _too_many(asked: object, limit: int) -> LogboomError:
    text = f"{type(asked).__name__} needs more than {limit} rights: name fewer topics, or groups, at once"
    return InvalidRequest(text, "TOO_LARGE")


def _unfinished(asked: object) -> LogboomError:
    text = f"the rights that {type(asked).__name__} needs are not all decided yet: ask again"
    return Unavailable(text, "BUSY")


def _node_refusal(
    caller: Caller, asked: Struct, rules: Mapping[type[Struct], NodeRule]
) -> LogboomError | None:
    """Return why a node may not send what it sends, or None (A7)."""
    node = caller.user.removeprefix(NODE_PREFIX)
    fault = node_fault(node, caller.kind, asked, rules.get(type(asked)))
    return None if fault is None else Forbidden(fault, verb="admin", kind="cluster", name=CLUSTER)


def _only_nodes(user: str, request: str) -> LogboomError:
    text = f"user {user!r} may not send {request}: only nodes of the cluster do"
    return Forbidden(text, verb="admin", kind="cluster", name=CLUSTER)
