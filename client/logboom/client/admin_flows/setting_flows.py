"""The admin's flows for settings of a running cluster (see `logboom.client.flows`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from logboom.client.calls import AskRaftLeader, ProposeCommand
from logboom.client.fetch.message_flows import unexpected
from logboom.client.flows import Flow, ask_nodes
from logboom.client.results import NodeConfig
from logboom.wire.commands import Barrier, CommandResult
from logboom.wire.errors import Forbidden, LogboomError, Unavailable
from logboom.wire.messages import ConfigDescribed, DescribeConfig, Watch, WatchResult
from logboom.wire.operation_commands import AlterSettings
from logboom.wire.settings import check_values, value_text
from logboom.wire.view import SettingView

MAX_TRIES: Final = 20
"""Questions for metadata as new as the barrier: a name server that does not lead may be behind."""


def list_settings(timeout: float) -> Flow[list[SettingView]]:
    """Return all settings that were set, by scope and name."""
    barrier: CommandResult = yield ProposeCommand(Barrier(), timeout)
    for _ in range(MAX_TRIES):
        answer, _ = yield AskRaftLeader(lambda ms: Watch(0, ms, -1, [], 0), timeout)
        if not isinstance(answer, WatchResult):
            raise unexpected(answer)
        if answer.view.version < barrier.version:
            continue
        if answer.view.settings is None:
            raise Forbidden(
                "settings are shown to those who may describe the cluster, by name servers of this "
                "release: ask an administrator for a rule, or upgrade the name servers"
            )
        return sorted(answer.view.settings, key=lambda each: (each.scope, each.name))
    raise Unavailable("no name server is as new as the last change: try again")


def alter_settings(
    values: Mapping[str, str | float | None], node: str, wall_ms: int, timeout: float
) -> Flow[None]:
    """Set settings, or unset those whose value is None; all of them or none.

    Raises:
        InvalidRequest: a name or a value is wrong; the text says what there is.
    """
    texts = {name: None if each is None else _text(each) for name, each in values.items()}
    yield ProposeCommand(AlterSettings(node, check_values(node, texts), wall_ms), timeout)


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else value_text(value)


def describe_config(node: str, timeout: float) -> Flow[list[NodeConfig]]:
    """Return the settings that all nodes go by, or one; for one that does not answer, the reason.

    Raises:
        UnknownResource: there is no such node.
    """
    found = []
    asked = yield from ask_nodes(node, partial(DescribeConfig, 0), timeout)
    for name, _, _, answer in asked:
        if isinstance(answer, LogboomError):
            found.append(NodeConfig(name, "", [], str(answer)))
        elif isinstance(answer, ConfigDescribed):
            found.append(NodeConfig(name, answer.role, answer.entries))
    return found
