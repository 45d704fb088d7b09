"""A node of the next version, which also speaks protocol + 1.

`python -m tests.chaos.next_version COMMAND …` becomes the node that COMMAND would start, with a
higher version in its HELLO and at its gate: it stands in for a later build in a rolling upgrade.
"""

from __future__ import annotations

import sys

from logboom.wire import messages


def main() -> int:
    """Run the node in this process."""
    # Before anything takes the number from there.
    vars(messages)["PROTOCOL_VERSION"] = messages.PROTOCOL_VERSION + 1
    from tests.chaos import watched_node

    return watched_node.main()


if __name__ == "__main__":
    sys.exit(main())
