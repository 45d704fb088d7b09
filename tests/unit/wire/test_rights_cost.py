"""Rights that nobody has asked for lately cost no turn too much, however many a request needs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from logboom.wire.access.access_book import MAX_CACHED, AccessBook
from logboom.wire.access.access_rules import (
    AccessRule,
    AccessView,
    RoleView,
    UserKey,
    UserView,
    principal_of,
)
from logboom.wire.authorizer import MAX_RIGHTS, MAX_RIGHTS_BY_ID, Authorizer
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.group_messages import GroupJoin
from logboom.wire.group_view import GroupConfig
from logboom.wire.transactions import Decide, ParkedBatches
from tests.unit.wire.test_authorizer import Session, allow
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
KEY: Final = UserKey("laptop", "0" * 40, 0)
LONG: Final = "n" * 200
OTHERS: Final = [allow("write", "transaction", "*"), allow("read", "group", "*")]
PREFIXES: Final = [allow("write", "topic", LONG[:length] + "*") for length in range(0, 200, 4)]
NAMES: Final[dict[str, Callable[[int], str]]] = {
    "plain": lambda number: f"topic-{number}",
    "of a group": lambda number: f"%RETRY%group-{number}",
    "of a subscription": lambda number: f"%RETRY%topic-{number}%s",
    "long": lambda number: f"{LONG}{number}",
}
RULES: Final[dict[str, list[AccessRule]]] = {
    "one": [allow("write", "topic", "*"), allow("read", "topic", "*")],
    "many": [*PREFIXES, allow("read", "topic", "*")],
}


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def cold(rules: list[AccessRule], *, in_role: bool) -> Authorizer:
    """The decisions of a node that has made none yet."""
    rules = [*rules, *OTHERS, allow("read", "subscription", "*")]
    role = RoleView("team", rules if in_role else [])
    user = UserView("ann", [KEY], ["team"], rules=[] if in_role else rules, version=1)
    book = AccessBook()
    book.update(AccessView(True, [user], [role]), 1)
    book.enforce_subscription_rules(1)
    return Authorizer(lambda: book)


def longest(
    of: Callable[[], Authorizer], ask: Callable[[Authorizer], LogboomError | None]
) -> float:
    """The most that one try costs, until the request is allowed."""

    def begin() -> Callable[[], bool]:
        authorizer = of()
        gc.collect()
        gc.freeze()

        def step() -> bool:
            error = ask(authorizer)
            assert error is None or (isinstance(error, Unavailable) and error.code == "BUSY")
            return error is not None

        return step

    return longest_ms(begin, MOST_MS)


@pytest.mark.parametrize("in_role", [False, True])
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("names", NAMES)
def test_a_command_that_names_many_topics_by_id(names: str, rules: str, in_role: bool) -> None:
    parked = [ParkedBatches(number, 0, [(1, 0)]) for number in range(MAX_RIGHTS_BY_ID)]
    command = Decide("app", -1, 1, 0, True, parked, [], 0)
    topics = [NAMES[names](number) for number in range(MAX_RIGHTS_BY_ID)]
    ann = Session(principal_of("ann", KEY), "ann")
    spent = longest(
        lambda: cold(RULES[rules], in_role=in_role),
        lambda of: of.refusal_of_command(ann, command, topics.__getitem__),
    )
    assert spent <= MOST_MS


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("names", NAMES)
def test_a_request_that_names_many_topics(names: str, rules: str) -> None:
    topics = {NAMES[names](number): "" for number in range(MAX_RIGHTS - 1)}
    join = GroupJoin(1, 0, "g", "m", "", "", topics, replace=False, config=GroupConfig())
    ann = Session(principal_of("ann", KEY), "ann")
    spent = longest(lambda: cold(RULES[rules], in_role=False), lambda of: of.refusal(ann, join))
    assert spent <= MOST_MS


def test_who_has_many_rights_decided_keeps_no_others_request_from_being_served() -> None:
    authorizer = cold(RULES["many"], in_role=False)
    book = authorizer.book
    strangers = [f"eve-{number}" for number in range(3)]
    hostile = AccessView(False, [UserView(name, [KEY], [], version=2) for name in strangers])
    book.update(hostile, 2)
    topics = {f"topic-{number}": "" for number in range(MAX_RIGHTS - 1)}
    join = GroupJoin(1, 0, "g", "m", "", "", topics, replace=False, config=GroupConfig())
    ann = Session(principal_of("ann", KEY), "ann")
    for _ in range(20):
        if authorizer.refusal(ann, join) is None:
            break
        for number in range(MAX_CACHED):
            book.decide(strangers[number % 3], "read", "topic", f"{number}")
    assert authorizer.refusal(ann, join) is None
