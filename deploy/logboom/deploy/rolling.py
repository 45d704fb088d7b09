"""A rolling restart: the nodes of a cluster on this machine, one at a time, each when it is safe.

A broker is put into maintenance first, so that its queues have other leaders before it stops; then it
is stopped and started, and the next one waits until all its replicas are in sync and it leads its
queues again. Each of the name servers waits until the one before it has caught up; the Raft leader is
the last of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from logboom.deploy.node_client import NodeClient
from logboom.deploy.process import NodeSpec
from logboom.wire.errors import InvalidRequest, Unavailable
from logboom.wire.features import SOFTWARE
from logboom.wire.restart_check import RestartRisk, majority_remains, restart_risks
from logboom.wire.view import BrokerView, View

if TYPE_CHECKING:
    from logboom.client import Client

Only: TypeAlias = Literal["brokers", "name-servers"]
ASK_S: Final = 1.0
PAUSE_S: Final = 0.1
LEADERLESS_S: Final = 5.0
"""Seconds that a broker in maintenance has to give its queues away; stopping it does the rest."""
PATIENCE_S: Final = 600.0
"""Seconds that a cluster has to become safe for the next restart, or a node to catch up."""
SHOWN: Final = 3
"""Risks that an error names."""


class RollingHost(Protocol):
    """Starts and stops the nodes of a cluster."""

    def stop(self, name: str) -> None:
        """Stop a node gracefully."""

    def start(self, name: str) -> None:
        """Start a node, and return when it listens."""


class RollingProgress(Protocol):
    """Shows how far a rolling restart is, such as a progress bar."""

    def to(self, done: int) -> None:
        """Show that so many nodes are done."""

    def say(self, text: str) -> None:
        """Show what is waited for."""


class _NoProgress:
    """Shows nothing."""

    def to(self, done: int) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""


class Interrupted(Exception):
    """The rolling restart was told to end, and has ended between two nodes; all of them run."""


class RollingRestart:
    """One rolling restart of the nodes that it is given."""

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        host: RollingHost,
        boom: Client,
        node_client: NodeClient,
        *,
        accept_unavailable: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Restart nothing yet.

        Args:
            nodes: All nodes of the cluster, which must run.
            host: Starts and stops them.
            boom: A client with the rights of an operator.
            node_client: Connections to single nodes.
            accept_unavailable: Restart a node also if it has the only replica of a queue, or too
                few others remain for writes, where the topic has no more replicas.
            patience_s: Seconds that any wait for the cluster may take.
        """
        self._nodes = {spec.id: spec for spec in nodes}
        self._host = host
        self._boom = boom
        self._node_client = node_client
        self.progress: RollingProgress = _NoProgress()
        """Is told each step."""
        self._accept = accept_unavailable
        self._patience_s = patience_s
        self._ends = False
        """True once no further node is to be restarted."""
        self._stopped: str | None = None
        """The node that is down now."""

    def interrupt(self) -> None:
        """End it between two nodes, as soon as none is stopped; for signal handlers."""
        self._ends = True

    def order(self, only: Only | None = None) -> list[str]:
        """Return the nodes in the order in which they are to be restarted.

        Name servers come last, unless the nodes run another release than this one: then they are
        the first, since newer brokers may ask them for what older ones do not know.
        """
        view = self._view()
        servers = [name for name, spec in self._nodes.items() if spec.role == "name-server"]
        servers.sort(key=lambda name: name == view.raft_leader)
        brokers = [name for name, spec in self._nodes.items() if spec.role == "broker"]
        if only is not None:
            return brokers if only == "brokers" else servers
        return servers + brokers if self._upgrades() else brokers + servers

    def check(self, names: Collection[str]) -> None:
        """Check, before anything is stopped, that every node can be restarted in turn.

        Raises:
            InvalidRequest: one never can, because a topic has too few replicas, or there are too few
                name servers.
            Unavailable: a node does not answer.
        """
        stats = self._node_client.stats(self._endpoints(), ASK_S)
        silent = [n for n, spec in self._nodes.items() if spec.endpoint not in stats]
        if silent:
            text = f"{', '.join(silent)} does not answer: bring it back first, with `cluster up`"
            raise Unavailable(text)
        if self._accept:
            return
        view = self._view()
        servers = [each.id for each in view.name_servers]
        for name in names:
            if self._nodes[name].role == "broker":
                self._refuse(name, [r for r in restart_risks(view, name) if r.lasting])
            elif not majority_remains(servers, servers, name):
                text = (
                    f"{name} cannot be restarted safely: the {len(servers) - 1} other name servers "
                    "are no majority. Add some, or accept that the metadata cannot change "
                    "meanwhile: --accept-unavailable"
                )
                raise InvalidRequest(text, node=name)

    def run(self, only: Only | None = None) -> Iterator[str]:
        """Restart the nodes, and yield the name of each that is done.

        Raises:
            InvalidRequest: a node can never be stopped safely, see `check`.
            Interrupted: `interrupt` was called; no node is stopped.
            StartError: a node did not start again.
            Unavailable: a node did not become safe to stop in time, or did not catch up.
        """
        left = self.order(only)
        self.check(left)
        done = 0
        while left:
            name = self._next(left)
            left.remove(name)
            self._restart(name, len(left))
            done += 1
            self.progress.to(done)
            yield name

    def _next(self, left: Sequence[str]) -> str:
        """Return the next node; which name server leads may have changed meanwhile."""
        role = self._nodes[left[0]].role
        leader = self._view().raft_leader
        same = [name for name in left if self._nodes[name].role == role]
        return next((name for name in same if name != leader), same[0])

    def _restart(self, name: str, left: int) -> None:
        if self._nodes[name].role == "broker":
            self._restart_broker(name)
        else:
            self._restart_name_server(name)
        if self._ends and left:
            raise Interrupted(f"ended after {name}; {left} nodes were not restarted, all run")

    # ── brokers ─────────────────────────────────────────────────────────────────────────────────

    def _restart_broker(self, name: str) -> None:
        self._wait_until_safe(name)
        epoch = self._broker(name).instance_epoch
        with self._maintenance(name):
            self._cycle(name)
            self._wait(name, lambda: self._behind(name, epoch))
        if self._broker(name).mode == "active":
            self._lead_again(name)

    @contextmanager
    def _maintenance(self, name: str) -> Iterator[None]:
        """Let a broker lead nothing, unless it is in some mode already or the level is too low."""
        view = self._view()
        if not view.features or self._broker(name).mode != "active":
            yield
            return
        self.progress.say(f"{name}: its queues get other leaders")
        self._boom.admin.set_broker_mode(name, "maintenance")
        try:
            self._try_until(lambda: not self._gives_away(name), LEADERLESS_S)
            yield
        finally:
            # After an error too, and after Ctrl-C: an operator did not ask for it to stay so.
            self._boom.admin.set_broker_mode(name, "active")

    def _gives_away(self, name: str) -> bool:
        """Return True while the broker leads a queue that another could lead."""
        return any(
            queue.leader == name and len(queue.isr) > 1
            for topic in self._view().topics
            for queue in topic.queues
        )

    def _wait_until_safe(self, name: str) -> None:
        def missing() -> str:
            view = self._view()
            if not self._broker(name, view).alive:
                return "not safe to stop yet: it is not registered"
            risks = [r for r in restart_risks(view, name) if not (r.lasting and self._accept)]
            self._refuse(name, [risk for risk in risks if risk.lasting])
            return f"not safe to stop yet: {_some(risks)}" if risks else ""

        self._wait(name, missing, unsafe=True)

    def _refuse(self, name: str, risks: Sequence[RestartRisk]) -> None:
        if risks:
            remedy = risks[0].remedy
            text = f"{name} cannot be restarted safely: {_some(risks)}. {remedy[:1].upper()}{remedy[1:]}"
            raise InvalidRequest(text, node=name)

    def _behind(self, name: str, epoch: int) -> str:
        """Return what a restarted broker still lacks; "" if it has all."""
        view = self._view()
        broker = self._broker(name, view)
        if not broker.alive or broker.instance_epoch <= epoch:
            return "registers"
        behind = sum(
            name not in queue.isr and name not in (*queue.adding, *queue.removing)
            for topic in view.topics
            for queue in topic.queues
            if name in queue.replicas
        )
        return f"catches up with {behind} queues" if behind else ""

    def _lead_again(self, name: str) -> None:
        """Let a broker lead the queues of which it is the preferred replica."""
        self.progress.say(f"{name}: leads its queues again")
        for topic in self._view().topics:
            for number, queue in enumerate(topic.queues):
                if queue.replicas[0] == name != queue.leader and name in queue.isr:
                    self._boom.admin.elect_leader(topic.name, number, name)

    def _broker(self, name: str, view: View | None = None) -> BrokerView:
        for broker in (view or self._view()).brokers:
            if broker.id == name:
                return broker
        raise InvalidRequest(f"{name} is not registered: see `logboom cluster status`")

    # ── name servers ────────────────────────────────────────────────────────────────────────────

    def _restart_name_server(self, name: str) -> None:
        def unsafe() -> str:
            # Some may have joined later, and run elsewhere.
            group = self._view().name_servers
            members = [each.id for each in group]
            if self._accept and not majority_remains(members, members, name):
                return ""
            self._node_client.learn(group)
            stats = self._node_client.stats([each.endpoint for each in group], ASK_S)
            serving = [
                each.id
                for each in group
                if each.endpoint in stats and stats[each.endpoint].counters.get("in_touch")
            ]
            if majority_remains(members, serving, name):
                return ""
            return f"not safe to stop yet: only {len(serving)} name servers serve"

        self._wait(name, unsafe, unsafe=True)
        self._cycle(name)
        goal = 0

        def missing() -> str:
            nonlocal goal
            servers = [s for s in self._nodes.values() if s.role == "name-server"]
            stats = self._node_client.stats([s.endpoint for s in servers], ASK_S)
            figures = {end: answer.counters for end, answer in stats.items()}
            goal = goal or max(
                (int(each.get("raft_commit_index", 0)) for each in figures.values()), default=0
            )
            own = figures.get(self._nodes[name].endpoint, {})
            applied = int(own.get("raft_applied_index", 0))
            if not own.get("in_touch") or applied < goal:
                return f"has applied {applied} of {goal} entries"
            return ""

        self._wait(name, missing)

    # ── both ────────────────────────────────────────────────────────────────────────────────────

    def _cycle(self, name: str) -> None:
        if self._ends:
            raise Interrupted(f"ended before {name} was stopped; all nodes run")
        self.progress.say(f"{name}: stops")
        self._stopped = name
        self._host.stop(name)
        self.progress.say(f"{name}: starts")
        self._host.start(name)
        self._stopped = None

    def _wait(self, name: str, missing: Callable[[], str], *, unsafe: bool = False) -> None:
        """Wait until nothing is missing; an interruption ends the wait.

        Raises:
            Unavailable: it is still missing after all this time.
            Interrupted: it was to become safe to stop, and is not wanted any more.
        """
        last = ""

        def done() -> bool:
            nonlocal last
            last = missing()
            if last:
                self.progress.say(f"{name}: {last}")
            return not last or self._ends

        self._try_until(done, self._patience_s)
        if not last:
            return
        if self._ends:
            if unsafe:
                raise Interrupted(f"ended before {name} was stopped; all nodes run")
            return
        text = f"{name} {last} after {self._patience_s:.0f} s"
        remedy = "see `logboom doctor`" if unsafe else "look at its log"
        raise Unavailable(f"{text}: {remedy}; no other node was stopped", node=name)

    def _try_until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            # Other processes change without notifying us, so polling is the only way.
            time.sleep(PAUSE_S)

    def _endpoints(self) -> list[str]:
        return [spec.endpoint for spec in self._nodes.values() if spec.id != self._stopped]

    def _view(self) -> View:
        """Return the newest metadata that a node has."""
        views = self._node_client.views(self._endpoints(), ASK_S)
        if not views:
            raise Unavailable("no node of the cluster answers: see `logboom cluster status`")
        return max(views.values(), key=lambda view: view.version)

    def _upgrades(self) -> bool:
        """Return True if a node runs another release than this one."""
        try:
            nodes = self._boom.admin.versions().nodes
        except InvalidRequest:
            # The Raft leader is of a release that does not know the question.
            return True
        return any(node.software != SOFTWARE for node in nodes)


def _some(risks: Sequence[RestartRisk]) -> str:
    shown = ", ".join(f"{risk.topic}/{risk.queue} {risk.kind}" for risk in risks[:SHOWN])
    return shown if len(risks) <= SHOWN else f"{shown} and {len(risks) - SHOWN} more"
