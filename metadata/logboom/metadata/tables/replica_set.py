"""The replica set of a queue and the rules that change it: ISR, eligible replicas, elections.

A `ReplicaSet` is immutable and interned. Thousands of queues share one object, so a rule that is
evaluated for one of them holds for all; this keeps fencing a broker of a large cluster fast. Every
function takes a replica set and returns the next one. None knows epochs or versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

Ids: TypeAlias = tuple[str, ...]
Tail: TypeAlias = tuple[int, int, int]
"""(epoch of the last entry, end offset, end side) of a replica, compared as a tuple (Q13)."""
StandingKey: TypeAlias = (
    tuple[Ids, str, Ids, Ids, Ids, Ids, Ids] | tuple[Ids, str, Ids, Ids, Ids, Ids, Ids, Ids, Ids]
)
"""The value of a replica set, see `ReplicaSet.key`."""
Reports: TypeAlias = tuple[int, bool]
"""Of a queue in doubt (R15): how many of its replicas must have reported a log that is not empty, and
whether every broker was heard, so that empty logs count too. The number is 0 for other queues."""
NOT_IN_DOUBT: Final[Reports] = (0, True)
NOTHING: Final[Tail] = (0, 0, 0)
"""The tail of an empty log."""
NO_TAILS: Final[Mapping[str, Tail]] = {}


class ReplicaSet(Struct, frozen=True, eq=False, gc=False):
    """The replicas of a queue and the role of each. Compared by identity: see `intern_replica_set`.

    isr ⊆ replicas and is never empty; the leader, if any, is in it. eligible ∩ isr is empty.
    While a move is under way, `replicas` are those of its target, then those that it removes.
    """

    replicas: Ids
    """In placement order; the first is the preferred leader."""
    leader: str | None
    isr: Ids
    """In placement order."""
    eligible: Ids = ()
    """Outside the ISR, but holding everything committed (Q7)."""
    suspect: Ids = ()
    """May have lost synced data (Q13), until in the ISR again."""
    damaged: Ids = ()
    """Reported as damaged (Q14), until repaired."""
    lost: Ids = ()
    """The last ISR member, if its store was replaced (Q3): it holds nothing and must not be
    elected."""
    adding: Ids = ()
    """Replicas that a move brings; outside the ISR they count for nothing (M1)."""
    removing: Ids = ()
    """Replicas that a move takes away once it completes (M2); the last of `replicas`."""

    shown: tuple[list[str], ...] = ()
    """(replicas, isr, eligible, adding, removing) for views, which share them; do not modify (derived)."""

    certain: Ids = ()
    """Members of the ISR that have not lost their store and are not suspect (derived)."""

    def __post_init__(self) -> None:
        """Build the lists once for all queues that share this replica set."""
        certain = self.isr
        if self.suspect or self.lost:
            unsure = {*self.suspect, *self.lost}
            certain = tuple(r for r in self.isr if r not in unsure)
        force_setattr(self, "certain", certain)
        parts = (self.replicas, self.isr, self.eligible, self.adding, self.removing)
        force_setattr(self, "shown", tuple(map(list, parts)))

    @property
    def moving(self) -> bool:
        """True while a move is under way."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> Ids:
        """The replicas once the move is done."""
        removing = self.removing
        return tuple(r for r in self.replicas if r not in removing) if removing else self.replicas

    @property
    def original(self) -> Ids:
        """The replicas without the move."""
        adding = self.adding
        return tuple(r for r in self.replicas if r not in adding) if adding else self.replicas

    @property
    def uncounted(self) -> Ids:
        """Replicas that are being added and are not known to hold everything (M1)."""
        return tuple(r for r in self.adding if r not in self.isr and r not in self.eligible)

    @property
    def displaced(self) -> bool:
        """True if the leader is not the preferred replica."""
        return self.leader is not None and self.leader != self.replicas[0]

    def equals(self, other: ReplicaSet) -> bool:
        """Return True if it has the same value, whether or not it is the same object."""
        return _PARTS(self) == _PARTS(other) and self.key() == other.key()

    def key(self) -> StandingKey:
        """Return its value as a sortable tuple; a leader of None is "".

        The last two parts are left out while no move is under way.
        """
        settled = (
            self.replicas,
            self.leader or "",
            self.isr,
            self.eligible,
            self.suspect,
            self.damaged,
            self.lost,
        )
        if self.adding or self.removing:
            return (*settled, self.adding, self.removing)
        return settled


_PARTS: Final = attrgetter("isr", "suspect")
"""What most replica sets that differ differ in."""
_interned: Final[dict[StandingKey, ReplicaSet]] = {}
_MAX_INTERNED: Final = 200_000


