"""Users, their keys, roles, rules and quotas, and who may do what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from logboom.client.admin_flows.access_flows import Effect, check_holder, check_verb, make_rule
from logboom.client.written_values import duration_ms, size_bytes
from logboom.console.pages.users_page import (
    AccessData,
    ExplainModel,
    RoleModel,
    UserModel,
    UsersModel,
    build_role,
    build_user,
    build_users,
    explain_form,
    explained,
)
from logboom.console.site import (
    ActionDone,
    ConsoleAction,
    FormField,
    NavigationEntry,
    PageRequest,
    PageRoute,
    Subject,
)
from logboom.console.widgets.page_query import FormValues, path_of
from logboom.wire.access.access_rules import (
    KINDS,
    VERBS,
    AccessRule,
    Quota,
    label_fault,
    public_key_fault,
    role_name_fault,
    user_name_fault,
)
from logboom.wire.credentials import Credentials, Server, format_credentials
from logboom.wire.errors import InvalidRequest, LogboomError
from logboom.wire.sockets import make_key_pair

FIRST_LABEL: Final = "first"
USER: Final = FormField("user", kind="hidden", required=True)
ROLE: Final = FormField("role", kind="hidden", required=True)
PUBLIC_KEY: Final = FormField(
    "public_key",
    "Public key",
    hint="What `logboom user key generate` printed for the user: then the secret key never leaves the "
    "user's machine. Empty: the console makes the key pair, and shows the credentials file this once.",
)
KEY_END: Final = FormField(
    "end", "Ends after", placeholder="90d", hint="Such as 12h, 90d or 52w. Empty: never."
)


# Pages.


async def access_data(request: PageRequest) -> AccessData:
    """Return users, roles and default limits."""
    admin = request.cluster.boom.admin

    async def ask() -> AccessData:
        try:
            return AccessData(await admin.users(), await admin.roles(), await admin.default_quota())
        except LogboomError:
            # A cluster whose nodes are open tells its users to holders of its key alone, and
            # has none to tell of.
            if any(each.keys for each in await admin.name_servers()):
                raise
            return AccessData((), (), Quota())

    return await request.cluster.cached("access", ask)


async def load_users(request: PageRequest) -> UsersModel:
    """Ask for users, roles and rules, and for the answer of the form that explains."""
    data = await access_data(request)
    form = explain_form(request.query, data.users)
    if request.query.text("tab") == "explain" and form.asked:
        form = await _explained(request, form)
    return build_users(data, form, request.query, request.now_ms)


async def _explained(request: PageRequest, form: ExplainModel) -> ExplainModel:
    try:
        verb, kind = check_verb(form.verb, form.kind)
        decision = await request.cluster.boom.admin.explain(form.user, verb, kind, form.resource)
    except LogboomError as error:
        return replace(form, error=error.text or str(error))
    return explained(form, decision)


async def load_user(request: PageRequest) -> UserModel:
    """Ask for one user."""
    data = await access_data(request)
    user = await request.cluster.boom.admin.describe_user(request.parts["user"])
    return build_user(user, data.roles, data.default_quota, request.query, request.now_ms)


async def load_role(request: PageRequest) -> RoleModel:
    """Ask for one role."""
    data = await access_data(request)
    role = await request.cluster.boom.admin.describe_role(request.parts["role"])
    return build_role(role, data.users, request.query)


# Users and keys.


def _end_ms(values: FormValues, now_ms: int) -> int:
    text = values.text("end")
    if text in ("", "never"):
        return 0
    after_ms = duration_ms(text)
    if after_ms <= 0:
        raise InvalidRequest(f"{text!r} is no time after which a key ends: write 12h, 90d or 52w")
    return now_ms + after_ms


def _check_key(values: FormValues, user: str) -> tuple[str, str]:
    """Return label and public key, "" for one that is to be made.

    Raises:
        InvalidRequest: one of them, or the name of the user, is not valid.
    """
    label, public = values.text("label", FIRST_LABEL), values.text("public_key")
    fault = user_name_fault(user) or label_fault(label)
    if public:
        fault = fault or public_key_fault(public)
    if fault is not None:
        raise InvalidRequest(fault)
    return label, public


async def _new_credentials(request: PageRequest, user: str) -> Credentials:
    """Return credentials with a new key pair, which name the nodes of the cluster."""
    admin = request.cluster.boom.admin
    nodes = [(each.id, each.endpoint, each.keys) for each in await admin.name_servers()]
    nodes += [(each.id, each.endpoint, each.keys) for each in await admin.brokers()]
    servers = [Server(node, endpoint, key) for node, endpoint, keys in nodes for key in keys]
    return Credentials(user, await admin.cluster_id(), make_key_pair(), tuple(servers))


def _key_words(values: FormValues) -> Sequence[str]:
    end, public = values.text("end"), values.text("public_key")
    return (
        *(("--end", end) if end else ()),
        *(("--public-key", public) if public else ()),
    )


def create_user_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom user create`."""
    name = values.text("name")
    label, _ = _check_key(values, name)
    roles = [word for role in _roles(values) for word in ("--role", role)]
    own_label = ("--label", label) if label != FIRST_LABEL else ()
    return ("user", "create", name, *roles, *own_label, *_key_words(values))


