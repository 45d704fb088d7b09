"""Users, roles, rules and quotas, and who may do what; pure. Keys are told by their labels and public
parts: nobody has the secret ones but their users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from logboom.console.pages.brokers_page import PageNotice
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.wire.access.access_book import AccessDecision
from logboom.wire.access.access_rules import (
    KINDS,
    VERBS,
    AccessRule,
    Quota,
    RoleView,
    UserView,
    is_node_user,
)

DAY_MS: Final = 86_400_000
ENDS_SOON_MS: Final = 14 * DAY_MS
"""Time before the end of a key from which on it is marked."""
HOW_TO_TURN_ON: Final = (
    "This cluster has no users: whoever reaches its nodes may read and write everything. A cluster has "
    "users from the start with `logboom cluster up --secure` on this machine, or `logboom cluster init` "
    "on several. docs/SECURITY.md, Turning it on and off, leads a running one there without a stop."
)


@dataclass(frozen=True, slots=True)
class ExplainModel:
    """The form that asks who may do what, and its answer."""

    user: str
    verb: str
    kind: str
    resource: str
    users: tuple[str, ...]
    verbs: tuple[str, ...]
    kinds: tuple[str, ...]
    asked: bool
    allowed: bool = False
    why: str = ""
    rule: str = ""
    holder: str = ""
    holder_url: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class UsersModel:
    """All users, roles and rules."""

    notices: tuple[PageNotice, ...]
    has_users: bool
    tab: str
    tabs: tuple[tuple[str, str, bool], ...]
    """Title, link, and whether it is the one shown."""
    table: TableModel
    explain: ExplainModel | None
    nodes: int
    """Users that are nodes, which the list leaves out unless it was asked for them."""
    toggle_url: str
    shows_nodes: bool


TABS: Final = (
    ("users", "Users"),
    ("roles", "Roles"),
    ("rules", "Rules"),
    ("quotas", "Quotas"),
    ("explain", "Explain"),
)


def _state_tone(row: Row) -> Tone:
    return "ok" if row["state"] == "active" else "failed"


def _end_tone(row: Row) -> Tone:
    return "warning" if row["ends_soon"] else ""


def _effect_tone(row: Row) -> Tone:
    return "ok" if row["effect"] == "allow" else "failed"


def holder_url(holder: str) -> str:
    """Return the page of "user:NAME" or "role:NAME"."""
    kind, _, name = holder.partition(":")
    return path_of("users", name) if kind == "user" else path_of("roles", name)


USER_COLUMNS: Final = (
    TableColumn("name", "User", "code", href=lambda row: path_of("users", row["name"])),
    TableColumn("state", "State", "badge", tone=_state_tone),
    TableColumn("roles", "Roles"),
    TableColumn("rules", "Own rules", "count"),
    TableColumn("keys", "Keys", "count", hint="Keys that have not ended"),
    TableColumn("ends_ms", "Next key ends", "time", tone=_end_tone, wide_only=True),
    TableColumn("created_ms", "Created", "time", wide_only=True),
)
ROLE_COLUMNS: Final = (
    TableColumn("name", "Role", "code", href=lambda row: path_of("roles", row["name"])),
    TableColumn("rules", "Rules", "count"),
    TableColumn("users", "Granted to"),
)
RULE_COLUMNS: Final = (
    TableColumn("holder", "Holder", "code", href=lambda row: holder_url(row["holder"])),
    TableColumn("effect", "Effect", "badge", tone=_effect_tone),
    TableColumn("verb", "Verb", "code"),
    TableColumn("kind", "Kind", "code"),
    TableColumn("pattern", "Pattern", "code", hint="A name, or a prefix that ends with *"),
)
QUOTA_COLUMNS: Final = (
    TableColumn("user", "User", "code", href=lambda row: row["url"]),
    TableColumn("produce_bytes_per_s", "Produce/s", "bytes", hint="To each broker"),
    TableColumn("fetch_bytes_per_s", "Fetch/s", "bytes", hint="From each broker"),
    TableColumn("requests_per_s", "Requests/s", "count", hint="To each broker"),
    TableColumn("connections", "Connections", "count", hint="To each node"),
    TableColumn("topics", "Topics", "count", wide_only=True, hint="That the user created"),
    TableColumn("queues", "Queues", "count", wide_only=True, hint="Of these topics"),
    TableColumn(
        "stored_bytes", "Stored", "bytes", wide_only=True, hint="Of these topics, per broker"
    ),
)
KEY_COLUMNS: Final = (
    TableColumn("label", "Key", "code"),
    TableColumn("state", "State", "badge", tone=_state_tone),
    TableColumn("public_key", "Public key", "code"),
    TableColumn("created_ms", "Created", "time", wide_only=True),
    TableColumn("ends_ms", "Ends", "time", tone=_end_tone),
)


@dataclass(frozen=True, slots=True)
class AccessData:
    """What the name servers told of users."""

    users: Sequence[UserView]
    roles: Sequence[RoleView]
    default_quota: Quota


def build_users(
    data: AccessData, explain: ExplainModel, query: PageQuery, now_ms: int
) -> UsersModel:
    """Return the page that a URL asks for."""
    tab = query.text("tab")
    tab = tab if tab in dict(TABS) else "users"
    nodes = [user for user in data.users if is_node_user(user.name)]
    people = [user for user in data.users if not is_node_user(user.name)]
    shows_nodes = query.text("nodes") == "1"
    notices = []
    if not data.users:
        notices.append(PageNotice(HOW_TO_TURN_ON, "warning"))
    soon = [user.name for user in people if _ends_soon(user, now_ms)]
    if soon:
        text = (
            f"Keys end within {ENDS_SOON_MS // DAY_MS} days: {', '.join(soon)}. Add new ones first"
        )
        notices.append(PageNotice(text, "warning"))
    match tab:
        case "roles":
            rows = [role_row(role, data.users) for role in data.roles]
            table = build_table(ROLE_COLUMNS, rows, query, sort="name", empty="There are no roles.")
        case "rules":
            table = build_table(
                RULE_COLUMNS,
                rule_rows(data.users, data.roles),
                query,
                sort="holder",
                empty="There are no rules: what no rule allows is refused.",
            )
        case "quotas":
            rows = quota_rows(data)
            table = build_table(QUOTA_COLUMNS, rows, query)
        case _:
            shown = data.users if shows_nodes else people
            rows = [user_row(user, now_ms) for user in shown]
            table = build_table(USER_COLUMNS, rows, query, sort="name", empty="There are no users.")
    return UsersModel(
        notices=tuple(notices),
        has_users=bool(data.users),
        tab=tab,
        tabs=tuple(
            (
                title,
                PageQuery(query.path).url(tab=name if name != "users" else None),
                name == tab,
            )
            for name, title in TABS
        ),
        table=table,
        explain=explain if tab == "explain" else None,
        nodes=len(nodes),
        toggle_url=query.url(nodes=None if shows_nodes else "1", page=None),
        shows_nodes=shows_nodes,
    )


def state_of_user(user: UserView) -> str:
    """Return whether a user can connect: active, disabled, or with no key that counts."""
    if user.disabled:
        return "disabled"
    return "active" if any(not key.ended for key in user.keys) else "all keys ended"


def _next_end_ms(user: UserView) -> int | None:
    return min((key.end_ms for key in user.keys if key.end_ms and not key.ended), default=None)


def _ends_soon(user: UserView, now_ms: int) -> bool:
    end_ms = _next_end_ms(user)
    return end_ms is not None and end_ms - now_ms < ENDS_SOON_MS


def user_row(user: UserView, now_ms: int) -> dict[str, Any]:
    """Return what the list says of a user."""
    return {
        "name": user.name,
        "state": state_of_user(user),
        "roles": user.roles,
        "rules": len(user.rules),
        "keys": sum(not key.ended for key in user.keys),
        "ends_ms": _next_end_ms(user),
        "ends_soon": _ends_soon(user, now_ms),
        "created_ms": user.created_ms or None,
        "disabled": user.disabled,
    }


def role_row(role: RoleView, users: Iterable[UserView]) -> dict[str, Any]:
    """Return what the list says of a role."""
    return {
        "name": role.name,
        "rules": len(role.rules),
        "users": [user.name for user in users if role.name in user.roles],
    }


def rule_row(holder: str, rule: AccessRule) -> dict[str, Any]:
    """Return what a table says of a rule."""
    return {
        "holder": holder,
        "effect": "allow" if rule.allow else "deny",
        "verb": rule.verb,
        "kind": rule.kind,
        "pattern": rule.pattern,
    }


def rule_rows(users: Iterable[UserView], roles: Iterable[RoleView]) -> list[dict[str, Any]]:
    """Return all rules with their holders."""
    held = [(f"user:{user.name}", rule) for user in users for rule in user.rules]
    held += [(f"role:{role.name}", rule) for role in roles for rule in role.rules]
    return [rule_row(*each) for each in sorted(held)]


def quota_row(name: str, quota: Quota) -> dict[str, Any]:
    """Return the limits of a user; one that the user has not itself is None."""
    limits = {of: value or None for of, value in msgspec.structs.asdict(quota).items()}
    return {"user": name, "url": path_of("users", name), **limits}


def quota_rows(data: AccessData) -> list[dict[str, Any]]:
    """Return the default limits, and those of users who have their own."""
    first = quota_row("(default)", data.default_quota) | {"url": ""}
    own = [user for user in data.users if any(msgspec.structs.astuple(user.quota))]
    return [first, *(quota_row(user.name, user.quota) for user in own)]


def explain_form(query: PageQuery, users: Sequence[UserView]) -> ExplainModel:
    """Return the form as a URL fills it in, without an answer."""
    kind = query.text("kind", "topic")
    return ExplainModel(
        user=query.text("user"),
        verb=query.text("verb", "read"),
        kind=kind,
        resource=query.text("resource", "cluster" if kind == "cluster" else ""),
        users=tuple(user.name for user in users),
        verbs=VERBS,
        kinds=KINDS,
        asked=bool(query.text("user")),
    )


def explained(form: ExplainModel, decision: AccessDecision) -> ExplainModel:
    """Return the form with its answer."""
    return replace(
        form,
        allowed=decision.allowed,
        why=decision.why,
        rule="" if decision.rule is None else str(decision.rule),
        holder=decision.holder,
        holder_url=holder_url(decision.holder) if decision.holder else "",
    )


# One user, one role.


@dataclass(frozen=True, slots=True)
class UserModel:
    """One user."""

    name: str
    state: str
    state_tone: Tone
    is_disabled: bool
    roles: tuple[tuple[str, str], ...]
    """Name and link."""
    keys: TableModel
    rules: TableModel
    """The rules that count: its own, and those of its roles."""
    quota: TableModel


@dataclass(frozen=True, slots=True)
class RoleModel:
    """One role."""

    name: str
    users: tuple[tuple[str, str], ...]
    """Name and link."""
    rules: TableModel


def build_user(
    user: UserView,
    roles: Sequence[RoleView],
    default_quota: Quota,
    query: PageQuery,
    now_ms: int,
) -> UserModel:
    """Return the page of one user."""
    keys = [
        {
            "label": key.label,
            "state": "ended" if key.ended else "active",
            "public_key": key.public,
            "created_ms": key.created_ms or None,
            "ends_ms": key.end_ms or None,
            "ends_soon": bool(key.end_ms) and not key.ended and key.end_ms - now_ms < ENDS_SOON_MS,
        }
        for key in user.keys
    ]
    held = [(f"user:{user.name}", rule) for rule in user.rules]
    held += [
        (f"role:{role.name}", rule)
        for role in roles
        if role.name in user.roles
        for rule in role.rules
    ]
    row = user_row(user, now_ms)
    return UserModel(
        name=user.name,
        state=row["state"],
        state_tone=_state_tone(row),
        is_disabled=user.disabled,
        roles=tuple((name, path_of("roles", name)) for name in user.roles),
        keys=build_table(KEY_COLUMNS, keys, query, name="keys", title="Keys"),
        rules=build_table(
            RULE_COLUMNS,
            [rule_row(*each) for each in sorted(held)],
            query,
            title="Rules that count",
            sort="holder",
            empty=f"No rule counts for {user.name}: everything is refused.",
        ),
        quota=build_table(
            QUOTA_COLUMNS,
            [
                quota_row(user.name, user.quota) | {"user": "own", "url": ""},
                quota_row("(default)", default_quota) | {"user": "default", "url": ""},
            ],
            query,
            name="quota",
            title="Limits",
        ),
    )


def build_role(role: RoleView, users: Iterable[UserView], query: PageQuery) -> RoleModel:
    """Return the page of one role."""
    return RoleModel(
        name=role.name,
        users=tuple(
            (user.name, path_of("users", user.name)) for user in users if role.name in user.roles
        ),
        rules=build_table(
            RULE_COLUMNS,
            [rule_row(f"role:{role.name}", rule) for rule in role.rules],
            query,
            title="Rules",
            empty=f"{role.name} allows nothing yet.",
        ),
    )
