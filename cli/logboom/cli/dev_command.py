"""`logboom dev`: a name server and a broker inside this process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from logboom.cli.output import note
from logboom.deploy.embedded import embedded
from logboom.deploy.ports import NAME_SERVER_PORT


def dev(
    *,
    data: Annotated[Path | None, Parameter(name=["--data", "-d"])] = None,
    port: Annotated[int, Parameter(name=["--port", "-p"])] = NAME_SERVER_PORT,
) -> None:
    """Run a name server and a broker in this process until Ctrl-C, to try things out.

    Clients with create_topics=True create topics on first use. Nothing is replicated.

        logboom dev
        logboom dev --data ./boom

    Parameters
    ----------
    data
        The folder of the messages; by default one that is removed at the end.
    port
        The port of the name server; the broker listens 10 above.
    """
    begun = time.monotonic()
    with embedded(data=data, ports=port) as node:
        note(f"ready after {time.monotonic() - begun:.1f} s at {','.join(node.endpoints)}")
        note("")
        note("    from logboom.client import connect")
        note(f"    boom = connect({node.endpoints[0]!r}, create_topics=True)")
        note("")
        note(f"    echo hello | logboom produce greetings --create -s {node.endpoints[0]}")
        note("")
        note("Ctrl-C ends it" + ("" if data else ", and removes its messages."))
        node.wait()
