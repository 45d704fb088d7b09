"""Arguments of a group's consumers, checked and converted to a member's options."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from logboom.client.groups.member import MemberOptions
from logboom.client.producer_options import reads_uncommitted, start_of
from logboom.wire.errors import InvalidRequest
from logboom.wire.filters import Filter
from logboom.wire.group_view import GroupConfig

EVERYTHING: Final = Filter()
SUBSCRIPTIONS: Final = ("same", "replace")


def subscription_of(topics: str | Sequence[str], wanted: Filter) -> dict[str, str]:
    """Return topic → filter text.

    Raises:
        InvalidRequest: there is no topic.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise InvalidRequest("a consumer needs at least one topic")
    return dict.fromkeys(names, wanted.text)


def group_config(
    start: object, settings: dict[str, object], call: Callable[..., object] | None = None
) -> GroupConfig:
    """Return the settings with which a group is created.

    Args:
        start: where a new group starts.
        settings: the other settings.
        call: the function that received the settings among its own arguments.

    Raises:
        InvalidRequest: a setting does not exist, or has another type.
    """
    check_names(settings, call)
    known = msgspec.structs.asdict(GroupConfig())
    try:
        begun = {**known, **settings, "start": start_of(start)}
        return msgspec.convert([*begun.values()], GroupConfig)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"a group setting has the wrong type: {error}") from None


def check_names(settings: dict[str, object], call: Callable[..., object] | None) -> None:
    """Check names of arguments.

    Raises:
        InvalidRequest: a name is neither a group setting nor an argument of `call`.
    """
    known = list(GroupConfig.__struct_fields__)
    own: list[str] = []
    if call is not None:
        taken = inspect.signature(call).parameters.values()
        own = [each.name for each in taken if each.kind is not each.VAR_KEYWORD]
    for name in settings:
        if name in known:
            continue
        text = f"no group setting is called {name!r}"
        if call is not None:
            text = f"{call.__name__} takes no {name!r}"
        near = difflib.get_close_matches(name, [*own, *known], 1)
        text += f", did you mean {near[0]!r}?" if near else ":"
        others = f"it takes {', '.join(own)}, and of a new group" if own else "there are"
        rest = [each for each in known if each not in own]
        raise InvalidRequest(f"{text} {others} {', '.join(rest)}")


def check_groupless(
    call: Callable[..., object], settings: dict[str, object], **given: object
) -> None:
    """Check the arguments of a consumer without a group.

    Raises:
        InvalidRequest: an argument is unknown, or requires a group.
    """
    check_names(settings, call)
    defaults = {name: each.default for name, each in inspect.signature(call).parameters.items()}
    named = [name for name, value in given.items() if value != defaults[name]] + list(settings)
    if named:
        text = f"{', '.join(named)}: of a group or its member; say group=… as well"
        raise InvalidRequest(text)


def check_whole(*, read_compacted: bool) -> None:
    """Check that a group's member does not read compacted messages.

    Raises:
        InvalidRequest: it wants to.
    """
    if read_compacted:
        text = "read_compacted requires a reader without a group: a group reads every message"
        raise InvalidRequest(f"{text}; leave out group, or read_compacted")


def member_options(
    topics: str | Sequence[str],
    group: str,
    member_id: str,
    *,
    queues: Sequence[int] | None = None,
    wanted: Filter = EVERYTHING,
    start: object = "first",
    instance: str = "",
    room: str = "",
    subscription: str = "same",
    commit_every_s: float = 5.0,
    max_poll_interval_ms: int = 0,
    prefetch_bytes: int = 32 * 1024 * 1024,
    isolation: str = "read_committed",
    settings: dict[str, object] | None = None,
    call: Callable[..., object] | None = None,
) -> MemberOptions:
    """Convert the arguments of an application to a member's options.

    With `max_poll_interval_ms` 0 nobody has to poll.

    Raises:
        InvalidRequest: an argument is invalid.
    """
    if queues is not None:
        raise InvalidRequest("a group assigns queues to its members: give a group, or queues")
    if subscription not in SUBSCRIPTIONS:
        raise InvalidRequest(f'subscription must be "same" or "replace", not {subscription!r}')
    if not commit_every_s >= 0:
        raise InvalidRequest(f"commit_every_s must be 0 or more seconds, not {commit_every_s!r}")
    if type(max_poll_interval_ms) is not int or max_poll_interval_ms < 0:
        text = f"max_poll_interval_ms must be 0 or more milliseconds, not {max_poll_interval_ms!r}"
        raise InvalidRequest(text)
    if not group:
        raise InvalidRequest("a group needs a name")
    return MemberOptions(
        group,
        member_id,
        subscription_of(topics, wanted),
        instance,
        room,
        subscription == "replace",
        group_config(start, settings or {}, call),
        commit_every_s,
        prefetch_bytes,
        reads_uncommitted(isolation),
        max_poll_interval_ms,
    )
