"""`logboom user`: create, list, describe, disable and delete users, and their keys."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import App, Parameter

from logboom.cli.access_tables import (
    KEY_COLUMNS,
    RULE_COLUMNS,
    USER_COLUMNS,
    key_row,
    rule_row,
    user_headline,
    user_json,
    user_row,
)
from logboom.cli.confirmation import confirmed
from logboom.cli.connection import open_operator_client
from logboom.cli.new_credentials import FIRST, NewCredentials, check_names, known_servers
from logboom.cli.options import key_end_ms
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import Confirmed, KeyEnd, KeyLabel, OperatorServers, Output, UserName
from logboom.wire.credentials import format_servers

app = App(name="user", help="Users: create, list, describe, disable, delete, and their keys.")
key = App(name="key", help="Keys of users: add, remove, generate.")
app.command(key)

NewFile: TypeAlias = Annotated[
    Path | None,
    Parameter(name=["--file", "-f"], help="The credentials file to write; NAME.toml by default."),
]
PublicKey: TypeAlias = Annotated[
    str,
    # Keys are text of Z85, which may begin with a hyphen.
    Parameter(
        help="The public key that the user has made by `logboom user key generate`.",
        allow_leading_hyphen=True,
    ),
]


@app.command
def create(
    name: Annotated[str, Parameter(help="1 to 64 characters of A-Z a-z 0-9 . _ @ -")],
    *,
    role: Annotated[
        list[str] | None,
        Parameter(name=["--role", "-r"], negative="", help="A role; give it once per role."),
    ] = None,
    label: KeyLabel = FIRST,
    end: KeyEnd = "never",
    public_key: PublicKey = "",
    file: NewFile = None,
    servers: OperatorServers = None,
) -> None:
    """Create a user, make its key pair here, and write its credentials file with mode 0600.

    The file has the secret key, which is nowhere else: the cluster knows the public one. Give it to
    the user over a channel that you trust, and delete your copy. A user who has made a key pair
    needs no file: with --public-key the nodes that belong into the user's file are printed.

    For example:

        logboom user create alice --role team-orders
        logboom user create nightly --end 90d --file /etc/nightly/logboom.toml
    """
    check_names(name, label, public_key)
    end_ms = key_end_ms(end, _now_ms())
    with open_operator_client(servers) as boom:
        if public_key:
            boom.admin.create_user(name, public_key, label=label, roles=role or (), end_ms=end_ms)
            print(format_servers(known_servers(boom)), end="")
            note(f"created {name}: the lines above belong into the credentials file of {name}")
            return
        with NewCredentials(boom, name, file) as made:
            boom.admin.create_user(name, made.public, label=label, roles=role or (), end_ms=end_ms)
    note(f"created {name}: {made.path} has its secret key; LOGBOOM_CREDENTIALS={made.path} uses it")
    made.warn_of_no_servers()


@app.command(name="list")
def list_users(*, servers: OperatorServers = None, output: Output = "table") -> None:
    """List the users, nodes included.

    For example:

        logboom user list -o json
    """
    with open_operator_client(servers) as boom:
        users = boom.admin.users()
    show([user_row(user) for user in users], USER_COLUMNS, output)


@app.command
def describe(name: UserName, *, servers: OperatorServers = None, output: Output = "table") -> None:
    """Show a user's keys, roles and limits, and the rules that count for it.

    For example:

        logboom user describe alice
    """
    with open_operator_client(servers) as boom:
        user, rules = boom.admin.describe_user(name), boom.admin.rules(user=name)
    if output == "json":
        show_json(user_json(user, rules))
        return
    print(user_headline(user))
    show([key_row(each) for each in user.keys], KEY_COLUMNS, output)
    if rules:
        show([rule_row(holder, rule) for holder, rule in rules], RULE_COLUMNS, output)


@app.command
def disable(name: UserName, *, servers: OperatorServers = None) -> None:
    """Refuse a user from now on, on open connections too. Keys, roles and rules stay.

    For example:

        logboom user disable alice
    """
    with open_operator_client(servers) as boom:
        boom.admin.alter_user(name, disabled=True)
    note(f"disabled {name}")


@app.command
def enable(name: UserName, *, servers: OperatorServers = None) -> None:
    """Let a disabled user in again, with the keys, roles and rules that it had.

    For example:

        logboom user enable alice
    """
    with open_operator_client(servers) as boom:
        boom.admin.alter_user(name, disabled=False)
    note(f"enabled {name}")


@app.command
def delete(name: UserName, *, yes: Confirmed = False, servers: OperatorServers = None) -> None:
    """Delete a user with its keys and its own rules. Its topics and messages stay.

    For example:

        logboom user delete alice --yes
    """
    refusal = f"deleting {name} cannot be undone: say --yes to do it"
    if not (yes or confirmed(f"Delete user {name}?", refusal, "nothing was deleted")):
        return
    with open_operator_client(servers) as boom:
        boom.admin.delete_user(name)
    note(f"deleted {name}")


@key.command(name="add")
def add_key(
    user: UserName,
    *,
    label: Annotated[str, Parameter(name=["--label", "-l"], help="A name of the new key.")],
    end: KeyEnd = "never",
    public_key: PublicKey = "",
    file: NewFile = None,
    servers: OperatorServers = None,
) -> None:
    """Give a user one more key, of at most four, and write a credentials file with it.

    The older keys go on to count: give the new file to the user, and then remove the old key.

    For example:

        logboom user key add alice --label 2027 --file alice-2027.toml
        logboom user key remove alice first
    """
    check_names(user, label, public_key)
    end_ms = key_end_ms(end, _now_ms())
    with open_operator_client(servers) as boom:
        if public_key:
            boom.admin.add_user_key(user, public_key, label=label, end_ms=end_ms)
            note(f"added key {label} of {user}")
            return
        path = Path(f"{user.replace(':', '-')}-{label}.toml") if file is None else file
        with NewCredentials(boom, user, path) as made:
            boom.admin.add_user_key(user, made.public, label=label, end_ms=end_ms)
    note(f"added key {label} of {user}: {made.path} has its secret key")
    made.warn_of_no_servers()


@key.command(name="remove")
def remove_key(
    user: UserName,
    label: Annotated[str, Parameter(help="The label, as `logboom user describe` shows it.")],
    *,
    servers: OperatorServers = None,
) -> None:
    """Remove a key, which is refused from now on, on open connections too. The last one stays.

    For example:

        logboom user key remove alice first
    """
    with open_operator_client(servers) as boom:
        boom.admin.remove_user_key(user, label)
    note(f"removed key {label} of {user}")


@key.command
def generate(user: UserName, *, file: NewFile = None) -> None:
    """Make a key pair without a cluster: write a credentials file, and print the public key.

    Send the public key to an administrator, and append what `logboom user create` prints there to
    the file. So the secret key never leaves this machine.

    For example:

        logboom user key generate alice --file alice.toml
    """
    check_names(user, FIRST, "")
    with NewCredentials(None, user, file) as made:
        print(made.public)
    note(f"{made.path} has the secret key; the line above is the public one, for an administrator")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
