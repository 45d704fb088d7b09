"""The errors that a broker answers with, each one line that says what and how to mend it."""

from __future__ import annotations

from logboom.nodes.replica.replica import Replica
from logboom.wire.errors import DataDamaged, LogboomError, NotLeader, Unavailable
from logboom.wire.routes import Routes


def not_leader(
    routes: Routes, topic: str, queue: int, me: str | None = None, meant: int = 0
) -> LogboomError:
    """NOT_LEADER with who leads instead.

    A queue that is not known here is refused in the same way: the asker had it from metadata that
    may be newer than ours, and whether it exists its own WATCH tells. But ids of topics only grow:
    where a later one than `meant` (0: not said) was known, that topic was too, and is gone.
    `me`: this broker, which does not lead any more though its metadata may still say so.
    """
    if routes.version < 0:
        return Unavailable("this broker is starting and has no metadata yet: ask again")
    try:
        view = routes.queue(topic, queue)
    except LogboomError as error:
        if topic not in routes.topics and 0 < meant <= routes.newest_topic:
            return error
        return NotLeader(f"not known to this broker: {error.text}", leader=None, epoch=-1)
    leader = None if view.leader == me else view.leader
    broker = routes.brokers.get(leader) if leader is not None else None
    text = f"queue {queue} of {topic!r} has no leader now: its in-sync replicas are down"
    if leader is not None:
        text = f"queue {queue} of {topic!r} is led by {leader}: ask there"
    return NotLeader(
        text,
        leader=leader,
        endpoint=broker.endpoint if broker is not None else None,
        epoch=view.leader_epoch,
    )


def check_topic(replica: Replica, meant: int) -> None:
    """See that the asker means this topic, and no other of the same name; 0: it does not say.

    Raises:
        NotLeader: it was deleted and made anew, and one of both has not heard of it yet.
    """
    if meant not in (0, replica.topic_id):
        raise NotLeader(
            f"topic {replica.topic!r} was deleted and made anew: its id is {replica.topic_id} "
            f"here, and not {meant}",
            leader=None,
            epoch=-1,
        )


def no_lease(what: str) -> LogboomError:
    """UNAVAILABLE: this broker may no longer be the leader (Q11)."""
    return Unavailable(
        f"the name servers have not been heard for 2 s: {what} refused until they are back; "
        "acks=all and reads go on"
    )


def damaged(replica: Replica, what: str) -> DataDamaged:
    """DATA_DAMAGED: nothing is skipped and nothing is cut (Q14)."""
    return DataDamaged(
        f"queue {replica.queue} of {replica.topic!r} is damaged here and no good copy is known "
        f"({what}): start the brokers that hold the others"
    )


def catching_up(replica: Replica) -> LogboomError:
    """UNAVAILABLE: a new leader does not know the end of its queue yet (Q8)."""
    return Unavailable(
        f"queue {replica.queue} of {replica.topic!r} has a new leader that is still hearing from "
        "its in-sync replicas: ask again"
    )
