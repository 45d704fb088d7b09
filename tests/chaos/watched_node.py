"""A node as the chaos runs start it: name servers compare their state every few entries (P12).

`python -m tests.chaos.watched_node COMMAND …` becomes the node that COMMAND would start. As shipped
they compare every 1,024 entries, and a process of a run seldom lives for so many.
"""

from __future__ import annotations

import functools
import sys
from typing import Final

from logboom.metadata import name_server
from logboom.metadata.raft.raft_config import RaftConfig

MODULE: Final = "logboom.deploy.node"
EVERY: Final = 16
"""Raft entries between two hashes of the state."""


def main() -> int:
    """Run the node in this process."""
    vars(name_server)["RaftConfig"] = functools.partial(RaftConfig, hash_every=EVERY)
    sys.argv = [MODULE, *sys.argv[sys.argv.index(MODULE) + 1 :]]
    from logboom.deploy import node

    return node.main()


if __name__ == "__main__":
    sys.exit(main())
