"""Where a subscription begins in queues that do not know it.

Whether a subscription is new is not for one consumer, nor for one queue, to say: a queue that does not
know it was added since, or the subscription's creation was cut short. So the consumer first asks
every queue. A new subscription is created in the highest queue before all others, and queues that
were added later learn of it in their order. Hence every queue above the highest one that knows it was
added later, and every other one was there when it began.
"""

from __future__ import annotations

from collections.abc import Collection

from logboom.wire.subscription_messages import Start


def beginnings(
    known: Collection[int], unknown: Collection[int], start: Start
) -> list[tuple[int, Start]]:
    """Return the queues in which a subscription may be created now, and where it begins in each.

    Args:
        known: the queues that know the subscription.
        unknown: the queues that do not; together with `known` these are all queues.
        start: where a new subscription begins.
    """
    if not unknown:
        return []
    if not known:
        return [(max(unknown), start)]
    highest = max(known)
    begun: list[tuple[int, Start]] = [(queue, start) for queue in unknown if queue < highest]
    added = [queue for queue in unknown if queue > highest]
    if added:
        begun.append((min(added), "first"))
    return begun
