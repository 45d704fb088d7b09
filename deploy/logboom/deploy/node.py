"""One node in the foreground of this process: `python -m logboom.deploy.node broker --config FILE`.

`logboom node …` does the same. All output of a node goes to standard error; the last line of a node
that fails to start says why. If it logs JSON, that line is the event `node_failed`.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

import msgspec

from logboom.deploy.cluster_key import read_key
from logboom.deploy.config_files import load
from logboom.deploy.installed import check_installed
from logboom.wire.errors import LogboomError, StartError
from logboom.wire.event_log import log_event, work_for
from logboom.wire.log_format import LogForm, is_json, open_log, rename_log
from logboom.wire.private_files import restrict_umask

PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that this process gets when its parent ends."""
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
KEPT_BYTES: Final = 256 * 1024 * 1024
MAPPED_BYTES: Final = 32 * 1024 * 1024
"""The greatest threshold that glibc takes on 64 bits."""
COLLECT_AFTER: Final = (2_500, 4, 4_000)
"""Thresholds of the garbage collector: new objects before it scans the youngest generation, and
scans of each generation before it scans the next older one. No scan but that of everything, after
some 60 million new objects, looks at many more than 15,000 objects, which takes less than ten milliseconds."""


class Node(Protocol):
    """The interface of both kinds of node, `NameServerProcess` and `BrokerProcess`."""

    @property
    def endpoint(self) -> str:
        """The endpoint it listens at, host:port."""

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until `stop` is called."""

    def stop(self) -> None:
        """End `run`. May be called from any thread."""


def open_node(
    role: str,
    config_path: Path,
    *,
    create: bool = False,
    instance: int | None = None,
    log: LogForm | None = None,
) -> tuple[str, Node]:
    """Read the config and make the node: bind its ports and open its data folder.

    Return the node and its id. `instance` is the number of a broker that shares the config file
    with the others of its machine. The log goes on in the form of `log`, or else of the config.

    Raises:
        StartError: the config, key, port or data folder is invalid, or an extra is missing.
    """
    check_installed()
    # Each process pays only for the kind of node that it is.
    if role == "name-server":
        from logboom.metadata.config import NameServerConfig
        from logboom.metadata.server import NameServerProcess

        config = load(config_path, NameServerConfig)
        config = msgspec.structs.replace(config, create=config.create or create)
        rename_log(log or config.log, config.id)
        return config.id, NameServerProcess(config, read_key(config.cluster_key_file))
    from logboom.nodes.config import BrokerConfig, instance_config
    from logboom.nodes.server import BrokerProcess

    broker_config = load(config_path, BrokerConfig)
    if instance is not None:
        broker_config = instance_config(broker_config, instance)
    rename_log(log or broker_config.log, broker_config.id)
    return broker_config.id, BrokerProcess(broker_config, read_key(broker_config.cluster_key_file))


def keep_memory() -> None:
    """Let this process keep the memory that it frees and use it again.

    Batches and RocksDB's buffers are around the size from which glibc maps each block separately
    and unmaps it at once. Then every batch pays its page faults again, measured as 480 µs of system
    time per 1,000 messages instead of 115. Other C libraries are left unchanged.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)


def collect_seldom() -> None:
    """Let the garbage collector scan each object twice while it is new, and then hardly ever again.

    By default it scans the tables of a large cluster again every few thousand new objects. Decoding the
    metadata of 10,000 topics took 280 ms instead of 25, and brokers were fenced because of such
    pauses. Long-lived objects must not be in circles when they are dropped.
    """
    gc.set_threshold(*COLLECT_AFTER)


def allow_connections() -> None:
    """Raise the limit of open files to what this user may have. Each connection takes one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def run(
    role: str,
    config_path: Path,
    *,
    create: bool = False,
    instance: int | None = None,
    log: LogForm | None = None,
    ready: Callable[[str], None] = print,
) -> int:
    """Run a node until SIGTERM or SIGINT, and return the exit code.

    `ready` is called once with the ready line, a JSON object with node and endpoint. `log` is the form
    of the log; None: that of the config.
    """
    restrict_umask()
    keep_memory()
    collect_seldom()
    allow_connections()
    work_for("", role)
    open_log(log or "text", "")
    has_begun = False
    try:
        name, node = open_node(role, config_path, create=create, instance=instance, log=log)

        def stop(number: int, frame: FrameType | None) -> None:
            node.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        line = json.dumps({"node": name, "endpoint": node.endpoint})
        has_begun = True
        node.run(lambda: ready(line))
    except LogboomError as error:
        if not is_json():
            sys.stderr.write(f"logboom: {error}\n")
        elif not has_begun:
            log_event("node_failed", code=error.code, text=error.text)
        return 1
    return 0


def end_with(parent: int) -> None:
    """Let the kernel kill this process when the process that started it ends.

    Raises:
        StartError: the parent has already ended.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have ended before the call above.
    if os.getppid() != parent:
        raise StartError("the process that started this node is gone")


def main() -> int:
    """Run the command line of `python -m logboom.deploy.node`."""
    parser = argparse.ArgumentParser(prog="logboom.deploy.node", description=__doc__)
    parser.add_argument("role", choices=["name-server", "broker"])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--create", action="store_true", help="found the cluster (name server)")
    parser.add_argument("--ready-fd", type=int, help="file descriptor for the ready line")
    parser.add_argument(
        "--log", choices=["text", "json"], help="form of the log, if not the config's"
    )
    parser.add_argument("--parent", type=int, help="end with this process, which must be ours")
    arguments = parser.parse_args()

    def ready(line: str) -> None:
        if arguments.ready_fd is not None:
            with os.fdopen(arguments.ready_fd, "w", encoding="utf-8") as pipe:
                pipe.write(line + "\n")

    try:
        if arguments.parent is not None:
            end_with(arguments.parent)
    except StartError as error:
        sys.stderr.write(f"logboom: {error}\n")
        return 1
    return run(
        arguments.role, arguments.config, create=arguments.create, log=arguments.log, ready=ready
    )


if __name__ == "__main__":
    sys.exit(main())
