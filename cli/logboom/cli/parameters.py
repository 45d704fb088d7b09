"""Parameters that several commands share, with their names, environment variables and help.

An alias with a type in brackets, such as `Retention[str | None]`, is a parameter whose type or
default differs between commands.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from cyclopts import Parameter

from logboom.cli.local_cluster import DATA_VARIABLE
from logboom.wire.access.access_rules import ResourceKind, Verb

T = TypeVar("T")

SERVERS_VARIABLE: Final = "LOGBOOM_SERVERS"

# Location of the cluster.

ClusterFolder: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name=["--data", "-d"],
        env_var=DATA_VARIABLE,
        help="Where the cluster is kept: .logboom, else the only cluster that runs, by default.",
    ),
]
ConfigFile: TypeAlias = Annotated[
    Path, Parameter(help="The node's TOML file; docs/OPERATING.md lists every key.")
]
KeyFile: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name=["--key-file", "-k"],
        env_var="LOGBOOM_KEY_FILE",
        help="The cluster key file that the nodes' configs name; by default that of the cluster on "
        "this machine.",
    ),
]
NameServer: TypeAlias = Annotated[str, Parameter(help="The id of the name server.")]
CredentialsFile: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--credentials",
        env_var="LOGBOOM_CREDENTIALS",
        help="Your credentials file, which also names nodes; by default that of the cluster on "
        "this machine, if that is secure.",
    ),
]
NodeList: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--servers", "-s"],
        env_var=SERVERS_VARIABLE,
        help="Any nodes of the cluster, host:port, comma-separated.",
    ),
]


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """What the command line says of the cluster; each field is an option."""

    servers: NodeList = None
    credentials: CredentialsFile = None


@dataclass(frozen=True, slots=True)
class OperatorAddress(ClusterAddress):
    """The same for commands that need the cluster key where nodes are open."""

    key_file: KeyFile = None


Servers: TypeAlias = Annotated[ClusterAddress | None, Parameter(name="*")]
"""A parameter that is these options."""
OperatorServers: TypeAlias = Annotated[OperatorAddress | None, Parameter(name="*")]

# Actions and output.

Apply: TypeAlias = Annotated[
    bool, Parameter(name=["--yes", "-y"], negative="", help="Do it, instead of showing the plan.")
]
Confirmed: TypeAlias = Annotated[
    bool, Parameter(name=["--yes", "-y"], negative="", help="Do it without asking.")
]
Figures: TypeAlias = Annotated[
    bool, Parameter(name=["--json", "-J"], negative="", help="Print the figures as JSON.")
]
Output: TypeAlias = Annotated[
    Literal["table", "json"], Parameter(name=["--output", "-o"], help="table or json.")
]

# Brokers and moves.

BrokerId: TypeAlias = Annotated[str, Parameter(help="The id of the broker.")]
QueueNumber: TypeAlias = Annotated[int, Parameter(help="The number of the queue.")]
Wait: TypeAlias = Annotated[
    bool,
    Parameter(
        name=["--wait", "-w"],
        negative="",
        help="Wait until it is done, with its progress. Ctrl-C ends the wait alone.",
    ),
]
WaitTimeout: TypeAlias = Annotated[
    float, Parameter(name="--timeout", help="Seconds that --wait may take; 0: as long as it takes.")
]

# Topics, queues and messages.

Count: TypeAlias = Annotated[
    T, Parameter(name=["--count", "-c"], help="At most this many messages.")
]
QueueNumbers: TypeAlias = Annotated[
    str | None, Parameter(name=["--queue", "-q"], help="Only these queues: 0 or 0,3 or 2-5.")
]
TopicName: TypeAlias = Annotated[str, Parameter(help="The topic.")]

# Settings of a topic.

Compaction: TypeAlias = Annotated[
    T,
    Parameter(
        help="on: keep the latest message of each key, also beyond retention, for `consume "
        "--compacted`. off: forget what retention has removed from the log."
    ),
]
DeleteRetention: TypeAlias = Annotated[
    T,
    Parameter(
        help="How long compaction keeps a tombstone after the log has dropped it: 12h, 30d, or 0s."
    ),
]
DispatchBytes: TypeAlias = Annotated[T, Parameter(help="The same in bytes: 512k, 10m, any.")]
DispatchMessages: TypeAlias = Annotated[
    T,
    Parameter(
        help="Messages per second that each queue delivers to all its subscriptions; 0: no limit."
    ),
]
MaxMessage: TypeAlias = Annotated[T, Parameter(help="The largest message.")]
MinInSync: TypeAlias = Annotated[
    T,
    Parameter(help="Copies that an acks=all write needs; 0 means a majority of the replicas."),
]
Retention: TypeAlias = Annotated[
    T, Parameter(help="How long messages are kept: 90s, 15m, 1h, 7d, ever.")
]
RetentionBytes: TypeAlias = Annotated[
    T, Parameter(help="How much each queue keeps: 64m, 10g, any.")
]
UncleanElection: TypeAlias = Annotated[
    T,
    Parameter(
        help="Elect a replica that lacks messages when no other is alive; this loses messages."
    ),
]

# Users, roles and rules.

ExplainedUser: TypeAlias = Annotated[
    str, Parameter(name=["--user", "-u"], help="The user whose right is explained.")
]
Holder: TypeAlias = Annotated[str, Parameter(help="Who gets the rule: role:NAME or user:NAME.")]
KeyEnd: TypeAlias = Annotated[
    str,
    Parameter(
        name=["--end", "-e"], help="When the key ends: 90d from now, a time, or never, the default."
    ),
]
KeyLabel: TypeAlias = Annotated[str, Parameter(name=["--label", "-l"], help="A name of the key.")]
Pattern: TypeAlias = Annotated[
    str, Parameter(help="A whole name, or a prefix that ends with *; not needed for the cluster.")
]
RoleName: TypeAlias = Annotated[str, Parameter(help="The role.")]
RuleEffect: TypeAlias = Annotated[Literal["allow", "deny"], Parameter(help="What the rule does.")]
RuleKind: TypeAlias = Annotated[
    ResourceKind,
    Parameter(
        help="The kind of resource; a transaction is named by its application id, a subscription as "
        "TOPIC/NAME."
    ),
]
RuleVerb: TypeAlias = Annotated[
    Verb,
    Parameter(
        help="read: consume, join a group. write: produce. manage: create, alter, delete, reset. "
        "describe: see it. admin: of the cluster."
    ),
]
UserName: TypeAlias = Annotated[str, Parameter(help="The user.")]

# Groups, subscriptions, transactions.

ApplicationId: TypeAlias = Annotated[
    str, Parameter(help="The application id, or the producer group of half messages.")
]
Attempt: TypeAlias = Annotated[
    int | None,
    Parameter(
        name=["--attempt", "-a"], help="The attempt of the transaction, if there are several."
    ),
]
DeadLetterOwner: TypeAlias = Annotated[str, Parameter(help="The group, or topic%subscription.")]
Force: TypeAlias = Annotated[
    bool, Parameter(negative="", help="Also while it has consumers, which are disconnected.")
]
GroupName: TypeAlias = Annotated[str, Parameter(help="The group.")]
Half: TypeAlias = Annotated[
    str | None, Parameter(help="The half message, as `list` shows it; or all.")
]
ResetTarget: TypeAlias = Annotated[
    T,
    Parameter(
        help="first, last, a message time (2026-11-21T10:00:00Z), or 1h for an hour ago; of a queue "
        "without a message since then, its end."
    ),
]
SequenceNumber: TypeAlias = Annotated[
    int | None, Parameter(name=["--sequence", "-n"], help="The sequence of the transaction.")
]
SubscriptionName: TypeAlias = Annotated[str, Parameter(help="The subscription.")]
