"""`logboom dev`: a name server and a broker inside this process."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from logboom.cli.output import note
from logboom.deploy.embedded import Embedded, embedded
from logboom.deploy.ports import NAME_SERVER_PORT
from logboom.wire.log_format import LogForm, open_log


def dev(
    *,
    data: Annotated[Path | None, Parameter(name=["--data", "-d"])] = None,
    port: Annotated[int, Parameter(name=["--port", "-p"])] = NAME_SERVER_PORT,
    console: Annotated[bool, Parameter(name=["--console", "-c"], negative="")] = False,
    listen: str = "127.0.0.1:8080",
    log: LogForm | None = None,
) -> None:
    """Run a name server and a broker in this process until Ctrl-C, to try things out.

    Clients with create_topics=True create topics on first use. Nothing is replicated.

        logboom dev
        logboom dev --console
        logboom dev --data ./boom

    Parameters
    ----------
    data
        The folder of the messages; by default one that is removed at the end.
    port
        The port of the name server; the broker listens 10 above.
    console
        Serve the web console too.
    listen
        Where browsers find it, on this machine alone.
    log
        Write what both nodes do to standard error, in this form. By default text, and of that only
        warnings and errors.
    """
    open_log(log or "text", "dev", level=logging.WARNING if log is None else logging.INFO)
    begun = time.monotonic()
    with ExitStack() as stack:
        if console:
            from logboom.cli.console_commands import check_console_installed

            check_console_installed()
            # Its modules are loaded while the node starts, which mostly waits for the disk.
            loading = threading.Thread(target=import_module, args=("logboom.console.server",))
            loading.start()
        node = stack.enter_context(embedded(data=data, ports=port))
        url = _serve_console(stack, node, listen) if console else ""
        note(f"ready after {time.monotonic() - begun:.1f} s at {','.join(node.endpoints)}")
        if url:
            note(f"the console is at {url}")
        note("")
        note("    from logboom.client import connect")
        note(f"    boom = connect({node.endpoints[0]!r}, create_topics=True)")
        note("")
        note(f"    echo hello | logboom produce greetings --create -s {node.endpoints[0]}")
        note("")
        note("Ctrl-C ends it" + ("" if data else ", and removes its messages."))
        node.wait()


def _serve_console(stack: ExitStack, node: Embedded, listen: str) -> str:
    """Start the console in a thread, which ends with the stack, and return where it is.

    Raises:
        StartError: its port is in use, or other machines would reach it.
    """
    from logboom.cli.console_commands import DEFAULT_AUDIT, split_listen
    from logboom.console.server import ConsoleServer, console_thread
    from logboom.console.site import ConsoleSettings

    host, port = split_listen(listen)
    settings = ConsoleSettings(host, port, server_options=("-s", node.endpoints[0]))
    audit, key = DEFAULT_AUDIT.expanduser(), node.cluster_key
    server = ConsoleServer(settings, node.endpoints, None, audit, cluster_key=key)
    stack.enter_context(console_thread(server))
    return server.url
