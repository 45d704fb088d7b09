"""A cluster at work grows, shrinks and is restarted node by node, while nodes are killed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from logboom.client import Client
from logboom.wire.errors import RetryableError, StartError, Unavailable, UnknownResource
from logboom.wire.operation_messages import ClusterDescribed, QueueMoveState
from tests.chaos.catalogue import Struck, fault
from tests.chaos.links import ProxyLinks
from tests.chaos.rig import SMALL, Rig

MORE: Final = 2
"""Brokers by which the cluster grows."""
SLOW_BYTES_PER_S: Final = 256 * 1024
"""How fast moves copy while nodes are killed, so that the kills hit moves under way."""
MOVED_S: Final = 300.0
"""Moves that have not ended so long after the last kill will not."""
BEGUN_S: Final = 60.0
"""The same for moves that are to begin."""
KILLED_BETWEEN: Final = 0.4
"""How often a node is killed between two nodes of a rolling restart."""


def _nothing() -> None:
    """For what is over once it has struck."""


def _described(boom: Client) -> ClusterDescribed | None:
    try:
        return boom.admin.describe_cluster()
    except RetryableError:
        return None  # the name servers elect a leader


def _kill_once(rig: Rig, rng: random.Random, name: str) -> None:
    """kill -9, and start it again after a while."""
    rig.kill([name])
    rig.sleep(rng.uniform(0.1, 3.0))
    rig.start([name])


def _source(rig: Rig, move: QueueMoveState, rng: random.Random) -> str:
    """A broker that the queue leaves, or else one that it stays on."""
    return rng.choice(move.removing or [r for r in move.replicas if r not in move.adding])


def _destination(rig: Rig, move: QueueMoveState, rng: random.Random) -> str:
    """A broker that the queue comes to, or else the first of the target."""
    return rng.choice(move.adding or move.replicas[:1])


def _leader(rig: Rig, move: QueueMoveState, rng: random.Random) -> str:
    """The broker that leads the queue, or any other."""
    view = rig.view([move.topic])
    leaders = [topic.queues[move.queue].leader for topic in view.topics]
    return leaders[0] if leaders and leaders[0] is not None else rig.leader(rng)


def _raft_leader(rig: Rig, move: QueueMoveState, rng: random.Random) -> str:
    """The name server that plans the moves."""
    return rig.raft_leader()


VICTIMS: Final[Sequence[Callable[[Rig, QueueMoveState, random.Random], str]]] = (
    _source,
    _destination,
    _leader,
    _raft_leader,
)


def _move_under_kills(
    rig: Rig, rng: random.Random, boom: Client, ended: Callable[[ClusterDescribed], bool]
) -> list[str]:
    """Kill everybody who takes part in a move, in a random order, and wait until all moves have ended.

    Returns whom it killed. A kill finds no move any more if they have all ended before.

    Raises:
        StartError: they do not begin, or do not end.
    """
    killed: list[str] = []
    for victim in rng.sample(VICTIMS, len(VICTIMS)):
        found: list[ClusterDescribed] = []

        def moves_or_over(found: list[ClusterDescribed] = found) -> bool:
            seen = _described(boom)
            if seen is not None and (seen.moves or ended(seen)):
                found.append(seen)
            return bool(found)

        if not rig.wait(moves_or_over, BEGUN_S):
            raise StartError(f"no moves begin: {_described(boom)}")
        if not found[0].moves:
            break
        name = victim(rig, rng.choice(found[0].moves), rng)
        if rig.cluster.running(name):
            killed.append(name)
            _kill_once(rig, rng, name)
    rig.order(lambda: boom.admin.alter_settings({"move_bytes_per_s": None}))

    def over() -> bool:
        seen = _described(boom)
        return seen is not None and not seen.moves and ended(seen)

    if not rig.wait(over, MOVED_S):
        raise StartError(f"moves do not end after {MOVED_S:.0f} s: {_described(boom)}")
    rig.wait_whole()
    return killed


def _grow(rig: Rig, rng: random.Random, boom: Client) -> list[str]:
    """Start more brokers, and wait until they have their share."""
    added = [rig.cluster.add_broker() for _ in range(MORE)]

    def filled(seen: ClusterDescribed) -> bool:
        return not any(broker.filling for broker in seen.brokers) and all(
            broker.replicas for broker in seen.brokers if broker.broker in added
        )

    return _move_under_kills(rig, rng, boom, filled)


def _shrink(rig: Rig, rng: random.Random, boom: Client) -> tuple[list[str], list[str]]:
    """Drain and remove as many brokers; they, and whom it killed."""
    # The one on the small disk stays: other faults fill it.
    leaving = rng.sample([name for name in rig.brokers if name != SMALL], MORE)
    for name in leaving:
        rig.order(partial(boom.admin.set_broker_mode, name, "draining"))

    def drained(seen: ClusterDescribed) -> bool:
        return all(b.mode == "drained" for b in seen.brokers if b.broker in leaving)

    killed = _move_under_kills(rig, rng, boom, drained)
    for name in leaving:
        rig.take_down(name)
        rig.order(partial(_remove, boom, name))
        rig.cluster.discard_broker(name)
        rig.down.discard(name)
    return leaving, killed


def _remove(boom: Client, name: str) -> None:
    if any(broker.id == name and broker.alive for broker in boom.admin.brokers()):
        raise Unavailable(f"{name} is not fenced yet")
    try:
        boom.admin.remove_broker(name)
    except UnknownResource:
        return  # an order before had no answer, but was carried out


@fault(combines=False, served=False, needs=ProxyLinks.kind)
def resize(rig: Rig, rng: random.Random) -> Struck:
    """Two brokers more, which get their share; then two brokers are drained and removed. Whoever
    takes part in the moves is killed meanwhile."""
    with rig.operator() as boom:

        def slow() -> None:
            boom.admin.alter_settings({"move_bytes_per_s": SLOW_BYTES_PER_S})

        rig.order(slow)
        killed = _grow(rig, rng, boom)
        rig.order(slow)
        left, more = _shrink(rig, rng, boom)
    whom = f"{' '.join(left)} removed; killed: {' '.join(killed)}; {' '.join(more)}"
    return Struck(whom, 0.0, _nothing)


@fault(combines=False, served=False)
def roll(rig: Rig, rng: random.Random) -> Struck:
    """`logboom cluster roll`; between two nodes another one is killed now and then."""
    done: list[str] = []
    killed: list[str] = []
    with rig.cluster.rolling() as rolling:
        for name in rolling.run():
            done.append(name)
            if rng.random() < KILLED_BETWEEN:
                victim = rig.raft_leader() if rng.random() < 0.5 else rig.leader(rng)
                killed.append(victim)
                _kill_once(rig, rng, victim)
    return Struck(f"{' '.join(done)}; killed: {' '.join(killed)}", 0.0, _nothing)
