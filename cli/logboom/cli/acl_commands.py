"""`logboom acl`: add, list, remove and explain access rules."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from logboom.cli.access_tables import RULE_COLUMNS, decision_json, rule_row
from logboom.cli.connection import open_operator_client
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import (
    ExplainedUser,
    Holder,
    OperatorServers,
    Output,
    Pattern,
    RuleEffect,
    RuleKind,
    RuleVerb,
)
from logboom.wire.errors import InvalidRequest

app = App(name="acl", help="Access rules: who may do what. Add, list, remove, explain.")


@app.command
def add(
    holder: Holder,
    effect: RuleEffect,
    verb: RuleVerb,
    kind: RuleKind,
    pattern: Pattern = "",
    *,
    servers: OperatorServers = None,
) -> None:
    """Add a rule to a role or user. It counts at once, on connections that are open, too.

    What no rule allows is refused. A rule that denies wins over all that allow. Allowing any verb
    allows `describe`. To read in a group, a consumer needs `read` of the topic and of the group; to
    consume by a subscription, `read` of the topic and of the subscription, TOPIC/NAME.

    For example:

        logboom acl add role:team-orders allow write topic 'orders.*'
        logboom acl add role:team-orders allow read group billing
        logboom acl add role:team-orders allow read subscription orders.eu/billing
        logboom acl add role:team-orders deny read topic orders.salaries
        logboom acl add user:ops allow admin cluster
    """
    with open_operator_client(servers) as boom:
        boom.admin.add_rule(holder, effect, verb, kind, pattern)
    note(f"{holder}: {effect} {' '.join(filter(None, (verb, kind, pattern)))}")


@app.command(name="list")
def list_rules(
    holder: Annotated[str, Parameter(help="Only the rules of role:NAME or user:NAME.")] = "",
    *,
    user: Annotated[
        str, Parameter(name=["--user", "-u"], help="Only the rules that count for this user.")
    ] = "",
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """List the rules, and where each stands.

    For example:

        logboom acl list
        logboom acl list role:team-orders
        logboom acl list --user alice
    """
    if holder and user:
        raise InvalidRequest("give a holder or --user, not both: --user includes the user's roles")
    with open_operator_client(servers) as boom:
        rules = boom.admin.rules(user=user, holder=holder)
    show([rule_row(each, rule) for each, rule in rules], RULE_COLUMNS, output)


@app.command
def remove(
    holder: Holder,
    effect: RuleEffect,
    verb: RuleVerb,
    kind: RuleKind,
    pattern: Pattern = "",
    *,
    servers: OperatorServers = None,
) -> None:
    """Remove a rule, as `logboom acl list` shows it.

    For example:

        logboom acl remove role:team-orders allow write topic 'orders.*'
    """
    with open_operator_client(servers) as boom:
        boom.admin.remove_rule(holder, effect, verb, kind, pattern)
    note(f"{holder}: no longer {effect} {' '.join(filter(None, (verb, kind, pattern)))}")


@app.command
def explain(
    verb: RuleVerb,
    kind: RuleKind,
    name: Annotated[
        str, Parameter(help="The topic, group, subscription (TOPIC/NAME) or application id.")
    ] = "cluster",
    *,
    user: ExplainedUser,
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Tell whether a user may do something, which rule decides it, and where the rule stands.

    For example:

        logboom acl explain --user alice read topic orders
        logboom acl explain --user alice admin cluster
    """
    with open_operator_client(servers) as boom:
        decision = boom.admin.explain(user, verb, kind, name)
    if output == "json":
        asked = {"user": user, "verb": verb, "kind": kind, "name": name}
        show_json(asked | decision_json(decision))
        return
    print(f"{'allowed' if decision.allowed else 'refused'}: {decision.why}")
