"""The roles of this broker's replicas, derived from the metadata: leader, follower, or none.

The broker acts as a leader only while it is registered, by metadata that is at least as new as its
registration, and only in a newer epoch than any before. Otherwise it could act on leaderships of an
earlier process (Q2).

Thousands of queues change their roles at once when a broker registers. They do so in slices, a turn
each, so that heartbeats and requests go on meanwhile. Until the last one, the metadata counts as known
up to the version before (`AppliedMetadata`). What changes meanwhile comes after that, so that a version
is reached though changes never end. Replicas that are to be opened are no part of this: the broker
leads none of them yet, and thousands of new queues would keep it from its lease. A broker that is
fenced leads nothing from that turn on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import Position
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replication.replica_fetcher import ReplicaFetchers
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.replication.replicate_handler import ReplicateHandler
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.nodes.requests.pull_handler import PullHandler
from logboom.nodes.turn import LOOKED_PER_STEP, BrokerTurn, Figures, Service
from logboom.wire.actor import note
from logboom.wire.view import QueueView, TopicView, first_epoch

NAMED_ASIDE: Final = 20
"""Topics kept aside that STATS names."""

QUEUES_AT_ONCE: Final = 128
"""Queues that are given their roles in one turn."""


class ReplicaRoles(Service):
    """Gives each replica its role."""

    def __init__(
        self,
        context: BrokerContext,
        produce_handler: ProduceHandler,
        pull_handler: PullHandler,
        replicate_handler: ReplicateHandler,
        fetchers: ReplicaFetchers,
        repair: ReplicaRepair,
        on_applied: Callable[[list[str], BrokerTurn], None],
    ) -> None:
        """Create roles that are unknown; `on_applied` gets topics whose queues have their roles."""
        self._me = context.me
        self._recoveries = 0
        """Those that the delisted replicas have outlived."""
        self._applied = context.applied
        self._on_applied = on_applied
        self._pending: dict[str, range] = {}
        """Changed topics of which replicas are open, in the order of their changes, and their queues
        that have yet to get their roles."""
        self._pending_version = -1
        """Version that is reached once these have them."""
        self._later: dict[str, None] = {}
        """Those that have changed since, other than those that are pending as a whole."""
        self._new: dict[str, range] = {}
        """Topics with queues that were not open when they changed, and these queues."""
        self._worked = False
        """True if this turn has done a slice."""
        self._queues = context.queues
        self._routes = context.routes
        self._registration = context.registration
        self._stats = context.stats
        self._produce_handler = produce_handler
        self._pull_handler = pull_handler
        self._replicate_handler = replicate_handler
        self._fetchers = fetchers
        self._repair = repair
        self._settings = context.settings
        self._delisted: dict[QueueKey, float] = {}
        """Queue that was moved away → when this was seen; its replica is deleted after the grace."""
        self.aside: dict[QueueKey, str] = {}
        """Replicas that the metadata does not contain and whose deletion it does not show → the name of
        their topic, "" if it is not known; they are kept until an operator decides (R15)."""
        self._swept: list[tuple[int, int]] | None = None
        """The lost topic ids by which this registration has swept; None: it has not."""
        self.closed = False
        """The node is about to end and leads nothing any longer."""

    @property
    def _may_follow(self) -> bool:
        """True if the metadata is at least as new as this process.

        Older metadata may still show the roles of an earlier process of this broker. If the broker
        followed an old leader by it, that leader would count its position and acknowledge messages
        that the new leader never had.
        """
        registration = self._registration
        return registration.registered and self._routes.version >= registration.version

    @property
    def _may_lead(self) -> bool:
        """True if the metadata contains the registration of this process (Q2)."""
        if not self._may_follow or self.closed:
            return False
        registration, routes = self._registration, self._routes
        known = routes.brokers.get(self._me)
        return known is not None and known.instance_epoch == registration.instance_epoch

    @property
    def opened(self) -> int:
        """Number of open replicas, without those that the metadata does not give this broker."""
        return len(self._queues.replicas) - len(self._delisted) - len(self.aside)

    def resign(self, turn: BrokerTurn) -> None:
        """Lead nothing any longer, since the instance epoch is over."""
        self._swept = None
        for replica in list(self._queues.led.values()):
            self._none(replica, turn)

    def fenced(self, turn: BrokerTurn) -> None:
        """Lead nothing any longer."""
        self.resign(turn)

    def learned(self, topics: Sequence[str], groups: Sequence[str], turn: BrokerTurn) -> None:
        """Give the queues of changed topics their roles, as many at once as one turn may."""
        self.apply(topics, turn)

    def figure_steps(self, now: float) -> Iterator[Figures]:
        """Yield, after some steps, how many replicas there are here, and how many of them lead."""
        under_replicated = below_min = unreplicated = 0
        led = [*self._queues.led.values()]
        for number, replica in enumerate(led, 1):
            leading = replica.leading
            if leading is not None:
                under_replicated += leading.under_replicated
                below_min += not leading.enough_in_sync
                unreplicated += replica.end.offset - replica.hw.offset
            if number % LOOKED_PER_STEP == 0:
                yield {}
        yield {
            "replicas": len(self._queues.replicas),
            "leading": len(led),
            "under_replicated": under_replicated,
            "below_min_in_sync": below_min,
            "messages_unreplicated": unreplicated,
            "replicas_to_delete": len(self._delisted),
            "replicas_aside": len(self.aside),
            "topics_aside": self._topics_aside(),
        }

    def _topics_aside(self) -> str:
        """Return ids, and names as far as they are known, of topics whose replicas are kept aside."""
        names: dict[int, str] = {}
        for (topic_id, _), name in self.aside.items():
            names[topic_id] = name or names.get(topic_id, "")
        told = [f"{each} ({name})" if name else str(each) for each, name in sorted(names.items())]
        more = [f"and {len(told) - NAMED_ASIDE} more"] if len(told) > NAMED_ASIDE else []
        return ", ".join([*told[:NAMED_ASIDE], *more])

    def apply_all(self, turn: BrokerTurn) -> None:
        """Give every queue its role again."""
        self.apply(list(self._routes.topics), turn)

    def apply(self, names: Iterable[str], turn: BrokerTurn) -> None:
        """Give the queues of changed or removed topics their roles, in this turn and the next ones."""
        if self._swept != self._routes.lost_topic_ids and self._may_lead:
            self._swept = self._routes.lost_topic_ids
            self._sweep(turn)
            names = [*names, *self._routes.topics]
        if self._recoveries != self._routes.recoveries:
            # What moved away before may be back by metadata that lacks the move.
            self._recoveries = self._routes.recoveries
            self._delisted.clear()
        changed = self._sort_out(names)
        if self._pending:
            for name in changed:
                if name in self._pending and self._pending[name].start == 0:
                    self._pending[name] = self._known(name)
                else:
                    self._later[name] = None
        else:
            self._begin(changed)
        self._advance(turn)

    def _sort_out(self, names: Iterable[str]) -> list[str]:
        """Return those of the changed topics of which replicas are open, and note what is new."""
        found: list[str] = []
        for name in names:
            topic, held = self._routes.topics.get(name), self._queues.held(name)
            if held:
                found.append(name)
            if topic is not None and len(held) < len(topic.queues):
                numbers = (each.queue for each in held if each.topic_id == topic.id)
                self._new[name] = range(max(numbers, default=-1) + 1, len(topic.queues))
            else:
                self._new.pop(name, None)
        return found

    def _known(self, name: str) -> range:
        """Return the queues of a changed topic that are not new; of one that was deleted, all."""
        topic = self._routes.topics.get(name)
        if topic is None:
            return range(len(self._queues.held(name)))
        new = self._new.get(name)
        return range(len(topic.queues) if new is None else new.start)

    def _begin(self, names: Iterable[str]) -> None:
        """Let the queues of these topics get their roles next, after which all have this version's."""
        self._pending = {name: self._known(name) for name in names}
        self._pending_version = self._routes.version

    def _advance(self, turn: BrokerTurn) -> None:
        """Do one slice, unless this turn has done one."""
        if self._worked and (self._pending or self._new):
            return
        self._worked = True
        room = QUEUES_AT_ONCE
        # What changes all the time does not hold up what is new.
        changed, whole = self._take_slice(self._pending, room - room // 2 if self._new else room)
        if not self._pending:
            # Before the last ones get their roles, which are under this lease.
            reached = self._pending_version if self._later else self._routes.version
            self._applied.reach(reached)
            later, self._later = self._later, {}
            self._begin(later)
        self._apply_slice(changed, turn)
        room -= sum(map(len, changed.values()))
        opened, complete = self._take_slice(self._new, max(room, QUEUES_AT_ONCE // 2))
        self._apply_slice(opened, turn)
        self._applied.opens = bool(self._new)
        self._on_applied([*whole, *complete], turn)

    def _apply_slice(self, slice_: dict[str, range], turn: BrokerTurn) -> None:
        for name, queues in slice_.items():
            topic = self._routes.topics.get(name)
            if topic is not None:
                self._apply_topic(topic, queues, turn)
                continue
            for replica in self._queues.held(name) if self._may_follow else ():
                self._end(replica, turn)

    def _take_slice(
        self, pending: dict[str, range], room: int
    ) -> tuple[dict[str, range], list[str]]:
        """Take the queues of one slice, by topic; return them, and the topics that are done with it."""
        slice_: dict[str, range] = {}
        for name, queues in pending.items():
            if room <= 0:
                break
            # A deleted topic goes as a whole, and so do the roles of a compacted one: its followers
            # must know that they lack copies before they report a position (Q3).
            topic = self._routes.topics.get(name)
            parts = topic is not None and not topic.config.compaction
            slice_[name] = queues[:room] if parts else queues
            room -= max(1, len(slice_[name]))
        whole: list[str] = []
        for name, queues in slice_.items():
            left = pending[name][len(queues) :]
            if left:
                pending[name] = left
            else:
                del pending[name]
                whole.append(name)
        return slice_, whole

    def _sweep(self, turn: BrokerTurn) -> None:
        """Remove the queues that were deleted in the meantime.

        This is done once per registration, and when less is lost than before.
        """
        for replica in self._queues:
            if replica.topic_id not in self._routes.names:
                self._end(replica, turn)

    def _end(self, replica: Replica, turn: BrokerTurn) -> None:
        """Delete a replica whose topic was deleted; keep one aside whose topic is only unknown (R15)."""
        if self._routes.was_deleted(replica.topic_id):
            self._drop(replica, turn)
        else:
            self._keep_aside(replica, turn)

    def _keep_aside(self, replica: Replica, turn: BrokerTurn) -> None:
        """Do nothing any more with a replica that nothing in the metadata explains, but keep it."""
        self._none(replica, turn)
        self._delisted.pop(replica.key, None)
        if replica.key in self.aside:
            return
        self.aside[replica.key] = replica.topic
        turn.out.notes.append(
            note(
                "replica_kept_aside",
                topic=replica.topic or f"id {replica.topic_id}",
                queue=replica.queue,
            )
        )
        if replica.topic_id not in self._routes.names:
            # Another topic may have its name now.
            self._queues.unname(replica)

    def _apply_topic(self, topic: TopicView, queues: range, turn: BrokerTurn) -> None:
        for older in self._queues.held(topic.name):
            if older.topic_id != topic.id:
                # The topic was deleted and created again under the same name, possibly with fewer
                # queues.
                self._end(older, turn)
        # One that was made anew meanwhile may have fewer.
        for number in queues[: max(0, len(topic.queues) - queues.start)]:
            view = topic.queues[number]
            replica = self._queues.replicas.get((topic.id, number))
            if self._me in view.replicas:
                if replica is not None and replica.key in self._delisted:
                    # What is left was not followed meanwhile: it begins anew (M4).
                    self._drop(replica, turn)
                    replica = None
                if replica is not None:
                    self.aside.pop(replica.key, None)
                if replica is None:
                    replica = self._queues.create(topic.id, number, topic.name)
                    self._queues.touch(replica)
                elif replica.topic != topic.name:
                    self._queues.name(replica, topic.name)
                replica.restoring = topic.restoring
                self._apply_queue(replica, topic, view, turn)
            elif replica is not None:
                self._delist(replica, turn)

    def _delist(self, replica: Replica, turn: BrokerTurn) -> None:
        """Do nothing any more with a replica that was moved away, and delete it after the grace (M4).

        Metadata that is older than this process may be from before the replica was added.
        """
        if not self._may_follow:
            self._none(replica, turn)
        elif self._moved_unseen(replica):
            self._keep_aside(replica, turn)
        else:
            self._none(replica, turn)
            self._delisted.setdefault(replica.key, turn.mono)

    def _moved_unseen(self, replica: Replica) -> bool:
        """True if the replica may have been added by a move that the name servers have lost (R15).

        Since their last recovery no leader has written to it.
        """
        recoveries = self._routes.recoveries
        written = recoveries > 0 and replica.end > Position(0)
        return written and replica.epochs.last < first_epoch(recoveries)

    def step(self, turn: BrokerTurn) -> None:
        """Do the next slice, and delete the replicas that were moved away for longer than the grace."""
        if self._pending or self._new:
            self._advance(turn)
        self._worked = False
        if not self._delisted or not self._may_follow:
            return
        for key, since in list(self._delisted.items()):
            if turn.mono < since + self._settings.replica_delete_grace_s:
                # The others were seen later.
                break
            replica = self._queues.replicas.get(key)
            if replica is not None:
                self._drop(replica, turn)
            self._delisted.pop(key, None)

    def deadline(self) -> float:
        """Return when the next slice is due, at once, or the next replica is to be deleted."""
        if self._pending or self._new:
            return float("-inf")
        if not self._delisted or not self._may_follow:
            return float("inf")
        return next(iter(self._delisted.values())) + self._settings.replica_delete_grace_s

    def _apply_queue(
        self, replica: Replica, topic: TopicView, view: QueueView, turn: BrokerTurn
    ) -> None:
        if view.leader_epoch < replica.leader_epoch:
            return
        if view.leader == self._me:
            if self._may_lead:
                self._lead(replica, topic, view, turn)
            elif replica.leading is not None:
                self._none(replica, turn)
            return
        if not self._may_follow:
            self._none(replica, turn)
            return
        leader = self._routes.brokers.get(view.leader) if view.leader is not None else None
        if leader is None:
            replica.leader_epoch = view.leader_epoch
            self._none(replica, turn)
        elif (
            replica.role != "follower"
            or replica.leader != leader.id
            or replica.leader_epoch != view.leader_epoch
        ):
            self._follow(replica, leader.id, leader.endpoint, view.leader_epoch, turn)

    def _lead(self, replica: Replica, topic: TopicView, view: QueueView, turn: BrokerTurn) -> None:
        leading = replica.leading
        if leading is None or leading.epoch != view.leader_epoch:
            self._fetchers.unfollow(replica)
            if leading is not None:
                self._produce_handler.lost(replica, leading, turn)
            leading = Leadership(self._me, view.leader_epoch, replica.end, turn.mono)
            replica.role, replica.leader, replica.leading = "leader", self._me, leading
            replica.leader_epoch = view.leader_epoch
            # After an unclean election the windows may contain more than the log.
            replica.windows.cut(replica.end)
            replica.parked.rewind()
            self._queues.led[replica.key] = replica
            self._queues.led_changed(replica)
            self._stats.count("leaderships")
            turn.out.notes.append(
                note(
                    "leadership_gained",
                    topic=topic.name,
                    queue=replica.queue,
                    epoch=view.leader_epoch,
                )
            )
            leading.take_view(view, topic.config, self._routes.version, turn.mono)
            self._replicate_handler.role_changed(replica, turn)
            self._pull_handler.role_changed(replica, turn)
        else:
            before, gone = leading.isr, leading.followers.keys() - view.replicas
            leading.take_view(view, topic.config, self._routes.version, turn.mono)
            if gone:
                # Who has no replica any more gets nothing more, also if it goes on asking (A7).
                self._replicate_handler.role_changed(replica, turn)
            if leading.isr != before:
                self._stats.counters["isr_changes.expand"] += bool({*leading.isr} - {*before})
                self._stats.counters["isr_changes.shrink"] += bool({*before} - {*leading.isr})
        self._queues.recount(replica)

    def _follow(
        self, replica: Replica, leader: str, endpoint: str, epoch: int, turn: BrokerTurn
    ) -> None:
        self._end_leading(replica, turn, leader)
        replica.role, replica.leader = "follower", leader
        replica.leader_epoch = epoch
        replica.leader_hw = None
        if self._repair.may_follow(replica):
            self._fetchers.follow(replica, leader, endpoint)
        else:
            self._fetchers.unfollow(replica)
        self._pull_handler.role_changed(replica, turn)

    def refetch(self, replica: Replica) -> None:
        """Let a damaged replica follow again, after it was truncated."""
        leader = self._routes.brokers.get(replica.leader) if replica.leader is not None else None
        if replica.role == "follower" and leader is not None:
            self._fetchers.follow(replica, leader.id, leader.endpoint)

    def _none(self, replica: Replica, turn: BrokerTurn) -> None:
        self._fetchers.unfollow(replica)
        self._end_leading(replica, turn)
        if replica.role != "none":
            replica.role, replica.leader = "none", None
            self._pull_handler.role_changed(replica, turn)

    def _end_leading(self, replica: Replica, turn: BrokerTurn, leader: str | None = None) -> None:
        leading = replica.leading
        if leading is None:
            return
        turn.out.notes.append(
            note(
                "leadership_lost",
                topic=replica.topic,
                queue=replica.queue,
                epoch=leading.epoch,
                leader=leader,
            )
        )
        replica.leading = None
        replica.role, replica.leader = "none", None
        self._queues.led.pop(replica.key, None)
        self._queues.led_changed(replica)
        self._produce_handler.lost(replica, leading, turn)
        self._replicate_handler.role_changed(replica, turn)
        self._pull_handler.role_changed(replica, turn)

    def _drop(self, replica: Replica, turn: BrokerTurn) -> None:
        self._none(replica, turn)
        self._delisted.pop(replica.key, None)
        self.aside.pop(replica.key, None)
        self._repair.forget(replica)
        self._queues.drop(replica, turn)
        self._pull_handler.role_changed(replica, turn)
        self._stats.count("dropped_replicas")
        turn.out.notes.append(note("replica_deleted", topic=replica.topic, queue=replica.queue))