def intern_replica_set(
    replicas: Ids,
    leader: str | None,
    isr: Iterable[str],
    eligible: Iterable[str] = (),
    suspect: Iterable[str] = (),
    damaged: Iterable[str] = (),
    lost: Iterable[str] = (),
    adding: Iterable[str] = (),
    removing: Iterable[str] = (),
) -> ReplicaSet:
    """Return the replica set of this value; sets are put into placement order."""
    made = ReplicaSet(
        replicas,
        leader,
        _ordered(replicas, isr),
        _ordered(replicas, eligible) if eligible else (),
        _ordered(replicas, suspect) if suspect else (),
        _ordered(replicas, damaged) if damaged else (),
        _ordered(replicas, lost) if lost else (),
        _ordered(replicas, adding) if adding else (),
        _ordered(replicas, removing) if removing else (),
    )
    if len(_interned) > _MAX_INTERNED:
        # Only a cache: nothing may be decided by whether two equal replica sets are one object.
        _interned.clear()
    return _interned.setdefault(made.key(), made)


def _ordered(replicas: Ids, ids: Iterable[str]) -> Ids:
    if ids is replicas:
        return replicas
    wanted = set(ids)
    return tuple(r for r in replicas if r in wanted)


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
        s.adding,
        s.removing,
    )


def _without(ids: Iterable[str], gone: str) -> Ids:
    return tuple(i for i in ids if i != gone)


def set_isr(s: ReplicaSet, isr: Collection[str], need: int) -> ReplicaSet:
    """Set the ISR; below `need` copies, former members stay eligible until it has recovered (Q7).

    Below `need` copies the HW does not advance, so a replica that was in the ISR or eligible before
    still holds everything committed. A replica that joins the ISR is no longer suspect.
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
    """Remove a replica from leadership, and from the ISR unless it is the last member.

    If it is not `trusted`, its data is in doubt or gone, so it is not eligible either.
    """
    isr = _without(s.isr, broker)
    left = set_isr(s, isr, need) if isr and broker in s.isr else s
    eligible = left.eligible if trusted else _without(left.eligible, broker)
    leader = None if left.leader == broker else left.leader
    return _with(left, leader=leader, eligible=eligible)


def lose_store(s: ReplicaSet, broker: str, need: int) -> ReplicaSet:
    """Note that a replica's store was replaced by an empty one: it leaves every ISR (Q3).

    As the last member it stays, because an ISR is never empty, but it is marked as having lost all.
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


def regain_store(s: ReplicaSet, broker: str) -> ReplicaSet:
    """Note that the store is back that a replica had lost: nothing was committed without it (Q3)."""
    return _with(s, leader=s.leader, lost=_without(s.lost, broker))


def mark_suspect(s: ReplicaSet, broker: str, need: int) -> ReplicaSet:
    """Note that a replica may have lost synced data; it leaves an ISR with other members (Q13).

    One that is just being added has nothing yet that counts (M1).
    """
    if broker in s.uncounted:
        return s
    left = leave(s, broker, need, trusted=True)
    return _with(left, leader=left.leader, suspect={*left.suspect, broker})


def doubt_all(s: ReplicaSet) -> ReplicaSet:
    """Let the log ends of all replicas decide who leads, whatever their roles were (R15).

    A queue whose last ISR member had lost its store stays as it is: no other has what it had.
    """
    if s.lost:
        return _with(s, leader=None)
    first = s.isr[0]
    return _with(
        s, leader=None, isr=(first,), eligible=_without(s.replicas, first), suspect=s.replicas
    )


def join_doubted(s: ReplicaSet, broker: str) -> ReplicaSet:
    """Add a replica that a queue in doubt got in what was lost (R15)."""
    return intern_replica_set(
        (*s.replicas, broker),
        None,
        s.isr,
        (*s.eligible, broker),
        (*s.suspect, broker),
        s.damaged,
        s.lost,
        s.adding,
        # What a move removes comes last.
        (*s.removing, broker) if s.removing else (),
    )


def damage(s: ReplicaSet, broker: str, need: int) -> ReplicaSet:
    """Note that a replica reports damage; it leaves an ISR with other members (Q14)."""
    marked = _with(s, leader=s.leader, damaged={*s.damaged, broker})
    return leave(marked, broker, need, trusted=False)


def mark_repaired(s: ReplicaSet, broker: str) -> ReplicaSet:
    """Note that a damaged replica is repaired and may join the ISR and lead again."""
    return _with(s, leader=s.leader, damaged=_without(s.damaged, broker))


