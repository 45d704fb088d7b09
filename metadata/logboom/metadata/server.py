"""The name server's skin: sockets, disk and clocks around the core.

This is the interface; the body follows.
"""

from __future__ import annotations

from collections.abc import Callable

from logboom.metadata.config import NameServerConfig


class NameServerProcess:
    """A name server with real sockets, disk and clocks. One thread calls `run`."""

    def __init__(self, config: NameServerConfig, cluster_key: bytes) -> None:
        """Bind the ports and open the data folder.

        Raises:
            StartError: PORT_IN_USE, WRONG_DATA_FOLDER, NEWER_FORMAT or BAD_CONFIG; one line.
        """
        raise NotImplementedError

    @property
    def endpoint(self) -> str:
        """The host:port bound for clients and brokers."""
        raise NotImplementedError

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until `stop`; `ready` is called once the ports are served.

        Raises:
            LogboomError: the node had to end (a journal that cannot be trusted, R9).
        """
        raise NotImplementedError

    def stop(self) -> None:
        """End `run` in good order; callable from any thread and from signal handlers."""
        raise NotImplementedError
