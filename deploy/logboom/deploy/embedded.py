"""A name server and a broker as threads of this process: for `logboom dev` and for tests.

    with embedded() as node:
        with connect(node.endpoints) as boom: …

It is as durable as a cluster of one: a message is acknowledged once it is on disk.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from logboom.deploy.closeable import Closeable
from logboom.deploy.cluster_key import read_key, read_keys
from logboom.deploy.config_files import load
from logboom.deploy.installed import check_installed
from logboom.deploy.layout import lay_out
from logboom.deploy.node_client import open_node_client
from logboom.deploy.polling import ask_until
from logboom.deploy.ports import Ports
from logboom.wire.errors import LogboomError, StartError
from logboom.wire.event_log import logger_name
from logboom.wire.event_table import EVENTS
from logboom.wire.log_format import EventLine

if TYPE_CHECKING:
    from logboom.client import Client
    from logboom.deploy.node import Node

READY_S: Final = 60.0


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for a queue that has no leader: who stops the only broker expects that."""
    return not (isinstance(record.msg, EventLine) and record.msg.event == "leader_missing")


class _NodeThread(threading.Thread):
    """A thread that runs one node and keeps the error that ended it."""

    def __init__(self, name: str, node: Node, ended: threading.Event) -> None:
        super().__init__(name=f"logboom-{name}", daemon=True)
        self.node = node
        self.error: BaseException | None = None
        self._ended = ended

    def run(self) -> None:
        try:
            self.node.run()
        # Any error, even SystemExit, ends only this thread, so it has to be passed on.
        except BaseException as error:  # noqa: BLE001 - raised by `Embedded.check`
            self.error = error
        finally:
            self._ended.set()


class Embedded(Closeable):
    """A running name server and broker; a context manager, made by `embedded`."""

    def __init__(
        self, data: Path | None, ports: int | Literal["free"], *, secure: bool = False
    ) -> None:
        check_installed()
        self._secure = secure
        self.credentials: Path | None = None
        """The credentials file of the administrator, for `connect`; None unless it is `secure`."""
        self._ports = Ports(ports)
        self._free = ports == "free"
        self._temporary = data is None
        self.data = Path(tempfile.mkdtemp(prefix="logboom-")) if data is None else Path(data)
        """The folder of its messages."""
        self._threads: list[_NodeThread] = []
        self._ended = threading.Event()
        """Set when a node has ended."""
        try:
            self._start()
        # Ctrl-C too: threads and ports are released. The error is raised again.
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        # Here, so that a program that only starts processes does not load RocksDB and the rest.
        from logboom.metadata.config import NameServerConfig
        from logboom.metadata.server import NameServerProcess
        from logboom.nodes.config import BrokerConfig
        from logboom.nodes.server import BrokerProcess

        # Programs that ask for free ports are tests and examples, and nobody watches them.
        metrics = {"metrics_listen": "off"} if self._free else {}
        layout = lay_out(
            self.data,
            1,
            1,
            self._ports,
            secure=self._secure,
            name_server_settings=metrics,
            broker_settings=metrics,
        )
        self.credentials = layout.credentials
        (name_server,), (broker,) = layout.name_servers, layout.brokers
        self.endpoints: list[str] = [broker.endpoint]
        """The endpoints that clients connect to."""
        config = load(name_server.config_path, NameServerConfig)
        config = msgspec.structs.replace(config, create=not layout.founded)
        self.cluster_key = read_keys(config.cluster_key_file)
        """What the administration of brokers and settings asks for, unless it is `secure`."""
        key = read_key(config.cluster_key_file)
        self._run(name_server.id, NameServerProcess(config, key))
        self._run(broker.id, BrokerProcess(load(broker.config_path, BrokerConfig), key))
        self._wait_ready()
        layout.mark_founded()

    def _run(self, name: str, node: Node) -> None:
        thread = _NodeThread(name, node, self._ended)
        self._threads.append(thread)
        thread.start()

    def _wait_ready(self) -> None:
        with open_node_client(self.credentials) as node_client:

            def alive() -> bool:
                self.check()
                views = node_client.views(self.endpoints, 0.5, topics=[])
                return any(b.alive for view in views.values() for b in view.brokers)

            if not ask_until(alive, bool, READY_S, pause_s=0.01):
                raise StartError(f"the node is not ready after {READY_S:.0f} s")

    def check(self) -> None:
        """Raise what ended a node, if one ended by itself.

        Raises:
            LogboomError: the error that ended the node.
        """
        for thread in self._threads:
            if thread.error is not None:
                error = thread.error
                if isinstance(error, LogboomError):
                    raise error
                raise StartError(f"{thread.name} ended: {error!r}") from error

    def wait(self) -> None:
        """Wait until a node ends by itself.

        Raises:
            LogboomError: the error that ended the node.
        """
        self._ended.wait()
        self.check()

    def connect(self, **options: Any) -> Client:
        """Return a client of this node that creates topics on first use."""
        from logboom.client import connect

        usual = {"create_topics": True, "credentials": self.credentials}
        return connect(self.endpoints, **(usual | options))

    def close(self) -> None:
        """Stop both, the broker first; a temporary folder is removed. A second call is harmless."""
        log = logging.getLogger(logger_name(EVENTS["leader_missing"], "name-server"))
        log.addFilter(_is_news)
        try:
            for thread in reversed(self._threads):
                thread.node.stop()
                thread.join()
        finally:
            log.removeFilter(_is_news)
        self._threads.clear()
        self._ports.release()
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)


def embedded(
    data: Path | str | None = None,
    *,
    ports: int | Literal["free"] = "free",
    secure: bool = False,
) -> Embedded:
    """Start a name server and a broker as threads of this process.

    Args:
        data: The folder of the messages; None: a temporary folder, removed at the end.
        ports: "free", or the port of the name server (7701; the broker listens 10 above).
        secure: Both encrypt and know their users by keys; see `Embedded.credentials`.

    Raises:
        StartError: a port is in use, the folder belongs to another kind of node, or the extra
            `[node]` is missing.
    """
    return Embedded(None if data is None else Path(data), ports, secure=secure)