def relieve(s: ReplicaSet, full: Collection[str], alive: Collection[str], need: int) -> ReplicaSet:
    """Remove ISR members whose disks are full, if the others are enough.

    A member that accepts no writes holds up the HW, as leader or as follower. Where fewer than
    `need` copies have room, nothing is gained without it and it stays, even as leader, because it
    may be the first to have room again.
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


def hand_over(
    s: ReplicaSet,
    leaving: Collection[str],
    alive: Collection[str],
    elected_last: Collection[str],
) -> ReplicaSet:
    """Move a leadership from a broker that is `leaving` to a better one, if there is one (M6).

    That is a sound, live member of the ISR that is not `elected_last`.
    """
    if s.leader is None or s.leader not in leaving:
        return s
    unfit = {*s.suspect, *s.damaged, *s.lost, *elected_last}
    better = next((r for r in s.isr if r in alive and r not in unfit), None)
    return s if better is None else _with(s, leader=better)


def elect(
    s: ReplicaSet,
    alive: Collection[str],
    need: int,
    *,
    elected_last: Collection[str] = (),
    unclean: bool = False,
    last: str | None = None,
    tails: Mapping[str, Tail] = NO_TAILS,
    reports: Reports = NOT_IN_DOUBT,
) -> ReplicaSet:
    """Elect the best leader that is available now, or none.

    The order of preference is: a sound ISR member; a sound eligible replica (which becomes the only
    ISR member); the greatest tail, if all candidates are suspect (Q13); a damaged ISR member (Q14);
    and, if the topic allows unclean elections, any replica. Within a class, `last` and the
    brokers that are `elected_last` come last.
    """
    order = s.replicas if last is None else (*_without(s.replicas, last), last)
    if elected_last:
        order = tuple(sorted(order, key=lambda broker: broker in elected_last))
    unsound = {*s.suspect, *s.damaged, *s.lost}
    sound = [r for r in order if r in alive and r not in unsound]
    for broker in sound:
        if broker in s.isr:
            return _with(s, leader=broker)
    for broker in sound:
        if broker in s.eligible:
            return _lead_alone(s, broker, need)
    greatest = _greatest_suspect(s, alive, tails, reports)
    if greatest is not None:
        if reports[0]:
            # Who was in sync is not known.
            s = _with(set_isr(s, (greatest,), need), leader=None)
        return _lead_alone(s, greatest, need)
    # After a recovery the first broker that is back is not the best that is left.
    unclean = unclean and not reports[0]
    for broker in order:
        # A replica that lost its store has nothing to serve, damaged or not.
        if broker in alive and broker in s.isr and broker in s.damaged and broker not in s.lost:
            return _with(s, leader=broker)
    if unclean:
        counted = [r for r in order if r in alive and r not in s.uncounted]
        candidates = [r for r in counted if r not in unsound] or counted
        if candidates:
            return force_leader(s, max(candidates, key=lambda r: tails.get(r, NOTHING)))
    return _with(s, leader=None)


def may_lack(s: ReplicaSet, after: ReplicaSet) -> bool:
    """Return True if the leader of `after`, elected from `s`, may lack what was committed (Q15).

    It has lost its store, or may have lost synced data, or was neither in the ISR nor eligible and is
    the ISR now.
    """
    leader = after.leader
    if leader is None or leader in s.lost or leader in s.suspect:
        return leader is not None
    return leader not in s.isr and leader not in s.eligible and after.isr == (leader,)


def _lead_alone(s: ReplicaSet, broker: str, need: int) -> ReplicaSet:
    """Make a replica leader as the only ISR member, or within the ISR if it is a member already."""
    placed = s if broker in s.isr else set_isr(s, (broker,), need)
    return _with(placed, leader=broker, suspect=_without(placed.suspect, broker))


def _greatest_suspect(
    s: ReplicaSet, alive: Collection[str], tails: Mapping[str, Tail], reports: Reports
) -> str | None:
    """Find the leader if all candidates are suspect: the greatest (last epoch, end) reported.

    All candidates must have reported, unless one replica alone is suspect. Suspects that are no
    candidates are compared too, because a log with a greater tail misses nothing that a smaller one
    has. If the greatest is not available, the election waits for it.

    After a recovery so many have to report that one of them has whatever was committed. An empty log
    shows nothing, because a replica that was moved away begins anew; those count once all brokers
    were heard.
    """
    candidates = {*s.isr, *s.eligible} - {*s.damaged, *s.lost}
    if not candidates or not candidates <= set(s.suspect):
        return None
    suspect = [r for r in s.suspect if r not in s.uncounted]
    enough, everybody = reports
    if enough:
        found = sum(tails.get(r, NOTHING)[1:] > NOTHING[1:] for r in candidates)
        if found < enough and not (everybody and candidates <= set(tails)):
            return None
    elif len(suspect) == 1:
        return suspect[0] if suspect[0] in alive else None
    elif not candidates <= set(tails):
        return None
    heard = [r for r in suspect if r in tails and r not in s.damaged and r not in s.lost]
    # max returns the first of equals, in placement order.
    greatest = max(heard, key=lambda r: tails[r])
    return greatest if greatest in alive else None


def led_by(s: ReplicaSet, leader: str | None) -> ReplicaSet:
    """Return the same replica set with another leader, or without one."""
    return _with(s, leader=leader)


def force_leader(s: ReplicaSet, broker: str) -> ReplicaSet:
    """Make a replica the only ISR member and declare its log complete; messages may be lost.

    The others are no longer eligible: what they hold beyond this log is not part of the queue.
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
