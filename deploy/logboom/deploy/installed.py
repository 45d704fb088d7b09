"""Check for the packages that nodes need. A client works without them."""

from __future__ import annotations

import importlib.util
from typing import Final

from logboom.wire.errors import StartError

NEEDED: Final = ("pysyncobj", "rocksdict")


def check_installed(what: str = "a node", also: tuple[str, ...] = ()) -> None:
    """Refuse to start a node where the extra `[node]` is missing, before anything is written.

    Args:
        what: needs it.
        also: further packages of the extra that it needs.

    Raises:
        StartError: says how to get it.
    """
    if any(importlib.util.find_spec(name) is None for name in (*NEEDED, *also)):
        raise StartError(f"{what} needs the extra for nodes: pip install 'logboom[node]'")
