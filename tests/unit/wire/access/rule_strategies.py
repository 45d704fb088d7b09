"""Users, roles and rules made up from few names, so that they meet often."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from logboom.wire.access.access_rules import (
    KINDS,
    VERBS,
    VERBS_OF,
    AccessRule,
    AccessView,
    RoleView,
    UserKey,
    UserView,
)

NAMES: Final = ("orders", "orders.a", "orders2", "other", "o", "%RETRY%g", "%DLQ%orders%s", "g", "")
PATTERNS: Final = ("orders", "orders*", "orders.*", "o*", "*", "other", "g", "g*", "cluster")
USERS: Final = ("alice", "bob", "node:b", "carol")
ROLES: Final = ("readers", "writers", "guests")

rules: Final = st.sampled_from(
    # Drawn from a list: this is done many times in an example, and a drawing for each field is slow.
    [
        AccessRule(allow, verb, kind, pattern)
        for kind in KINDS
        for verb in VERBS_OF[kind]
        for pattern in PATTERNS
        for allow in (False, True)
    ]
)
rule_lists: Final = st.lists(rules, max_size=6)
questions: Final = st.tuples(st.sampled_from(VERBS), st.sampled_from(KINDS), st.sampled_from(NAMES))
_keys: Final = st.lists(st.integers(0, 5), max_size=3, unique=True).flatmap(
    lambda numbers: st.tuples(
        *(
            st.builds(
                UserKey, st.just(f"k{n}"), st.just(f"{n:040}"), st.just(0), ended=st.booleans()
            )
            for n in numbers
        )
    ).map(list)
)
users: Final = st.builds(
    UserView,
    st.sampled_from(USERS),
    _keys,
    st.lists(st.sampled_from(ROLES), unique=True),
    rule_lists,
    st.booleans(),
)
roles: Final = st.builds(RoleView, st.sampled_from(ROLES), rule_lists)
changes: Final = st.builds(
    lambda users, roles, gone_users, gone_roles: AccessView(
        False,
        users,
        roles,
        [name for name in gone_users if name not in {user.name for user in users}],
        [name for name in gone_roles if name not in {role.name for role in roles}],
    ),
    st.lists(users, max_size=3, unique_by=lambda user: user.name),
    st.lists(roles, max_size=3, unique_by=lambda role: role.name),
    st.lists(st.sampled_from(USERS), max_size=2, unique=True),
    st.lists(st.sampled_from(ROLES), max_size=2, unique=True),
)
