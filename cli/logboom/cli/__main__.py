"""Entry point of the `logboom` command. It explains how to install a missing [cli] extra."""

from __future__ import annotations

import importlib.util
import sys

_NEEDED = ("cyclopts", "rich")


def main() -> None:
    """Run the command line of this process and exit with its code."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        print(
            "logboom: the command needs its extra: pip install 'logboom[cli]' "
            "(with nodes: pip install 'logboom[cli,node]')",
            file=sys.stderr,
        )
        sys.exit(1)
    # Imported late, because they need the extra.
    from logboom.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
