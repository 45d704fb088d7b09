"""Ids of topics in a user's command: those that the user may not describe mean no topic at all.

Handlers would treat an id that exists otherwise than one that does not, and their answers would
tell. So all ids that are unknown *or* hidden are replaced by ids that no topic ever gets, before
the command enters the log, and put back in the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from logboom.wire.authorizer import MAX_TOPIC_ID
from logboom.wire.commands import AnyCommand, CommandResult
from logboom.wire.group_commands import ResetOffsets
from logboom.wire.transactions import Decide

Seen: TypeAlias = Callable[[int], bool]
_REPLACED: Final = re.compile(r"\d{19,}")


def conceal(command: AnyCommand, seen: Seen) -> AnyCommand:
    """Return a command in which only topics that are `seen` have their ids.

    All ids are below `MAX_TOPIC_ID`.
    """
    replace = msgspec.structs.replace
    if isinstance(command, ResetOffsets):
        offsets = [(_shown(topic, seen), *rest) for topic, *rest in command.offsets]
        return replace(command, offsets=offsets)
    if isinstance(command, Decide):
        parked = [replace(p, topic_id=_shown(p.topic_id, seen)) for p in command.parked]
        consumed = [
            replace(of, offsets=[replace(o, topic_id=_shown(o.topic_id, seen)) for o in of.offsets])
            for of in command.consumed
        ]
        return replace(command, parked=parked, consumed=consumed)
    return command


def _shown(topic_id: int, seen: Seen) -> int:
    return topic_id if seen(topic_id) else topic_id + MAX_TOPIC_ID


def reveal(result: CommandResult) -> CommandResult:
    """Return the result of a concealed command, with the ids that the user has given."""
    if not result.code:
        return result
    fields = {k: _given(v) if isinstance(v, str) else v for k, v in result.fields.items()}
    return msgspec.structs.replace(result, text=_given(result.text), fields=fields)


def _given(text: str) -> str:
    return _REPLACED.sub(lambda found: str(int(found[0]) % MAX_TOPIC_ID), text)
