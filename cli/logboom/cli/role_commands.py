"""`logboom role`: create, list, describe and delete roles; grant and revoke them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from logboom.cli.access_tables import ROLE_COLUMNS, RULE_COLUMNS, role_row, rule_row
from logboom.cli.confirmation import confirmed
from logboom.cli.connection import open_operator_client
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import Confirmed, OperatorServers, Output, RoleName, UserName

app = App(name="role", help="Roles, which hold access rules: create, list, grant, revoke.")


@app.command
def create(
    name: Annotated[str, Parameter(help="Its name.")], *, servers: OperatorServers = None
) -> None:
    """Create a role. It allows nothing until it gets rules by `logboom acl add role:NAME`.

    For example:

        logboom role create team-orders
        logboom acl add role:team-orders allow read topic 'orders.*'
    """
    with open_operator_client(servers) as boom:
        boom.admin.create_role(name)
    note(f"created {name}")


@app.command(name="list")
def list_roles(*, servers: OperatorServers = None, output: Output = "table") -> None:
    """List the roles: how many rules each has, and who has it.

    For example:

        logboom role list -o json
    """
    with open_operator_client(servers) as boom:
        roles, users = boom.admin.roles(), boom.admin.users()
    show([role_row(role, users) for role in roles], ROLE_COLUMNS, output)


@app.command
def describe(name: RoleName, *, servers: OperatorServers = None, output: Output = "table") -> None:
    """Show a role's rules and who has it.

    For example:

        logboom role describe team-orders
    """
    with open_operator_client(servers) as boom:
        role, users = boom.admin.describe_role(name), boom.admin.users()
    rules = [rule_row(f"role:{name}", rule) for rule in role.rules]
    who = [user.name for user in users if name in user.roles]
    if output == "json":
        show_json({"name": name, "users": who, "rules": rules})
        return
    print(f"{name}: granted to {', '.join(who) or 'nobody'}")
    show(rules, RULE_COLUMNS, output)


@app.command
def delete(name: RoleName, *, yes: Confirmed = False, servers: OperatorServers = None) -> None:
    """Delete a role with its rules. No user may have it any more.

    For example:

        logboom role delete team-orders --yes
    """
    refusal = f"deleting {name} cannot be undone: say --yes to do it"
    if not (yes or confirmed(f"Delete role {name}?", refusal, "nothing was deleted")):
        return
    with open_operator_client(servers) as boom:
        boom.admin.delete_role(name)
    note(f"deleted {name}")


@app.command
def grant(role: RoleName, user: UserName, *, servers: OperatorServers = None) -> None:
    """Give a user a role.

    For example:

        logboom role grant team-orders alice
    """
    with open_operator_client(servers) as boom:
        roles = boom.admin.grant_role(user, role)
    note(f"{user} has {', '.join(roles)}")


@app.command
def revoke(role: RoleName, user: UserName, *, servers: OperatorServers = None) -> None:
    """Take a role from a user. What it alone allowed is refused from now on.

    For example:

        logboom role revoke team-orders alice
    """
    with open_operator_client(servers) as boom:
        roles = boom.admin.revoke_role(user, role)
    note(f"{user} has {', '.join(roles) or 'no roles'}")