def _roles(values: FormValues) -> list[str]:
    return values.text("roles").replace(",", " ").split()


async def create_user(request: PageRequest, values: FormValues) -> ActionDone:
    """Create a user, with a key pair if none is given."""
    admin = request.cluster.boom.admin
    name = values.text("name")
    label, public = _check_key(values, name)
    end_ms = _end_ms(values, request.now_ms)
    made = None if public else await _new_credentials(request, name)
    await admin.create_user(
        name,
        public if made is None else made.key_pair.public,
        label=label,
        roles=_roles(values),
        end_ms=end_ms,
    )
    url = path_of("users", name)
    if made is None:
        return ActionDone(f"User {name} is created.", url)
    return ActionDone(f"User {name} is created.", url, format_credentials(made), f"{name}.toml")


CREATE_USER = ConsoleAction(
    name="user.create",
    title="Create a user",
    button="Create the user",
    fields=(
        FormField("name", "Name", required=True, hint="1 to 64 of A-Z a-z 0-9 . _ @ -"),
        FormField(
            "roles", "Roles", hint="Separated by commas. Without one the user may do nothing."
        ),
        FormField("label", "Label of the key", default=FIRST_LABEL),
        KEY_END,
        PUBLIC_KEY,
    ),
    command=create_user_command,
    question=lambda values: f"Create user {values.text('name')}?",
    run=create_user,
)


def _set_disabled(request: PageRequest, values: FormValues, *, disabled: bool) -> Any:
    return request.cluster.boom.admin.alter_user(values.text("user"), disabled=disabled)


async def disable_user(request: PageRequest, values: FormValues) -> ActionDone:
    """Refuse a user from now on."""
    await _set_disabled(request, values, disabled=True)
    return ActionDone(f"{values.text('user')} is disabled, on open connections too.")


async def enable_user(request: PageRequest, values: FormValues) -> ActionDone:
    """Let a disabled user in again."""
    await _set_disabled(request, values, disabled=False)
    return ActionDone(f"{values.text('user')} is enabled.")


async def delete_user(request: PageRequest, values: FormValues) -> ActionDone:
    """Delete a user."""
    await request.cluster.boom.admin.delete_user(values.text("user"))
    return ActionDone(f"User {values.text('user')} is deleted.", "/users")


DISABLE_USER = ConsoleAction(
    name="user.disable",
    title="Disable a user",
    button="Disable the user",
    fields=(USER,),
    command=lambda values: ("user", "disable", values.text("user")),
    question=lambda values: (
        f"Refuse {values.text('user')} from now on, on open connections too? Keys, roles and rules stay."
    ),
    run=disable_user,
    danger=True,
)
ENABLE_USER = ConsoleAction(
    name="user.enable",
    title="Enable a user",
    button="Enable the user",
    fields=(USER,),
    command=lambda values: ("user", "enable", values.text("user")),
    question=lambda values: f"Let {values.text('user')} in again, with all that it had?",
    run=enable_user,
)
DELETE_USER = ConsoleAction(
    name="user.delete",
    title="Delete a user",
    button="Delete the user",
    fields=(USER,),
    command=lambda values: ("user", "delete", values.text("user"), "--yes"),
    question=lambda values: (
        f"Delete {values.text('user')} with its keys and its own rules? Its topics and messages stay."
    ),
    run=delete_user,
    danger=True,
)


