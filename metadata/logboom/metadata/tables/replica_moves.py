"""The rules that move a queue to other replicas: begin, finish, cancel, give a replica up.

A move adds first and removes last. What it adds counts for nothing before it is in the ISR (M1); the
command that brings the last of the target into the ISR ends the move (M2). A function that may refuse
returns the reason as text, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from logboom.metadata.tables.replica_set import (
    Ids,
    ReplicaSet,
    force_leader,
    intern_replica_set,
    led_by,
)


def begin_move(
    s: ReplicaSet,
    target: Ids,
    need: int,
    alive: Collection[str],
    elected_last: Collection[str] = (),
) -> ReplicaSet | str:
    """Move to the replicas of `target`, preferred leader first, in place of a move under way.

    Replicas of a former target that are not wanted any more go at once.
    """
    original = s.original
    removing = tuple(r for r in original if r not in target)
    adding = tuple(r for r in target if r not in original)
    return _with_replicas(s, (*target, *removing), adding, removing, need, alive, elected_last)


def cancel_move(
    s: ReplicaSet, need: int, alive: Collection[str], elected_last: Collection[str] = ()
) -> ReplicaSet | str:
    """Give a queue the replicas back that it had before its move (M5)."""
    if not s.moving:
        return s
    return _with_replicas(s, s.original, (), (), need, alive, elected_last)


def finish_move(
    s: ReplicaSet, alive: Collection[str], elected_last: Collection[str] = ()
) -> ReplicaSet:
    """End a move if all of its target are in the ISR and sound, and one of them can lead (M2)."""
    if not s.moving:
        return s
    target = s.target
    if not set(target) <= set(s.isr) or not _unfit(s).isdisjoint(target):
        return s
    leader = s.leader if s.leader in target else _first(target, alive, elected_last)
    if leader is None or leader not in alive:
        return s
    return intern_replica_set(target, leader, target)


def give_up(
    s: ReplicaSet, broker: str, alive: Collection[str], need: int
) -> tuple[ReplicaSet, bool] | None:
    """Remove a replica whose broker does not come back, and tell whether messages may be lost.

    If no member of the ISR is left, an eligible replica takes its place, and else the best of the
    others, whose log then counts as complete. The caller elects. None: there is no other replica.
    """
    replicas = _without(s.replicas, broker)
    if not replicas:
        return None
    isr, eligible = _without(s.isr, broker), _without(s.eligible, broker)
    may_lose = not isr and not eligible
    if may_lose:
        isr = (_best_of(s, replicas, alive),)
    elif not isr:
        sound = [r for r in eligible if r not in s.suspect]
        isr = (_first(sound or eligible, alive, ()) or eligible[0],)
        eligible = _without(eligible, isr[0])
    # If the target loses a replica, what was to be removed stays: else fewer copies would be left.
    removing = _without(s.removing, broker) if broker in s.removing else ()
    left = intern_replica_set(
        replicas,
        s.leader if s.leader in isr else None,
        isr,
        eligible if len(isr) < need else (),
        s.suspect,
        s.damaged,
        s.lost,
        s.adding,
        removing,
    )
    if not may_lose:
        return left, False
    forced = force_leader(left, isr[0])
    return (forced if isr[0] in alive else led_by(forced, None)), True


def _best_of(s: ReplicaSet, replicas: Ids, alive: Collection[str]) -> str:
    """Return the replica that is most likely to hold what the queue had."""

    def doubt(broker: str) -> tuple[bool, bool, bool, bool]:
        unsure = broker in s.damaged or broker in s.suspect
        return broker not in alive, broker in s.lost, broker in s.uncounted, unsure

    return min(replicas, key=doubt)


def _with_replicas(
    s: ReplicaSet,
    replicas: Ids,
    adding: Ids,
    removing: Ids,
    need: int,
    alive: Collection[str],
    elected_last: Collection[str],
) -> ReplicaSet | str:
    """Give a queue other replicas, unless too few that hold everything would be left."""
    stay = set(replicas)
    isr = tuple(r for r in s.isr if r in stay)
    eligible = tuple(r for r in s.eligible if r in stay)
    unfit = _unfit(s)
    before = len({*s.isr, *s.eligible} - unfit)
    after = len({*isr, *eligible} - unfit)
    gone = [r for r in (*s.isr, *s.eligible) if r not in stay]
    # Where nobody is sound, the tails of all decide who leads, so nobody may go before that.
    if not isr or after < min(need, before) or (gone and not after):
        return (
            f"without {', '.join(gone)} too few replicas would hold everything: wait until "
            f"{', '.join(r for r in s.original if r not in s.isr) or 'the others'} is in sync again"
        )
    leader = s.leader
    if leader is not None and leader not in isr:
        leader = _first([r for r in isr if r not in unfit], alive, elected_last)
        if leader is None:
            return f"without {s.leader} no live and sound replica could lead: wait until one can"
    return intern_replica_set(
        replicas,
        leader,
        isr,
        eligible if len(isr) < need else (),
        s.suspect,
        s.damaged,
        s.lost,
        adding,
        removing,
    )


def _without(ids: Ids, gone: str) -> Ids:
    return tuple(i for i in ids if i != gone)


def _unfit(s: ReplicaSet) -> set[str]:
    return {*s.suspect, *s.damaged, *s.lost}


def _first(
    brokers: Iterable[str], alive: Collection[str], elected_last: Collection[str]
) -> str | None:
    """Return the first live broker, one that is not `elected_last` if there is one."""
    live = [broker for broker in brokers if broker in alive]
    return next((broker for broker in live if broker not in elected_last), next(iter(live), None))
