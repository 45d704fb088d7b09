"""Settings of the cluster and of nodes, and log levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logboom.client.results import NodeConfig
from logboom.client.written_values import number_text
from logboom.console.pages.settings_page import (
    ClusterSettingsModel,
    NodeSettingsModel,
    build_node_settings,
    build_settings,
)
from logboom.console.site import (
    ActionDone,
    ActionPreview,
    ConsoleAction,
    FormField,
    NavigationEntry,
    PageRequest,
    PageRoute,
    Subject,
)
from logboom.console.widgets.page_query import FormValues
from logboom.wire.settings import find_setting, value_text
from logboom.wire.view import SettingView

HIDDEN = (
    FormField("setting", kind="hidden", required=True),
    FormField("node", kind="hidden"),
)


async def _rows(request: PageRequest) -> Sequence[SettingView]:
    return await request.cluster.cached("settings", request.cluster.boom.admin.list_settings)


async def _configs(request: PageRequest) -> Sequence[NodeConfig]:
    return await request.cluster.cached("configs", request.cluster.boom.admin.describe_config)


async def load_settings(request: PageRequest) -> ClusterSettingsModel:
    """Ask for the settings of the cluster."""
    return build_settings(await _rows(request), await _configs(request), request.query)


async def load_node_settings(request: PageRequest) -> NodeSettingsModel:
    """Ask for the settings of one node."""
    node = request.parts["node"]
    admin = request.cluster.boom.admin
    (found,) = await request.cluster.cached(f"config {node}", lambda: admin.describe_config(node))
    return build_node_settings(found, await _rows(request), request.query)


def _where(values: FormValues) -> str:
    node = values.text("node")
    return f" of {node}" if node else " of the cluster"


def _checked(values: FormValues) -> str:
    """Return the new value as it is stored.

    Raises:
        InvalidRequest: there is no such setting, or the value is not allowed.
    """
    setting = find_setting(values.text("setting"))
    return value_text(setting.parse(number_text(values.text("new_value"), setting.unit)))


async def preview_change(request: PageRequest, values: FormValues) -> ActionPreview:
    """Say what the value is now, and what the setting does."""
    setting = find_setting(values.text("setting"))
    node = values.text("node")
    rows = await request.cluster.boom.admin.list_settings()
    found = {row.scope: row.value for row in rows if row.name == setting.name}
    facts = [
        ("Now", found.get(node) or found.get("") or f"{value_text(setting.default)} (default)")
    ]
    if "new_value" in values:
        facts.append(("Then", _checked(values)))
    facts += [("Allowed", setting.allowed()), ("Does", setting.help)]
    own = [] if node else [f"{scope}: {value}" for scope, value in found.items() if scope]
    warning = f"These nodes have values of their own, which win: {', '.join(own)}" if own else ""
    return ActionPreview(tuple(facts), warning=warning)


async def prefill_value(request: PageRequest, values: FormValues) -> Mapping[str, str]:
    """Fill in the value of now."""
    setting = find_setting(values.text("setting"))
    rows = await request.cluster.boom.admin.list_settings()
    found = {row.scope: row.value for row in rows if row.name == setting.name}
    now = found.get(values.text("node")) or found.get("")
    return {"new_value": now if now is not None else value_text(setting.default)}


async def change_setting(request: PageRequest, values: FormValues) -> ActionDone:
    """Set a setting of the cluster or of a node."""
    name, text = values.text("setting"), _checked(values)
    await request.cluster.boom.admin.alter_settings({name: text}, values.text("node"))
    return ActionDone(f"{name}{_where(values)} is {text}. It counts now.")


def set_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom config set`."""
    return ("config", "set", values.text("setting"), _checked(values), *_node_words(values))


def _node_words(values: FormValues) -> Sequence[str]:
    node = values.text("node")
    return ("--node", node) if node else ()


SET = ConsoleAction(
    name="config.set",
    title="Change a setting",
    button="Set it",
    fields=(
        *HIDDEN,
        FormField(
            "new_value",
            "Value",
            required=True,
            hint="Bytes also as 512k or 10m, times also as 500ms, 90s or 15m. It counts at once, "
            "without a restart.",
        ),
    ),
    command=set_command,
    question=lambda values: f"Set {values.text('setting')}{_where(values)} to {_checked(values)}?",
    prefill=prefill_value,
    preview=preview_change,
    run=change_setting,
)


async def forget_setting(request: PageRequest, values: FormValues) -> ActionDone:
    """Forget a value, so that the next source counts."""
    name = values.text("setting")
    find_setting(name)
    await request.cluster.boom.admin.alter_settings({name: None}, values.text("node"))
    return ActionDone(f"{name}{_where(values)} is not set any more: the next source counts.")


UNSET = ConsoleAction(
    name="config.unset",
    title="Forget a setting",
    button="Forget it",
    fields=HIDDEN,
    command=lambda values: ("config", "unset", values.text("setting"), *_node_words(values)),
    question=lambda values: (
        f"Forget the value of {values.text('setting')}{_where(values)}, so that the next source counts: "
        "cluster, file or default?"
    ),
    preview=preview_change,
    run=forget_setting,
)
SUBJECT = Subject(
    pages=(
        PageRoute("/settings", load_settings, "settings.html"),
        PageRoute("/settings/{node}", load_node_settings, "node_settings.html"),
    ),
    actions=(SET, UNSET),
    navigation=(NavigationEntry("Settings", "/settings", 90),),
)