def add_key_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom user key add`."""
    user = values.text("user")
    label, _ = _check_key(values, user)
    return ("user", "key", "add", user, "--label", label, *_key_words(values))


async def add_key(request: PageRequest, values: FormValues) -> ActionDone:
    """Give a user one more key."""
    user = values.text("user")
    label, public = _check_key(values, user)
    end_ms = _end_ms(values, request.now_ms)
    made = None if public else await _new_credentials(request, user)
    await request.cluster.boom.admin.add_user_key(
        user, public if made is None else made.key_pair.public, label=label, end_ms=end_ms
    )
    told, url = (
        f"{user} has the key {label}; the older ones go on to count.",
        path_of("users", user),
    )
    if made is None:
        return ActionDone(told, url)
    file = f"{user.replace(':', '-')}-{label}.toml"
    return ActionDone(told, url, format_credentials(made), file)


ADD_KEY = ConsoleAction(
    name="key.add",
    title="Add a key",
    button="Add the key",
    fields=(
        USER,
        FormField("label", "Label of the key", required=True, placeholder="2027"),
        KEY_END,
        PUBLIC_KEY,
    ),
    command=add_key_command,
    question=lambda values: f"Give {values.text('user')} one more key, {values.text('label')}?",
    run=add_key,
)


async def remove_key(request: PageRequest, values: FormValues) -> ActionDone:
    """Remove a key of a user."""
    user, label = values.text("user"), values.text("label")
    await request.cluster.boom.admin.remove_user_key(user, label)
    return ActionDone(f"The key {label} of {user} is removed.")


REMOVE_KEY = ConsoleAction(
    name="key.remove",
    title="Remove a key",
    button="Remove the key",
    fields=(USER, FormField("label", kind="hidden", required=True)),
    command=lambda values: ("user", "key", "remove", values.text("user"), values.text("label")),
    question=lambda values: (
        f"Refuse {values.text('user')} with the key {values.text('label')} from now on, on open "
        "connections too?"
    ),
    run=remove_key,
    danger=True,
)


# Roles.


def _check_role(values: FormValues) -> str:
    name = values.text("name")
    fault = role_name_fault(name)
    if fault is not None:
        raise InvalidRequest(fault)
    return name


async def create_role(request: PageRequest, values: FormValues) -> ActionDone:
    """Create a role without rules."""
    name = _check_role(values)
    await request.cluster.boom.admin.create_role(name)
    return ActionDone(f"Role {name} is created: add rules to it.", path_of("roles", name))


CREATE_ROLE = ConsoleAction(
    name="role.create",
    title="Create a role",
    button="Create the role",
    fields=(
        FormField("name", "Name", required=True, hint="It allows nothing until it gets rules."),
    ),
    command=lambda values: ("role", "create", _check_role(values)),
    question=lambda values: f"Create role {values.text('name')}?",
    run=create_role,
)


async def delete_role(request: PageRequest, values: FormValues) -> ActionDone:
    """Delete a role that nobody has."""
    await request.cluster.boom.admin.delete_role(values.text("role"))
    return ActionDone(f"Role {values.text('role')} is deleted.", "/users?tab=roles")


DELETE_ROLE = ConsoleAction(
    name="role.delete",
    title="Delete a role",
    button="Delete the role",
    fields=(ROLE,),
    command=lambda values: ("role", "delete", values.text("role"), "--yes"),
    question=lambda values: f"Delete role {values.text('role')} with its rules?",
    run=delete_role,
    danger=True,
)


async def grant_role(request: PageRequest, values: FormValues) -> ActionDone:
    """Give a user a role."""
    user = values.text("user")
    roles = await request.cluster.boom.admin.grant_role(user, values.text("role"))
    return ActionDone(f"{user} has {', '.join(roles)}.")


GRANT_ROLE = ConsoleAction(
    name="role.grant",
    title="Grant a role",
    button="Grant the role",
    fields=(
        FormField("role", "Role", required=True),
        FormField("user", "User", required=True),
    ),
    command=lambda values: ("role", "grant", values.text("role"), values.text("user")),
    question=lambda values: f"Give {values.text('user')} the role {values.text('role')}?",
    run=grant_role,
)


async def revoke_role(request: PageRequest, values: FormValues) -> ActionDone:
    """Take a role from a user."""
    user = values.text("user")
    roles = await request.cluster.boom.admin.revoke_role(user, values.text("role"))
    return ActionDone(f"{user} has {', '.join(roles) or 'no roles'}.")


REVOKE_ROLE = ConsoleAction(
    name="role.revoke",
    title="Revoke a role",
    button="Revoke the role",
    fields=(ROLE, USER),
    command=lambda values: ("role", "revoke", values.text("role"), values.text("user")),
    question=lambda values: (
        f"Take the role {values.text('role')} from {values.text('user')}? What it alone allowed is "
        "refused from now on."
    ),
    run=revoke_role,
    danger=True,
)


# Rules.


def _rule(values: FormValues) -> tuple[str, AccessRule]:
    """Return the holder and the rule of a form.

    Raises:
        InvalidRequest: one of the words is not valid.
    """
    holder = values.text("holder")
    check_holder(holder)
    return holder, make_rule(
        values.text("effect", "allow"),
        values.text("verb"),
        values.text("kind"),
        values.text("pattern"),
    )


def _rule_command(word: str, values: FormValues) -> Sequence[str]:
    holder, rule = _rule(values)
    effect = "allow" if rule.allow else "deny"
    return ("acl", word, holder, effect, rule.verb, rule.kind, rule.pattern)


async def _change_rule(request: PageRequest, values: FormValues, *, add: bool) -> None:
    holder, rule = _rule(values)
    admin = request.cluster.boom.admin
    change = admin.add_rule if add else admin.remove_rule
    effect: Effect = "allow" if rule.allow else "deny"
    await change(holder, effect, rule.verb, rule.kind, rule.pattern)


async def add_rule(request: PageRequest, values: FormValues) -> ActionDone:
    """Add a rule to a role or user."""
    await _change_rule(request, values, add=True)
    holder, rule = _rule(values)
    return ActionDone(f"{holder}: {rule}. It counts now.")


async def remove_rule(request: PageRequest, values: FormValues) -> ActionDone:
    """Remove a rule of a role or user."""
    await _change_rule(request, values, add=False)
    holder, rule = _rule(values)
    return ActionDone(f"{holder}: no longer {rule}.")


ADD_RULE = ConsoleAction(
    name="acl.add",
    title="Add a rule",
    button="Add the rule",
    fields=(
        FormField("holder", "Holder", required=True, placeholder="role:team-orders or user:alice"),
        FormField(
            "effect",
            "Effect",
            kind="select",
            choices=(("allow", "allow"), ("deny", "deny: wins over all that allow")),
            default="allow",
        ),
        FormField(
            "verb",
            "Verb",
            kind="select",
            choices=tuple((each, each) for each in VERBS),
            default="read",
        ),
        FormField(
            "kind",
            "Kind",
            kind="select",
            choices=tuple((each, each) for each in KINDS),
            default="topic",
        ),
        FormField(
            "pattern",
            "Pattern",
            placeholder="orders.*",
            hint="A whole name (of a subscription TOPIC/NAME), or a prefix that ends with *.",
        ),
    ),
    command=lambda values: _rule_command("add", values),
    question=lambda values: "Add “{}” to {}?".format(*reversed(_rule(values))),
    run=add_rule,
)
REMOVE_RULE = ConsoleAction(
    name="acl.remove",
    title="Remove a rule",
    button="Remove the rule",
    fields=tuple(
        FormField(each, kind="hidden", required=True)
        for each in ("holder", "effect", "verb", "kind", "pattern")
    ),
    command=lambda values: _rule_command("remove", values),
    question=lambda values: "Remove “{}” from {}?".format(*reversed(_rule(values))),
    run=remove_rule,
    danger=True,
)


# Quotas.

LIMITS: Final = (
    ("produce", "produce_bytes_per_s", "Bytes produced per second", "To each broker: 512k, 10m."),
    ("fetch", "fetch_bytes_per_s", "Bytes fetched per second", "From each broker: 512k, 10m."),
    ("requests", "requests_per_s", "Requests per second", "To each broker."),
    ("connections", "connections", "Connections", "To each node."),
    ("topics", "topics", "Topics", "That the user created."),
    ("queues", "queues", "Queues", "Of these topics."),
    ("stored", "stored_bytes", "Bytes stored", "Of these topics on each broker: 500m, 10g."),
)
"""Option of `logboom quota`, field of a `Quota`, label and hint."""


def _limits(values: FormValues) -> dict[str, int]:
    """Return the limits that were filled in.

    Raises:
        InvalidRequest: none was, or one is not valid.
    """
    found: dict[str, int] = {}
    for option, name, label, _ in LIMITS:
        text = values.text(option)
        if not text:
            continue
        limit = size_bytes(text) if "bytes" in name else values.number(option)
        if limit < 0:
            raise InvalidRequest(f"{label}: {text!r} is no limit: write a number from 0")
        found[name] = limit
    if not found:
        raise InvalidRequest("nothing to set: fill in a limit")
    return found


def _limit_words(values: FormValues) -> list[str]:
    _limits(values)
    return [
        word
        for option, *_ in LIMITS
        if values.text(option)
        for word in (f"--{option}", values.text(option))
    ]


LIMIT_FIELDS: Final = tuple(
    FormField(option, label, hint=hint) for option, _, label, hint in LIMITS
)


async def set_quota(request: PageRequest, values: FormValues) -> ActionDone:
    """Change limits of a user."""
    user = values.text("user")
    await request.cluster.boom.admin.set_quota(user, **_limits(values))
    return ActionDone(f"The limits of {user} are set.")


SET_QUOTA = ConsoleAction(
    name="quota.set",
    title="Limits of a user",
    button="Set the limits",
    fields=(FormField("user", "User", required=True), *LIMIT_FIELDS),
    command=lambda values: ("quota", "set", values.text("user"), *_limit_words(values)),
    question=lambda values: (
        f"Set these limits of {values.text('user')}? Those left empty stay; 0 stands for the default's."
    ),
    run=set_quota,
)


async def set_default_quota(request: PageRequest, values: FormValues) -> ActionDone:
    """Change limits of users without their own."""
    await request.cluster.boom.admin.set_default_quota(**_limits(values))
    return ActionDone("The default limits are set.")


DEFAULT_QUOTA = ConsoleAction(
    name="quota.default",
    title="Default limits",
    button="Set the limits",
    fields=LIMIT_FIELDS,
    command=lambda values: ("quota", "default", *_limit_words(values)),
    question=lambda values: (
        "Set these limits of each user without its own? Those left empty stay; 0 is no limit."
    ),
    run=set_default_quota,
)
SUBJECT = Subject(
    pages=(
        PageRoute("/users", load_users, "users.html"),
        PageRoute("/users/{user}", load_user, "user.html"),
        PageRoute("/roles/{role}", load_role, "role.html"),
    ),
    actions=(
        CREATE_USER,
        DISABLE_USER,
        ENABLE_USER,
        DELETE_USER,
        ADD_KEY,
        REMOVE_KEY,
        CREATE_ROLE,
        DELETE_ROLE,
        GRANT_ROLE,
        REVOKE_ROLE,
        ADD_RULE,
        REMOVE_RULE,
        SET_QUOTA,
        DEFAULT_QUOTA,
    ),
    navigation=(NavigationEntry("Users", "/users", 80),),
)
