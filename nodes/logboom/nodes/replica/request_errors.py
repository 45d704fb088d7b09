"""The errors that a broker answers with, each of one line with the cause and the remedy."""

from __future__ import annotations

from logboom.nodes.replica.replica import Replica
from logboom.wire.errors import DataDamaged, LogboomError, NotLeader, Unavailable
from logboom.wire.routes import Routes


def not_leader(
    routes: Routes, topic: str, queue: int, me: str | None = None, meant: int = 0
) -> LogboomError:
    """Build NOT_LEADER, naming the leader.

    A queue that is unknown here is refused in the same way: the client knows it from metadata that
    may be newer than ours, and its own WATCH tells whether it exists. But topic ids only grow. If a
    later id than `meant` (0: not given) is known, that topic was known too and has been deleted.
    `me` is this broker, which no longer leads, although its metadata may still say so.
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
    """Check that the client means this topic and no other of the same name; 0: it does not say.

    Raises:
        NotLeader: the topic was deleted and created again, and one of both has not heard of it yet.
    """
    if meant not in (0, replica.topic_id):
        raise NotLeader(
            f"topic {replica.topic!r} was deleted and made anew: its id is {replica.topic_id} "
            f"here, and not {meant}",
            leader=None,
            epoch=-1,
        )


def no_lease(what: str) -> LogboomError:
    """Build UNAVAILABLE: this broker may no longer be the leader (Q11)."""
    return Unavailable(
        f"the name servers have not been heard for 2 s: {what} refused until they are back; "
        "acks=all and reads go on"
    )


def damaged(replica: Replica, what: str) -> DataDamaged:
    """Build DATA_DAMAGED: nothing is skipped and nothing is truncated (Q14)."""
    return DataDamaged(
        f"queue {replica.queue} of {replica.topic!r} is damaged here and no good copy is known "
        f"({what}): start the brokers that hold the others"
    )


def check_restored(replica: Replica) -> None:
    """Check that no backup is being restored into a queue: until it ends, nobody reads or writes.

    Raises:
        Unavailable: one is.
    """
    if replica.restoring:
        raise Unavailable(
            f"topic {replica.topic!r} is being restored from {replica.restoring}: wait until "
            "`logboom backup restore` has ended"
        )


def catching_up(replica: Replica) -> LogboomError:
    """Build UNAVAILABLE: a new leader does not know the end of its queue yet (Q8)."""
    return Unavailable(
        f"queue {replica.queue} of {replica.topic!r} has a new leader that is still hearing from "
        "its in-sync replicas: ask again"
    )
