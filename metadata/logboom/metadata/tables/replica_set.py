"""Where a queue stands, and the pure rules that change it: ISR, eligible replicas, elections.

A `ReplicaSet` is immutable and interned: thousands of queues share one object, so a rule worked out
for one of them holds for all (that is what keeps fencing a broker of a large cluster fast).
Every function takes a standing and gives the next one; none knows epochs or versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Ids: TypeAlias = tuple[str, ...]
Tail: TypeAlias = tuple[int, int, int]
"""(epoch of the last entry, end offset, end side) of a replica, compared as a tuple (Q13)."""
NO_TAILS: Final[Mapping[str, Tail]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaSet:
    """Replicas of a queue and what each of them is good for. Compared by identity: see `intern_replica_set`.

    isr ⊆ replicas and is never empty; the leader, if any, is in it. eligible ∩ isr is empty.
    """

    replicas: Ids
    """In placement order; the first is preferred as leader."""
    leader: str | None
    isr: Ids
    """In placement order."""
    eligible: Ids = ()
    """Outside the ISR but holding all below the HW (Q7)."""
    suspect: Ids = ()
    """May have lost synced data (Q13), until in the ISR again."""
    damaged: Ids = ()
    """Said so themselves (Q14), until mended."""
    lost: Ids = ()
    """Last ISR member whose store was replaced (Q3): holds nothing, must not lead by itself."""

    shown: tuple[list[str], list[str], list[str]] = field(init=False)
    """(replicas, isr, eligible) for views, which share them: not to be changed."""

    def __post_init__(self) -> None:
        """Make the lists once for all queues that stand so."""
        shown = (list(self.replicas), list(self.isr), list(self.eligible))
        object.__setattr__(self, "shown", shown)

    @property
    def displaced(self) -> bool:
        """Whether another than the preferred replica leads."""
        return self.leader is not None and self.leader != self.replicas[0]

    def key(self) -> tuple[Ids, str, Ids, Ids, Ids, Ids, Ids]:
        """Its value, sortable; a leader of None is ""."""
        return (
            self.replicas,
            self.leader or "",
            self.isr,
            self.eligible,
            self.suspect,
            self.damaged,
            self.lost,
        )


_interned: Final[dict[tuple[Ids, str, Ids, Ids, Ids, Ids, Ids], ReplicaSet]] = {}
_MAX_INTERNED: Final = 200_000


def intern_replica_set(
    replicas: Ids,
    leader: str | None,
    isr: Iterable[str],
    eligible: Iterable[str] = (),
    suspect: Iterable[str] = (),
    damaged: Iterable[str] = (),
    lost: Iterable[str] = (),
) -> ReplicaSet:
    """The standing of this value; sets are put into placement order."""

    def ordered(ids: Iterable[str]) -> Ids:
        wanted = set(ids)
        return tuple(r for r in replicas if r in wanted) if wanted else ()

    made = ReplicaSet(
        replicas,
        leader,
        ordered(isr),
        ordered(eligible),
        ordered(suspect),
        ordered(damaged),
        ordered(lost),
    )
    if len(_interned) > _MAX_INTERNED:
        # A cache only: two equal standings that are two objects cost memory, nothing else.
        _interned.clear()
    return _interned.setdefault(made.key(), made)


def _with(
    s: ReplicaSet,
    *,
    leader: str | None,
    isr: Iterable[str] | None = None,
    eligible: Iterable[str] | None = None,
    suspect: Iterable[str] | None = None,
    damaged: Iterable[str] | None = None,
    lost: Iterable[str] | None = None,
) -> ReplicaSet:
    return intern_replica_set(
        s.replicas,
        leader,
        s.isr if isr is None else isr,
        s.eligible if eligible is None else eligible,
        s.suspect if suspect is None else suspect,
        s.damaged if damaged is None else damaged,
        s.lost if lost is None else lost,
    )


def _without(ids: Iterable[str], gone: str) -> Ids:
    return tuple(i for i in ids if i != gone)


def set_isr(s: ReplicaSet, isr: Collection[str], need: int) -> ReplicaSet:
    """Another ISR; who left it below `need` copies stays eligible, until it is back (Q7).

    Below `need` the HW does not move, so whoever was in the ISR or eligible before still holds
    all below it. A replica that was let into the ISR is no longer suspect.
    """
    eligible: Iterable[str] = ()
    if len(isr) < need:
        unfit = {*isr, *s.damaged, *s.lost}
        eligible = {*s.isr, *s.eligible} - unfit
    joined = set(isr) - set(s.isr)
    leader = s.leader if s.leader in isr else None
    return _with(
        s,
        leader=leader,
        isr=isr,
        eligible=eligible,
        suspect=set(s.suspect) - joined,
        lost=set(s.lost) & set(isr),
    )


def leave(s: ReplicaSet, broker: str, need: int, *, trusted: bool) -> ReplicaSet:
    """A replica leaves the ISR, unless it is its last member, and leads no more.

    `trusted` False: what it holds is in doubt or gone, so it is not eligible either.
    """
    isr = _without(s.isr, broker)
    left = set_isr(s, isr, need) if isr and broker in s.isr else s
    eligible = left.eligible if trusted else _without(left.eligible, broker)
    leader = None if left.leader == broker else left.leader
    return _with(left, leader=leader, eligible=eligible)


def lose_store(s: ReplicaSet, broker: str, need: int) -> ReplicaSet:
    """A replica's store was replaced by an empty one: it leaves every ISR (Q3).

    As last ISR member it stays there in name, lest the ISR be empty, but as one that lost all.
    """
    left = leave(s, broker, need, trusted=False)
    lost = {*left.lost, broker} if broker in left.isr else set(left.lost) - {broker}
    return _with(
        left,
        leader=left.leader,
        suspect=_without(left.suspect, broker),
        damaged=_without(left.damaged, broker),
        lost=lost,
    )


def mark_suspect(s: ReplicaSet, broker: str, need: int) -> ReplicaSet:
    """A replica may have lost synced data: out of the ISR if it has another member (Q13)."""
    left = leave(s, broker, need, trusted=True)
    return _with(left, leader=left.leader, suspect={*left.suspect, broker})


def damage(s: ReplicaSet, broker: str, need: int) -> ReplicaSet:
    """A replica says that it is damaged: out of the ISR first (Q14)."""
    marked = _with(s, leader=s.leader, damaged={*s.damaged, broker})
    return leave(marked, broker, need, trusted=False)


def mark_repaired(s: ReplicaSet, broker: str) -> ReplicaSet:
    """A damaged replica is whole again and may be led and grown as any other."""
    return _with(s, leader=s.leader, damaged=_without(s.damaged, broker))


def relieve(s: ReplicaSet, full: Collection[str], alive: Collection[str], need: int) -> ReplicaSet:
    """The standing without the ISR members whose disks are full, if the others are enough.

    A member that takes no writes holds the HW up, as leader or as follower. Where fewer than `need`
    copies have room nothing is gained without it, and it stays: also as leader, since it may be the
    first that has room again.
    """
    stay = [broker for broker in s.isr if broker not in full]
    if len(stay) == len(s.isr) or len(stay) < need:
        return s
    leader = s.leader
    if leader not in stay:
        unfit = {*s.suspect, *s.damaged, *s.lost}
        leader = next((r for r in stay if r in alive and r not in unfit), None)
        if leader is None:
            return s
    return _with(set_isr(s, stay, need), leader=leader)


def elect(
    s: ReplicaSet,
    alive: Collection[str],
    need: int,
    *,
    full: Collection[str] = (),
    unclean: bool = False,
    last: str | None = None,
    tails: Mapping[str, Tail] = NO_TAILS,
) -> ReplicaSet:
    """The standing with the best leader there is now, or with none.

    In this order: a sound ISR member, a sound eligible replica (the ISR is then it alone), the
    greatest tail if all candidates are suspect (Q13), a damaged ISR member (Q14), and, where the
    topic asks for it, any replica. `last` is taken only if no other of its class can, one of those
    whose disks are `full` only if no other of its class has room.
    """
    order = s.replicas if last is None else (*_without(s.replicas, last), last)
    if full:
        order = tuple(sorted(order, key=lambda broker: broker in full))
    unsound = {*s.suspect, *s.damaged, *s.lost}
    sound = [r for r in order if r in alive and r not in unsound]
    for broker in sound:
        if broker in s.isr:
            return _with(s, leader=broker)
    for broker in sound:
        if broker in s.eligible:
            return _lead_alone(s, broker, need)
    greatest = _greatest_suspect(s, alive, tails)
    if greatest is not None:
        return _lead_alone(s, greatest, need)
    for broker in order:
        # One that lost its store has nothing to serve, damaged or not.
        if broker in alive and broker in s.isr and broker in s.damaged and broker not in s.lost:
            return _with(s, leader=broker)
    if unclean:
        candidates = sound or [r for r in order if r in alive]
        if candidates:
            return force_leader(s, candidates[0])
    return _with(s, leader=None)


def _lead_alone(s: ReplicaSet, broker: str, need: int) -> ReplicaSet:
    """Lead as the only ISR member, or within the ISR if already there."""
    placed = s if broker in s.isr else set_isr(s, (broker,), need)
    return _with(placed, leader=broker, suspect=_without(placed.suspect, broker))


def _greatest_suspect(
    s: ReplicaSet, alive: Collection[str], tails: Mapping[str, Tail]
) -> str | None:
    """Who leads if all that could are suspect: the greatest (last epoch, end) of all that do.

    All candidates must have been heard, unless one replica alone is suspect. Suspects that are no
    candidates are compared too: a log with a greater tail misses nothing that a smaller one has.
    If the greatest is away now, it is waited for.
    """
    candidates = {*s.isr, *s.eligible} - {*s.damaged, *s.lost}
    if not candidates or not candidates <= set(s.suspect):
        return None
    if len(s.suspect) == 1:
        only = s.suspect[0]
        return only if only in alive else None
    if not candidates <= set(tails):
        return None
    heard = [r for r in s.suspect if r in tails and r not in s.damaged and r not in s.lost]
    # max takes the first of equals: placement order.
    greatest = max(heard, key=lambda r: tails[r])
    return greatest if greatest in alive else None


def force_leader(s: ReplicaSet, broker: str) -> ReplicaSet:
    """This replica leads alone and what it holds is the truth: messages may be lost.

    The others are no longer eligible: what they hold beyond it is no part of the queue.
    """
    return _with(
        s,
        leader=broker,
        isr=(broker,),
        eligible=(),
        suspect=_without(s.suspect, broker),
        damaged=s.damaged,
        lost=(),
    )
