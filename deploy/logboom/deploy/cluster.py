"""A cluster of processes on this machine, for tests, chaos, the demo and users' own tests.

    with Cluster(name_servers=3, brokers=3) as cluster:
        connect(cluster.endpoints)
        cluster.kill("broker-2")
        cluster.start("broker-2")

Name servers are called name-1, name-2 …, brokers broker-1, broker-2 … The processes end when this
process ends, however it ends.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from logboom.deploy.closeable import Closeable
from logboom.deploy.cluster_key import read_keys
from logboom.deploy.installed import check_installed
from logboom.deploy.layout import (
    KEY_FILE,
    Adjust,
    Layout,
    lay_out,
    location_of,
    with_another_broker,
    without_broker,
)
from logboom.deploy.node_client import NodeClient, open_node_client
from logboom.deploy.polling import ask_until
from logboom.deploy.ports import Ports
from logboom.deploy.process import NodeProcess, NodeSpec
from logboom.deploy.rolling import Only, RollingRestart
from logboom.wire.errors import StartError, UnknownResource
from logboom.wire.view import QueueView, View

READY_S: Final = 60.0
"""A cluster that is not ready by then has failed to start (about 1 s is usual)."""
ASK_S: Final = 0.5
"""Seconds that the nodes get for an answer before they are asked again."""
ANSWER_S: Final = 30.0
"""Seconds after which a cluster of which no node has answered counts as down: its machine may be
busy."""


class Cluster(Closeable):
    """Name servers and brokers as processes of this machine; a context manager."""

    def __init__(
        self,
        name_servers: int = 3,
        brokers: int = 3,
        data: Path | str | None = None,
        *,
        ports: int | Literal["free"] = "free",
        zones: Sequence[str] = (),
        brokers_per_host: int | None = None,
        name_server_settings: Mapping[str, Any] | None = None,
        broker_settings: Mapping[str, Any] | None = None,
        adjust: Adjust = dict,
        launcher: Callable[[str], Sequence[str]] | None = None,
        secure: bool = False,
    ) -> None:
        """Start them and wait until all are ready.

        Args:
            name_servers: 1, 3 or 5.
            brokers: One or more.
            data: The folder of the cluster; None: a temporary folder, removed by `close`.
            ports: "free", or the port of the first name server (7701).
            zones: Zones given to the brokers in turn.
            brokers_per_host: How many brokers in a row count as being on one host, which never
                gets two replicas of a queue; None: this does not restrict where replicas are.
            name_server_settings: More keys for the name servers' config files.
            broker_settings: More keys for the brokers' config files.
            adjust: Returns the settings for a node's config file, given its usual settings.
            launcher: Returns words to put before the command of a node, given its name, such as
                `("taskset", "-c", "1")`; called at every start.
            secure: The nodes encrypt and know their users by keys; see `credentials`.

        Raises:
            StartError: a node did not start, or the extra `[node]` is missing; the text says why.
            InvalidRequest: the numbers of nodes are invalid.
        """
        check_installed()
        self._ports = Ports(ports)
        self._temporary = data is None
        self.data = Path(tempfile.mkdtemp(prefix="logboom-")) if data is None else Path(data)
        """The cluster's folder."""
        self._processes: dict[str, NodeProcess] = {}
        self._lock = threading.RLock()
        self._closed = False
        self._launcher = launcher
        self._broker_settings = broker_settings
        self._adjust_settings = adjust
        self._zones, self._brokers_per_host = zones, brokers_per_host
        # The kernel ends children with the thread that started them: one thread starts them all.
        self._spawner = ThreadPoolExecutor(1, thread_name_prefix="logboom-spawner")
        try:
            self._layout: Layout = lay_out(
                self.data,
                name_servers,
                brokers,
                self._ports,
                zones=zones,
                brokers_per_host=brokers_per_host,
                name_server_settings=name_server_settings,
                broker_settings=broker_settings,
                adjust=adjust,
                secure=secure,
            )
            self._start(self._layout.nodes)
            self.wait_ready()
            self._layout.mark_founded()
        # Ctrl-C too: no node outlives a failed start. The error is raised again.
        except BaseException:
            self.close()
            raise

    @property
    def endpoints(self) -> list[str]:
        """The endpoints that clients connect to: those of all brokers."""
        return [spec.endpoint for spec in self._layout.brokers]

    @property
    def name_server_endpoints(self) -> list[str]:
        """The endpoints of the name servers."""
        return [spec.endpoint for spec in self._layout.name_servers]

    @property
    def credentials(self) -> Path | None:
        """The credentials file of the administrator, for `connect`; None unless it is `secure`."""
        return self._layout.credentials

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes, name servers first."""
        return [spec.id for spec in self._layout.nodes]

    def endpoint(self, name: str) -> str:
        """Return the endpoint of a node."""
        return self._layout.node(name).endpoint

    def metrics_endpoint(self, name: str) -> str:
        """Return the host:port at which a node tells its metrics and health."""
        return self._layout.node(name).metrics_endpoint

    def log(self, name: str) -> str:
        """Return what a node has logged so far."""
        return self._layout.node(name).log_path.read_text(encoding="utf-8", errors="replace")

    def pid(self, name: str) -> int:
        """Return the process id of a running node."""
        return self._process(name).pid

    def running(self, name: str) -> bool:
        """True if the node's process runs. A paused process counts as running."""
        process = self._processes.get(self._layout.node(name).id)
        return process is not None and process.alive

    def start(self, name: str, *, wait: bool = True) -> None:
        """Start a node that was killed or stopped.

        By default, return when it serves requests again.
        """
        spec = self._layout.node(name)
        if self.running(name):
            raise StartError(f"{name} runs already: stop or kill it first")
        epochs = self._epochs() if wait else {}
        self._start([spec])
        if wait:
            self.wait_ready(newer_than={name: epochs[name]} if name in epochs else {})

    def kill(self, name: str) -> None:
        """Kill a node with SIGKILL, as a crash would."""
        self._forget(name).kill()

    def pause(self, name: str) -> None:
        """Pause a node with SIGSTOP."""
        self._process(name).pause()

    def resume(self, name: str) -> None:
        """Resume a paused node."""
        self._process(name).resume()

    def stop(self, name: str) -> None:
        """Stop a node gracefully. A broker transfers its leaderships first."""
        self._forget(name).stop()

    def add_broker(self) -> str:
        """Start one more broker, and return its name once it is registered.

        A cluster that holds replicas moves some of them onto it.

        Raises:
            InvalidRequest: the cluster is `secure`.
            StartError: it did not start.
        """
        number = len(self._layout.brokers)
        location = location_of(number, self._zones, self._brokers_per_host)
        self._layout = with_another_broker(
            self._layout, self._ports, location, self._broker_settings, self._adjust_settings
        )
        spec = self._layout.brokers[-1]
        self._start([spec])
        self.wait_ready()
        return spec.id

    def discard_broker(self, name: str) -> None:
        """Forget a broker that does not run and was removed with `admin.remove_broker`.

        Raises:
            StartError: it runs.
        """
        if self.running(name):
            raise StartError(f"{name} runs: drain, stop and remove it first")
        self._layout = without_broker(self._layout, name)

    def roll(self, only: Only | None = None) -> list[str]:
        """Restart the nodes one at a time, each when it is safe, and return them in this order.

        As `logboom cluster roll` does it, see `logboom.deploy.rolling`.

        Raises:
            StartError: a node did not start again.
            LogboomError: as `RollingRestart.run`.
        """
        with self.rolling() as rolling:
            return [*rolling.run(only)]

    @contextmanager
    def rolling(self, *, accept_unavailable: bool = False) -> Iterator[RollingRestart]:
        """Prepare a rolling restart; `accept_unavailable` as `RollingRestart` has it."""
        # Here, because most clusters need no client.
        from logboom.client import connect

        credentials = self.credentials
        key = b"" if credentials else read_keys(self.data / KEY_FILE)
        with (
            connect(self.endpoints, credentials=credentials, cluster_key=key) as boom,
            self._node_client() as node_client,
        ):
            yield RollingRestart(
                self._layout.nodes,
                _Restarted(self),
                boom,
                node_client,
                accept_unavailable=accept_unavailable,
            )

    def _forget(self, name: str) -> NodeProcess:
        """Remove and return the process of a node that is about to end on purpose."""
        process = self._process(name)
        del self._processes[name]
        return process

    def _process(self, name: str) -> NodeProcess:
        process = self._processes.get(self._layout.node(name).id)
        if process is None or not process.alive:
            raise UnknownResource(f"{name} does not run: start it first", "UNKNOWN_BROKER")
        return process

    def _start(self, specs: Sequence[NodeSpec]) -> None:
        def start_all() -> list[NodeProcess]:
            create = not self._layout.founded
            return [
                NodeProcess.start(
                    spec, attached=True, create=create, launcher=self._launch_words(spec)
                )
                for spec in specs
            ]

        with self._lock:
            started = self._spawner.submit(start_all).result()
            self._processes |= {process.spec.id: process for process in started}
        for process in started:
            try:
                process.wait_listening()
            except StartError:
                # It ended or hangs; a later `start` of the same name may succeed.
                self._processes.pop(process.spec.id).kill()
                raise

    def _launch_words(self, spec: NodeSpec) -> Sequence[str]:
        return () if self._launcher is None else self._launcher(spec.id)

    # ── state of the nodes ──────────────────────────────────────────────────────────────────────

    def wait_ready(
        self, timeout_s: float = READY_S, *, newer_than: Mapping[str, int] | None = None
    ) -> None:
        """Return when every running node sees every running broker alive.

        Args:
            timeout_s: How long to wait.
            newer_than: Instance epochs that must have been passed, by broker: a broker that was
                killed may still be listed as alive.

        Raises:
            StartError: a node ended, or the nodes are not ready in time.
        """
        with self._node_client() as node_client:
            missing = ask_until(
                lambda: self._not_ready(node_client, newer_than or {}),
                lambda missing: missing is None,
                timeout_s,
                pause_s=0.01,
            )
        if missing is not None:
            # They tell why, so `close` does not remove them.
            self._temporary = False
            text = f"the cluster is not ready after {timeout_s:.0f} s: {missing}"
            raise StartError(f"{text}; logs are under {self.data}")

    def _not_ready(self, node_client: NodeClient, newer_than: Mapping[str, int]) -> str | None:
        """Return a description of what is still missing, or None if the cluster is ready."""
        for process in self._processes.values():
            process.check()
        specs = [spec for spec in self._layout.nodes if self._takes_part(spec)]
        wanted = {spec.id for spec in specs if spec.role == "broker"}
        # Readiness concerns nodes only, so no topics are requested.
        views = node_client.views([spec.endpoint for spec in specs], ASK_S, topics=[])
        for spec in specs:
            view = views.get(spec.endpoint)
            if view is None:
                return f"{spec.id} does not answer"
            epochs = {b.id: b.instance_epoch for b in view.brokers if b.alive}
            for broker in wanted:
                if epochs.get(broker, -1) <= newer_than.get(broker, -1):
                    return f"{spec.id} does not see {broker} alive"
        return None

    def _node_client(self) -> NodeClient:
        return open_node_client(self.credentials)

    def _takes_part(self, spec: NodeSpec) -> bool:
        process = self._processes.get(spec.id)
        return process is not None and process.alive and not process.paused

    def _epochs(self) -> dict[str, int]:
        newest = self._newest_view([])
        return {} if newest is None else {b.id: b.instance_epoch for b in newest.brokers}

    def _answering(self) -> list[str]:
        return [spec.endpoint for spec in self._layout.nodes if self._takes_part(spec)]

    def view(self, topics: list[str] | None = None) -> View:
        """Return the newest metadata that any running node has.

        Raises:
            StartError: no node answers.
        """
        newest = self._newest_view(topics)
        if newest is None:
            raise StartError("no node of the cluster answers: is one running?")
        return newest

    def _newest_view(self, topics: list[str] | None) -> View | None:
        with self._node_client() as node_client:
            views = ask_until(
                lambda: node_client.views(self._answering(), ASK_S, topics),
                lambda views: bool(views) or not self._answering(),
                ANSWER_S,
            )
        return max(views.values(), key=lambda view: view.version, default=None)

    def queue(self, topic: str, queue: int) -> QueueView:
        """Return the replicas, leader and ISR of a queue from the newest metadata.

        Raises:
            UnknownResource: no such topic or queue.
        """
        for known in self.view([topic]).topics:
            if known.name == topic:
                if queue < len(known.queues):
                    return known.queues[queue]
                text = f"topic {topic} has queues 0 to {len(known.queues) - 1}, not {queue}"
                raise UnknownResource(text, "UNKNOWN_QUEUE")
        raise UnknownResource(f"no topic {topic!r}: create it first")

    def leader(self, topic: str, queue: int, timeout_s: float = READY_S) -> str:
        """Return the broker that leads a queue, such as "broker-1". Wait for an election to end.

        Raises:
            StartError: there is none in time.
        """

        def live_leader() -> str | None:
            leader = self.queue(topic, queue).leader
            return leader if leader is not None and self._may_run(leader) else None

        return self._wait(live_leader, f"{topic}/{queue} has no leader", timeout_s)

    def raft_leader(self, timeout_s: float = READY_S) -> str:
        """Return the name server that leads the Raft group, such as "name-2".

        Wait for an election to end.

        Raises:
            StartError: there is none in time.
        """

        def agreed() -> str | None:
            ends = [s.endpoint for s in self._layout.name_servers if self._takes_part(s)]
            with self._node_client() as node_client:
                views = node_client.views(ends, ASK_S, topics=[])
            named = {v.raft_leader for v in views.values()}
            leader = named.pop() if len(named) == 1 else None
            return leader if leader is not None and self._may_run(leader) else None

        return self._wait(agreed, "the name servers agree on no raft leader", timeout_s)

    def _may_run(self, name: str) -> bool:
        """False if a node of this object does not run; of others, added from outside, all may."""
        ours = any(spec.id == name for spec in self._layout.nodes)
        return not ours or self.running(name)

    def _wait(self, ask: Callable[[], str | None], problem: str, timeout_s: float) -> str:
        answer = ask_until(ask, lambda answer: answer is not None, timeout_s)
        if answer is None:
            raise StartError(f"{problem} after {timeout_s:.0f} s; logs are under {self.data}")
        return answer

    # ── closing ─────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Stop all nodes and release all resources. A second call does nothing.

        Nodes on a temporary folder are killed, because none of their data is kept.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for group in ("broker", "name-server"):
            ending = [p for p in self._processes.values() if p.spec.role == group]
            if not self._temporary:
                for process in ending:
                    process.ask_to_stop()
            for process in ending:
                if self._temporary:
                    process.kill()
                else:
                    process.stop()
        self._spawner.shutdown()
        self._ports.release()
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)


class _Restarted:
    """The nodes of a cluster, which a rolling restart stops and starts."""

    def __init__(self, cluster: Cluster) -> None:
        self.stop = cluster.stop
        self._cluster = cluster

    def start(self, name: str) -> None:
        """Start a node, and return when it listens."""
        self._cluster.start(name, wait=False)
