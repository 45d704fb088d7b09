"""Transactions among all others, in the queues that all use, while everything fails.

What a commit lists is released once on each queue and seen there at once, in the order of the
decisions; nothing else that was parked is ever read; what nobody decides ends by a proposed abort;
offsets move with the commit and with nothing else. A half message is either, whoever asks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from logboom.nodes.log.keys import queue_of
from logboom.wire.actor import Call
from logboom.wire.batch import control_body, peek, released_from
from logboom.wire.commands import CommandResult
from logboom.wire.group_commands import AlterGroup
from logboom.wire.group_view import GroupConfig
from logboom.wire.head import Attribute, ControlKind
from logboom.wire.transactions import EntryPosition, decided_body
from tests.sim.cast.transaction_client import GROUP, Committed, HalfClient, TransactionClient
from tests.sim.faults.hand import Hand
from tests.sim.faults.networks import NetworkFaults
from tests.sim.faults.nodes import NodeFaults
from tests.sim.judges.history import History, Queue, values_of
from tests.sim.world.moments import Moment
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

REST_S: Final = (0.05, 0.2, 0.5)
"""Between two transactions, on average; each seed has one of these."""
MOMENTS: Final[tuple[Moment, ...]] = (
    "decision asked",
    "decision told",
    "decision told",
    "decision reported",
)
PLOT_S: Final = (0.1, 1.0)
"""Between two ambushes."""
SETTLE_S: Final = 0.5


class Transactions:
    """A guest of a run: four clients, those who lie in wait for them, and what must hold."""

    def __init__(
        self,
        world: World,
        history: History,
        endpoints: Sequence[str],
        queues: Sequence[Queue],
        hand: Hand,
        rng: random.Random,
    ) -> None:
        self._world = world
        self._history = history
        self._queues = list(queues)
        self._kept = [queue for queue in queues if queue.topic not in history.kept_bytes]
        self._rng = rng
        self._hand = hand
        self._nodes = NodeFaults(hand)
        self._network = NetworkFaults(hand)
        self._rest_s = rng.choice(REST_S)
        self._working = False
        self._grouped = False
        history.releases = True
        count = world.trace.count
        self._clients = [
            TransactionClient(
                name,
                endpoints,
                random.Random(rng.random()),
                history,
                count,
                self._done,
                place,
                place == 0,
            )
            for place, name in enumerate(("txn-1", "txn-2", "txn-3"))
        ]
        halves = HalfClient("half-1", endpoints, random.Random(rng.random()), history, count)
        self._halves = halves
        everybody: list[TransactionClient | HalfClient] = [*self._clients, halves]
        for client in everybody:
            world.add(client.name, "client", {}, partial(_itself, client))

    def begin(self) -> None:
        """Start to work."""
        self._working = True
        self._call(self._halves.name, self._make_group)
        self._work()
        self._plot()

    def _make_group(self) -> None:
        def made(result: CommandResult) -> None:
            assert not result.code, result
            self._grouped = True

        self._halves.propose(AlterGroup(GROUP, GroupConfig(), None, True, 1), made)

    def rest(self) -> None:
        """Begin nothing new. Clocks are set right: by one that is an hour behind, all that nobody
        decides would wait for an hour."""
        self._working = False
        for machine in self._world.machines.values():
            machine.clock.wall_ahead_ms = 0
            if machine.process is not None:
                machine.process.wake()
        self._clean()

    def _clean(self) -> None:
        self._call(self._halves.name, self._halves.clean)
        self._world.scheduler.after(2.0, self._clean)

    def _call(self, name: str, action: Callable[[], None]) -> None:
        process = self._world.machines[name].process
        assert process is not None
        process.deliver(Call(action))

    def _work(self) -> None:
        if not self._working:
            return
        self._world.scheduler.after(self._rng.expovariate(1 / self._rest_s), self._work)
        if not self._grouped:
            return
        if self._rng.random() < 0.3:
            queue = self._rng.choice(self._queues)
            self._call(self._halves.name, partial(self._halves.work, queue))
        else:
            client = self._rng.choice(self._clients)
            self._call(client.name, partial(client.work, self._queues))

    # -- ambushes ----------------------------------------------------------------------------

    def _plot(self) -> None:
        """Lie in wait for the next step of some decision."""
        hand = self._hand
        if hand.over:
            return
        moment = hand.rng.choice(MOMENTS)
        blow = hand.rng.choice(
            (self._down, self._followers, self._raft_leader, self._cut_off, self._freeze)
        )
        if moment == "decision told" and hand.rng.random() < 0.7:
            blow = partial(self._when_copied, hand.rng.choice((self._down, self._cut_off)))

        def act(who: str) -> None:
            hand.note("ambush", f"{moment}: {who}")
            hand.count(f"ambush: {moment}")
            blow(who)
            hand.later(hand.rng.uniform(*PLOT_S), self._plot)

        hand.await_moment(moment, act)

    def _when_copied(self, blow: Callable[[str], None], who: str) -> None:
        """A part of what the leader releases has come to a follower."""
        hand = self._hand

        def copied(leader: str) -> None:
            if leader == who:
                hand.count("ambush: release copied")
                blow(leader)
            else:
                hand.await_moment("copied", copied)

        hand.await_moment("copied", copied)

    def _down(self, who: str) -> None:
        self._hand.down(who)

    def _followers(self, who: str) -> None:
        for name in self._hand.names("broker"):
            if name != who:
                self._hand.down(name)

    def _raft_leader(self, _who: str) -> None:
        leader = self._world.observer.raft_leader
        if leader in self._hand.names("name-server"):
            self._hand.down(leader)

    def _cut_off(self, who: str) -> None:
        self._network.cut_off(who)

    def _freeze(self, who: str) -> None:
        self._nodes.freeze(who)

    # -- what must come true -----------------------------------------------------------------

    def _done(self, who: str, queue: Queue, values: list[bytes]) -> None:
        """A leader says that it has released these, below its HW."""
        if queue not in self._kept:
            return
        core = self._world.broker(who)
        replica = core.queues.by_name.get(queue) if core is not None else None
        if replica is None or replica.leading is None:
            return  # it has crashed, or been replaced, since it said so
        if who == self._world.bad_disk and self._world.trace.totals["flipped bits"]:
            return  # it reads from memory what its disk may have lost; the end compares all
        stored = values_of(queue, self._log(who, queue))[1][: replica.readable.offset]
        missing = set(values) - set(stored)
        if missing:
            raise BrokenProperty(
                "what is carried out can be read", f"{queue} at {who}: {sorted(missing)}"
            )

    def _log(self, broker: str, queue: Queue) -> dict[bytes, bytes]:
        topic = self._world.observer.topics[queue.topic]
        storage = self._world.machines[broker].storage
        assert storage is not None
        return {
            key: entry
            for key, entry in storage.content("log").items()
            if queue_of(key) == (topic.id, queue.number)
        }

    def _parked(self) -> list[str]:
        """Brokers with rows of what waits, or of a release that is not complete.

        A replica that was moved away keeps its rows until it is deleted.
        """
        found = set()
        observer = self._world.observer
        for machine in self._world.nodes("broker"):
            assert machine.storage is not None
            for key in machine.storage.content("parked"):
                topic_id, number = queue_of(key)
                name = observer.names.get(topic_id, "")
                if not (key[8:9] in b"pathm" and Queue(name, number) in self._queues):
                    continue
                if machine.name in observer.topics[name].queues[number].replicas:
                    found.add(f"{machine.name} {name}/{number}")
        return sorted(found)

    def _undecided(self) -> list[int]:
        state = self._world.newest_state()
        return list(state.transactions.decisions) if state is not None else [-1]

    def settled(self) -> bool:
        """Whether all was decided, carried out and reported, and nothing waits."""
        busy = any(client.busy for client in self._clients) or self._halves.unsettled
        return not (busy or self._parked() or self._undecided())

    def why_not(self) -> str:
        """What `settled` waits for."""
        busy = [(client.name, client.busy, client.unsettled) for client in self._clients]
        halves = self._halves.unsettled
        return f"busy {busy} {halves}, parked {self._parked()}, decisions {self._undecided()}"

    def compare(self) -> None:
        """All or nothing, on every queue."""
        committed = sorted(
            (c for client in self._clients for c in client.committed), key=lambda c: c.number
        )
        sequences = [(c.app_id, c.sequence) for c in committed]
        if len(set(sequences)) < len(sequences):
            raise BrokenProperty("a sequence is committed once", str(sequences))
        listed = {v for c in committed for values in c.values.values() for v in values}
        allowed = listed | {v for v, said in self._halves.outcomes.items() if "aborted" not in said}
        mine = tuple(client.name.encode() + b"/" for client in (*self._clients, self._halves))
        for value in self._history.released:
            if value.startswith(mine) and value not in allowed:
                raise BrokenProperty("nothing unlisted is ever read", f"{value!r}")
        self._compare_halves()
        for queue in self._kept:
            self._compare_queue(queue, committed, mine)
        self._compare_offsets(committed)
        self._world.trace.count("transactions", len(committed))

    def _compare_halves(self) -> None:
        for value, said in self._halves.outcomes.items():
            if len(said - {"unknown"}) > 1:
                raise BrokenProperty("a half message ends one way", f"{value!r}: {said}")

    def _compare_queue(
        self, queue: Queue, committed: Sequence[Committed], mine: tuple[bytes, ...]
    ) -> None:
        topic = self._world.observer.topics[queue.topic]
        log = self._log(topic.queues[queue.number].replicas[0], queue)
        start, values = values_of(queue, log)
        offsets = {value: start + at for at, value in enumerate(values) if value.startswith(mine)}
        halves = {value for value in offsets if value in self._halves.outcomes}
        for value, said in self._halves.outcomes.items():
            if (
                self._halves.queues[value] == queue
                and said == {"committed"}
                and value not in halves
            ):
                raise BrokenProperty("what is committed is published", f"{queue} {value!r}")
            if said == {"aborted"} and value in halves:
                raise BrokenProperty("what is aborted is not published", f"{queue} {value!r}")
        owed = [value for c in committed for value in c.values.get(queue, [])]
        published = [v for v in sorted(offsets, key=lambda v: offsets[v]) if v not in halves]
        if published != owed:
            missing, more = set(owed) - set(published), set(published) - set(owed)
            detail = f"{queue}: missing {missing}, not listed {more}"
            if not missing and not more:
                detail = f"{queue}: {published} instead of {owed}"
            raise BrokenProperty("all that is listed is published, once, in order", detail)
        for each in committed:
            if queue in each.values:
                self._seen_at_once(queue, [offsets[value] for value in each.values[queue]])
        self._count_resumed(log)

    def _seen_at_once(self, queue: Queue, places: list[int]) -> None:
        for end in self._history.told(queue):
            if places[0] < end <= places[-1]:
                raise BrokenProperty(
                    "a queue shows a transaction at once", f"{queue}: {places} and an end of {end}"
                )

    def _count_resumed(self, log: dict[bytes, bytes]) -> None:
        """How many releases were begun by one leader and ended by another."""
        epoch, places = -1, set[EntryPosition]()
        for key in sorted(log):
            head = peek(log[key])
            if head.kind == ControlKind.DECIDED:
                epoch = head.leader_epoch
                places = set(decided_body(control_body(log[key], head)).places)
                self._world.trace.count("decisions in logs")
            elif head.has(Attribute.RELEASED) and epoch != head.leader_epoch:
                ours = released_from(log[key], head) in places
                self._world.trace.count("released by another leader", int(ours))

    def _compare_offsets(self, committed: Sequence[Committed]) -> None:
        state = self._world.newest_state()
        assert state is not None
        safe = self._world.observer.topics["safe"].id
        topic = state.groups.by_name[GROUP].topics.get(safe)
        for place, client in enumerate(self._clients):
            owed = max((c.consumed for c in committed if c.app_id == client.name), default=None)
            found = topic.committed[place] if topic is not None else None
            if owed is not None and found != owed:
                detail = f"{client.name}: {found} instead of {owed}"
                raise BrokenProperty("offsets move with the commit", detail)


def _itself(client: TransactionClient | HalfClient) -> TransactionClient | HalfClient:
    return client
