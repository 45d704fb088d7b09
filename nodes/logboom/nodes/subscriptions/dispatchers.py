"""Makes the dispatcher of a subscription's type."""

from __future__ import annotations

from collections.abc import Sequence

from logboom.nodes.subscriptions.ack_set import AckSet
from logboom.nodes.subscriptions.dispatch_events import KINDS, Settings, Source
from logboom.nodes.subscriptions.dispatch_keys import KeysDispatcher
from logboom.nodes.subscriptions.dispatch_shared import SharedDispatcher
from logboom.nodes.subscriptions.dispatch_single import SingleDispatcher
from logboom.nodes.subscriptions.dispatcher import Dispatcher
from logboom.nodes.subscriptions.entry_filter import EntryFilter
from logboom.nodes.subscriptions.permits import DispatchRate
from logboom.wire.errors import InvalidRequest


def made(
    settings: Settings,
    source: Source,
    acks: AckSet,
    counts: dict[int, int] | None = None,
    entry_filter: EntryFilter | None = None,
    rates: Sequence[DispatchRate] = (),
    queue: int = 0,
) -> Dispatcher:
    """The dispatcher that these settings ask for; `queue` is the number of its queue.

    Raises:
        InvalidRequest: no such type, or a setting that cannot be.
    """
    check_settings(settings)
    given = (settings, source, acks, counts, entry_filter, rates)
    if settings.kind == "shared":
        return SharedDispatcher(*given)
    if settings.kind == "key_shared":
        return KeysDispatcher(*given)
    return SingleDispatcher(*given, queue)


def check_settings(settings: Settings) -> None:
    """
    Raises:
        InvalidRequest: what cannot be.
    """
    if settings.kind not in KINDS:
        text = f"no subscription type is called {settings.kind!r}: there are {', '.join(KINDS)}"
        raise InvalidRequest(text)
    for name in ("most_unacked", "most_unacked_all", "look_ahead"):
        if getattr(settings, name) < 1:
            raise InvalidRequest(f"{name} is 1 or more messages, not {getattr(settings, name)}")
    if settings.max_attempts < 0:
        raise InvalidRequest(f"max_attempts is 0 (never) or more, not {settings.max_attempts}")
    if settings.max_attempts and settings.kind in ("exclusive", "failover"):
        text = "max_attempts is for shared and key_shared"
        raise InvalidRequest(f"{text}: {settings.kind} keeps the order, so nothing may be left out")
    for name in ("ack_timeout_s", "failover_delay_s"):
        if not 0 <= getattr(settings, name) < 1e9:
            raise InvalidRequest(f"{name} is 0 or more seconds, not {getattr(settings, name)!r}")
