"""Parameters that several commands share, with their names, environment variables and help.

An alias with a type in brackets, such as `Retention[str | None]`, is a parameter whose type or
default differs between commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

from cyclopts import Parameter

from logboom.cli.local_cluster import DATA_VARIABLE

T = TypeVar("T")

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
Servers: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--servers", "-s"],
        env_var="LOGBOOM_SERVERS",
        help="Any nodes of the cluster, host:port, comma-separated.",
    ),
]

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
    Parameter(help="first, last, a message time (2026-11-21T10:00:00Z), or 1h for an hour ago."),
]
SequenceNumber: TypeAlias = Annotated[
    int | None, Parameter(name=["--sequence", "-n"], help="The sequence of the transaction.")
]
SubscriptionName: TypeAlias = Annotated[str, Parameter(help="The subscription.")]
