"""Check for the packages that nodes need. A client works without them."""

from __future__ import annotations

import importlib.util
from typing import Final

from logboom.wire.errors import StartError

NEEDED: Final = ("prometheus_client", "pysyncobj", "rocksdict")


def check_installed(what: str = "a node", also: tuple[str, ...] = ()) -> None:
    """Refuse to start a node where the extra `[node]` is missing, before anything is written.

    Args:
        what: The program that needs the packages.
        also: Further packages of the extra that it needs.

    Raises:
        StartError: a package is missing; the text says how to install it.
    """
    if any(importlib.util.find_spec(name) is None for name in (*NEEDED, *also)):
        raise StartError(f"{what} needs the extra for nodes: pip install 'logboom[node]'")
