"""Dispatch plug-ins: functions of the operator's that judge batches before they are delivered.

A broker's setting `dispatch_filters` names them as `package.module:function`. They are loaded when
the broker starts, from where Python finds modules, and are called in this order with the topic, the
subscription and the batch:

    def judge(topic: str, subscription: str, entry: Entry) -> Said: ...

"accept" delivers it, "reject" counts it as acknowledged, "reschedule" asks again a second later. One
that raises, or says anything else, is counted (`dispatch_plug_in_errors`), and is asked again too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from logboom.nodes.subscriptions.dispatch_events import Entry
from logboom.nodes.subscriptions.entry_filter import Said
from logboom.wire.errors import StartError

DispatchFilter: TypeAlias = Callable[[str, str, Entry], Said]

_SETTING: Final = "dispatch_filters"


def load(names: Sequence[str]) -> tuple[DispatchFilter, ...]:
    """The functions that these names mean.

    Raises:
        StartError: BAD_CONFIG: one is not there, or cannot be imported.
    """
    return tuple(_load(name) for name in names)


def _load(name: str) -> DispatchFilter:
    module_name, _, function = name.partition(":")
    if not module_name or not function.isidentifier():
        raise _bad(name, "write package.module:function")
    try:
        module = importlib.import_module(module_name)
    # A module of somebody else's: whatever it raises is said in one line, and the node ends.
    except Exception as error:
        raise _bad(name, f"module {module_name!r} cannot be imported: {error!r}") from error
    found: Any = getattr(module, function, None)
    if not callable(found):
        raise _bad(name, f"module {module_name!r} has no function {function!r}")
    judge: DispatchFilter = found
    return judge


def _bad(name: str, why: str) -> StartError:
    return StartError(f"{_SETTING}: {name!r}: {why}", "BAD_CONFIG")
