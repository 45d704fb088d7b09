"""The socket that the console or the exporter listens on."""

from __future__ import annotations

import socket

from logboom.wire.errors import StartError


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens; port 0 is any free one.

    Raises:
        StartError: the port is in use, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(backlog)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise StartError(
            f"{host}:{port} cannot be listened at ({error.strerror or error}): choose another with "
            "--listen 127.0.0.1:PORT"
        ) from None
    return made


def local_url(scheme: str, host: str, port: int) -> str:
    """Return where programs of this machine find a listener, with a slash at the end."""
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}/"
