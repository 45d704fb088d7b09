"""Arguments of `subscribe`, checked and converted to a subscriber's options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from logboom.client.fetch.message_filter import wanted_of
from logboom.client.producer_options import Begin, start_of
from logboom.client.subscriptions.subscriber_state import SubscriberOptions
from logboom.wire.errors import InvalidRequest
from logboom.wire.filters import Filter
from logboom.wire.names import subscription_name_fault
from logboom.wire.subscription_messages import KINDS, Span, Start, SubscriptionConfig

_FIXED: Final = ("kind", "filter", "hashing")


def subscriber_options(
    topic: str,
    subscription: str,
    kind: str,
    name: str,
    *,
    tags: str | Sequence[str] | None,
    where: str | Filter | None,
    start: Begin,
    priority: int,
    ranges: Sequence[Span] | None,
    hashing: str,
    window: int,
    settings: dict[str, Any],
) -> SubscriberOptions:
    """Convert the arguments of an application to a subscriber's options.

    Raises:
        InvalidRequest: an argument is invalid.
    """
    if not isinstance(topic, str):
        text = f"a subscription has one topic, given by its name, not {topic!r:.80}"
        raise InvalidRequest(f"{text}: subscribe to each")
    if kind not in KINDS:
        text = f"no subscription type is called {kind!r}: there are {', '.join(KINDS)}"
        raise InvalidRequest(text)
    begin: Start = start_of(start)
    if type(window) is not int or window < 1:
        raise InvalidRequest(f"window must be 1 or more messages, not {window!r}")
    if ranges is not None:
        if kind not in ("exclusive", "key_shared"):
            raise InvalidRequest("ranges require exclusive or key_shared: leave them out")
        if not ranges:
            raise InvalidRequest(
                "empty ranges take no message: add some, or leave them out for all"
            )
        hashing = "sticky" if kind == "key_shared" else hashing
    known = {n for n in SubscriptionConfig.__struct_fields__ if n not in _FIXED}
    for setting in settings:
        if setting not in known:
            text = f"no setting of a subscription is called {setting!r}"
            raise InvalidRequest(f"{text}: there are {', '.join(sorted(known))}")
    wanted = wanted_of(tags, where)
    text = "" if wanted.takes_all else wanted.text
    given = {"kind": kind, "hashing": hashing, "filter": text, **settings}
    whole = {**msgspec.structs.asdict(SubscriptionConfig()), **given}
    try:
        config = msgspec.convert(list(whole.values()), SubscriptionConfig)
        spans = None if ranges is None else tuple((int(a), int(b)) for a, b in ranges)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise InvalidRequest(f"a setting of the subscription is invalid: {error}") from None
    if config.max_attempts:
        fault = subscription_name_fault(topic, subscription)
        if fault is not None:
            raise InvalidRequest(fault, "INVALID_NAME")
    return SubscriberOptions(topic, subscription, name, config, priority, spans, begin, window)
