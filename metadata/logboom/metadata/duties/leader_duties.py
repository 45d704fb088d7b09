"""The duties of a Raft leader besides committing.

They are its term, the brokers' sessions, the return of leaderships to preferred replicas, the
assignment of queues to consumer groups, the moves of replicas, the users of its configuration, and
the ends of keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

from logboom.metadata.access.initial_keys import InitialKeys
from logboom.metadata.config import LEASE_MS, NameServerConfig
from logboom.metadata.duties.access_duties import AccessDuties
from logboom.metadata.duties.leader_balancer import LeaderBalancer
from logboom.metadata.duties.listener_notes import ListenerNotes
from logboom.metadata.duties.liveness import Liveness
from logboom.metadata.duties.move_planner import MovePlanner
from logboom.metadata.groups.group_targets import GroupTargets
from logboom.metadata.raft.log_commands import AnyLogCommand, decode_entry
from logboom.metadata.raft.raft_config import SubmitOutcome
from logboom.metadata.raft.raft_links import Announced
from logboom.metadata.raft.raft_node import RaftNode
from logboom.metadata.raft.submissions import OnResult
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables.cluster_state import BrokerRegistration
from logboom.wire.actor import Instant
from logboom.wire.commands import FenceBroker, NewTerm
from logboom.wire.features import EARLIEST, FEATURES
from logboom.wire.settings import LiveSettings


class LeaderDutiesHost(Protocol):
    """The name server, as its duties see it."""

    raft: RaftNode
    state: StateMachine
    settings: LiveSettings

    def submit(self, command: AnyLogCommand, on_result: OnResult) -> None:
        """Submit a command of this node's own to the log."""

    def new_cluster_id(self) -> str:
        """Draw a random id, which is used only if the cluster has none yet."""

    def announced(self) -> Mapping[str, Announced]:
        """Return the listeners that each name server has announced, this one's included."""

    def journals(self) -> Mapping[str, str]:
        """Return the ids of the journals that name servers have announced, this one's included."""

    def log_time_ms(self, now: float) -> int:
        """Return the time of the Raft log at a monotonic time of this node."""


class LeaderDuties:
    """The duties of one name server: idle on followers; a leader begins with `NewTerm` (R13)."""

    def __init__(self, config: NameServerConfig, keys: InitialKeys, node: LeaderDutiesHost) -> None:
        self.liveness = Liveness()
        self._id = config.id
        self._node = node
        self._rebalance = LeaderBalancer(node.settings)
        self._targets = GroupTargets()
        self._listener_notes = ListenerNotes()
        self._access = AccessDuties(keys)
        self.moves = MovePlanner(node)
        self._announced = 0
        """Term whose `NewTerm` was submitted."""
        self._begun = 0
        """Term whose `NewTerm` was applied here as leader."""
        self._turned: float | None = None
        self._now = 0.0

    @property
    def serving(self) -> bool:
        """True if this node leads and its term has begun in the replicated state."""
        raft = self._node.raft
        return raft.is_leader and raft.term == self._begun == self._node.state.cluster.term

    def wake(self, now: float) -> None:
        """Begin a turn; after a stall of more than a lease, give every broker a full session."""
        away_s = 0.0 if self._turned is None else now - self._turned
        self._turned = self._now = now
        self._targets.begin_turn()
        self.moves.wake(now)
        if away_s > LEASE_MS / 1000:
            self.liveness.grant_all(self._node.state.cluster.brokers.values(), now)
        else:
            self.liveness.forgive(away_s, now)

    def follow(self, now: float) -> None:
        """Follow a change of brokers in the replicated state."""
        self.liveness.follow(self._node.state.cluster.brokers.values(), now)
        self.moves.follow(now)

    def heard(self, broker: BrokerRegistration, unheard: Iterable[str], now: float) -> bool:
        """Take a heartbeat of the current registration; False if it is already being fenced."""
        self._rebalance.heard(broker.id, unheard)
        return self.liveness.heard(broker, now)

    def perform(self, now: Instant) -> None:
        """Begin the term, fence silent brokers, return leaderships, plan moves, allocate."""
        raft, cluster = self._node.raft, self._node.state.cluster
        if not raft.is_leader:
            return
        if self._announced != raft.term:
            self._announced = raft.term
            features = FEATURES if self._founds() else EARLIEST
            begin = NewTerm(raft.term, self._id, self._node.new_cluster_id(), now.wall_ms, features)
            self._node.submit(begin, partial(self._term_begun, raft.term))
        if not self.serving:
            return
        for broker, epoch in self.liveness.take_expired(now.mono):
            fence = FenceBroker(broker, epoch, cluster.term, now.wall_ms)
            self._node.submit(fence, partial(self._fenced, broker, epoch))
        for move in self._rebalance.take_moves(cluster, now.mono, now.wall_ms):
            self._node.submit(move, _forget)
        for note in self._listener_notes.take(
            cluster, self._node.announced(), self._node.journals()
        ):
            self._node.submit(note, partial(self._noted, note.name_server))
        for target in self._targets.take(cluster, now.mono, now.wall_ms):
            group = cluster.groups.by_name[target.group]
            self._node.submit(target, partial(self._target_set, group.id))
        admission = self._access.take_admission(cluster, now.wall_ms)
        if admission is not None:
            self._node.submit(admission, self._access.admitted)
        ends = self._access.take_ends(cluster, self._node.log_time_ms(now.mono))
        if ends is not None:
            self._node.submit(ends, self._access.ended)
        self.moves.perform(now)

    def _founds(self) -> bool:
        """Return True if this leader's term is the cluster's first.

        A founding that is in the log but not applied yet may be that of older name servers, which
        could not read what only a new cluster begins with.
        """
        earlier = map(decode_entry, self._node.raft.earlier_commands())
        return not self._node.state.cluster.cluster_id and not any(
            isinstance(entry.command, NewTerm) for entry in earlier
        )

    def deadline(self) -> float | None:
        """Return when `perform` is due next."""
        if not self.serving:
            return None
        cluster = self._node.state.cluster
        wanted = [
            self.liveness.deadline(),
            self._rebalance.deadline(cluster),
            self._targets.deadline(cluster),
            self.moves.deadline(),
        ]
        wait_s = self._access.wait_s(cluster, self._node.log_time_ms(self._now))
        if wait_s is not None:
            wanted.append(self._now + wait_s)
        return min((at for at in wanted if at is not None), default=None)

    def _term_begun(self, term: int, outcome: SubmitOutcome) -> None:
        if outcome.applied:
            self._begun = term
            self.liveness.grant_all(self._node.state.cluster.brokers.values(), self._now)
            self._rebalance.restart(self._now)
            self._targets.restart()
            self.moves.restart(self._now)
            self._access.restart()
        elif self._announced == term:
            self._announced = 0

    def _target_set(self, group_id: int, _outcome: SubmitOutcome) -> None:
        self._targets.ended(group_id)

    def _noted(self, name: str, _outcome: SubmitOutcome) -> None:
        self._listener_notes.ended(name)

    def _fenced(self, broker: str, epoch: int, outcome: SubmitOutcome) -> None:
        self.liveness.fence_ended(broker, epoch, applied=outcome.applied)


def _forget(_outcome: SubmitOutcome) -> None:
    """Ignore the outcome: the next scan proposes a move that has failed again."""
