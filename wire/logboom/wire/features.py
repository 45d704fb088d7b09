"""The features level of a cluster: what all its nodes can read.

A cluster is founded at the level of the release that founds it. Later releases raise the level once
all nodes have been upgraded; before that, nothing that an older node cannot read is written.
"""

from __future__ import annotations

from typing import Final

from logboom import __version__

SOFTWARE: Final = __version__
"""Version of this release."""
FEATURES: Final = 3
"""The level of this release. 1: moves of replicas, modes of brokers, settings; 2: copies are proven;
3: what users have is kept apart."""
COPIES_PROVEN: Final = 2
"""From this level on brokers take copies of failed messages from users with a receipt alone."""
SUBSCRIPTION_RIGHTS: Final = 3
"""From this level on there are rules on subscriptions, and subscriptions are used and altered by them."""
RESULTS_BY_OWNER: Final = 3
"""From this level on users with many proposers make no results of others go."""
IDS_OF_USERS: Final = 3
"""From this level on brokers take producer ids, and what else names a client, from its user alone."""
PLACED_BEFORE: Final = 3
"""From this level on the Raft leader places many new queues before their command enters the log."""
OWNERS_PROVEN: Final = 3
"""From this level on the leader of a queue keeps owner epochs of groups with a proof alone."""
EARLIEST: Final = 0
"""The level of clusters that were founded before there were levels."""
BRINGS: Final = {
    1: "moves of replicas, another number of replicas of a topic, modes of brokers, settings that "
    "are changed while nodes run, owners of application ids, restoring of backups",
    2: "copies of messages for retries and dead letters are taken from users with a broker's receipt "
    "alone: users' clients that retry are to be upgraded before",
    3: "rights on subscriptions: whoever may read or manage topics gets rules for their subscriptions, "
    "which are to be narrowed afterwards; kept results of commands are bounded for each user by itself; "
    "ids of producers and members of groups count for the user who got them alone, and users recall "
    "their own delayed messages: users' programs that send are to be restarted before; owners of a "
    "group's queue fence those before them at the queue's leader with a proof alone",
}
"""Level → what it makes possible, in words."""


def upgrade_text(node: str, features: int, level: int) -> str:
    """Return the error of a node whose software cannot read what the cluster writes."""
    return (
        f"{node} reads features level {features}, the cluster is at {level}: install the release of "
        "the other nodes (`logboom cluster upgrade status` shows it) and start it again"
    )
