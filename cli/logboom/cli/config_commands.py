"""`logboom config`: settings that count while the cluster runs, and those of the config files."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from cyclopts import App, Parameter

from logboom.cli.connection import open_client, open_operator_client
from logboom.cli.output import note, note_errors, show, show_json
from logboom.cli.parameters import OperatorServers, Output, Servers
from logboom.client import Client
from logboom.client.results import NodeConfig
from logboom.client.written_values import number_text
from logboom.metadata.config import NameServerConfig
from logboom.nodes.config import BrokerConfig
from logboom.wire.errors import InvalidRequest, Unavailable
from logboom.wire.messages import ConfigEntry
from logboom.wire.settings import (
    CLUSTER_SCOPE,
    LOG_LEVEL,
    LOGGERS,
    SETTINGS,
    Setting,
    find_setting,
    value_text,
)
from logboom.wire.view import SettingView

app = App(
    name="config",
    help="Settings while the cluster runs: list, get, set, unset. They count at once and survive "
    "restarts.",
)

COLUMNS: Final = ["setting", "value", "source", "node", "unit"]
COLUMNS_OF_NODE: Final = ["setting", "value", "source", "default", "unit", "restart"]
Name: TypeAlias = Annotated[str, Parameter(help="The setting, as `logboom config list` names it.")]
Node: TypeAlias = Annotated[
    str,
    Parameter(
        name=["--node", "-n"], help="The id of a broker or name server, whose own value wins."
    ),
]


@app.command(name="list")
def list_settings(*, node: Node = "", servers: Servers = None, output: Output = "table") -> None:
    """List the settings that can be changed now, and where a node goes by another value.

    The source of a value is, the strongest first: node (set for it), cluster (set for all), file (the
    node's config file), default. With --node, all settings of that node are listed, those too that
    need a restart: change these in its config file.

    For example:

        logboom config list
        logboom config list --node broker-1
    """
    with open_client(servers) as boom:
        found = boom.admin.describe_config(node)
        if node:
            show([_row_of_node(each) for each in _entries(found[0])], COLUMNS_OF_NODE, output)
            return
        rows = boom.admin.list_settings()
    listed = [_row(name, rows) for name in _names(rows)]
    for each in found:
        listed += [_own_row(each.node, entry) for entry in each.entries if _is_own(entry)]
    show(sorted(listed, key=lambda row: (row["setting"], row["node"] or "")), COLUMNS, output)
    note_errors({each.node: each.error for each in found if each.error})
    note(f"a logger has its own level: {LOG_LEVEL}.LOGGER, one of {', '.join(LOGGERS)}")


@app.command(name="get")
def get_setting(
    name: Name, *, node: Node = "", servers: Servers = None, output: Output = "table"
) -> None:
    """Show a setting: its value, where that comes from, what is allowed, and what it does.

    For example:

        logboom config get move_bytes_per_s
        logboom config get move_bytes_per_s --node broker-1
    """
    with open_client(servers) as boom:
        if node:
            entry = _entry(boom, node, name)
            row = {**_row_of_node(entry), "help": entry.help}
        else:
            setting = _live(name)
            row = {**_row(name, boom.admin.list_settings()), "help": setting.help}
            row["default"] = value_text(setting.default)
    if output == "json":
        show_json(row)
        return
    if not row.get("restart"):
        row["allowed"] = find_setting(name).allowed()
    for key in ("setting", "value", "unit", "source", "default", "allowed", "restart", "help"):
        if row.get(key) not in (None, ""):
            print(f"{key + ':':<9} {'yes' if row[key] is True else row[key]}")


@app.command(name="set")
def set_setting(
    name: Name,
    value: Annotated[
        str,
        Parameter(help="The value. Bytes also as 512k or 10m, times also as 500ms, 90s or 15m."),
    ],
    *,
    node: Node = "",
    servers: OperatorServers = None,
) -> None:
    """Change a setting of the cluster, or of one node. It counts at once and needs no restart.

    For example:

        logboom config set move_bytes_per_s 20m
        logboom config set move_bytes_per_s 5m --node broker-1
        logboom config set replace_after_s 15m
        logboom config set log_level.metadata.raft debug --node name-1
    """
    setting = _live(name)
    text = number_text(value, setting.unit)
    # The cluster is not asked for what can be told here.
    setting.parse(text)
    _alter(name, text, node, servers)


@app.command(name="unset")
def unset_setting(name: Name, *, node: Node = "", servers: OperatorServers = None) -> None:
    """Forget the value of a setting, so that the next source counts: cluster, file or default.

    For example:

        logboom config unset move_bytes_per_s --node broker-1
    """
    _live(name)
    _alter(name, None, node, servers)


def _alter(name: str, text: str | None, node: str, servers: OperatorServers) -> None:
    with open_operator_client(servers) as boom:
        before = _value(boom, name, node)
        boom.admin.alter_settings({name: text}, node)
        rows = boom.admin.list_settings()
        after = _value(boom, name, node)
    where = f" of {node}" if node else ""
    note(f"{name}{where}: {before} → {after}")
    if not node:
        for row in rows:
            if row.name == name and row.scope != CLUSTER_SCOPE:
                note(f"{row.scope} has a value of its own, which wins: {row.value}")


def _value(boom: Client, name: str, node: str) -> str:
    """Return a value with its source, as the name servers have it."""
    rows = {row.scope: row.value for row in boom.admin.list_settings() if row.name == name}
    if node and node in rows:
        return f"{rows[node]} (node)"
    if CLUSTER_SCOPE in rows:
        return f"{rows[CLUSTER_SCOPE]} (cluster)"
    return f"{value_text(find_setting(name).default)} (default, unless a config file has another)"


def _names(rows: list[SettingView]) -> list[str]:
    """Return all names of `SETTINGS`, and the loggers that have a level of their own."""
    own = {row.name for row in rows if row.scope == CLUSTER_SCOPE} - SETTINGS.keys()
    return [*SETTINGS, *sorted(own)]


def _row(name: str, rows: list[SettingView]) -> dict[str, Any]:
    found = [row.value for row in rows if (row.scope, row.name) == (CLUSTER_SCOPE, name)]
    setting = SETTINGS.get(name)
    if setting is None and name.startswith(f"{LOG_LEVEL}."):
        setting = SETTINGS[LOG_LEVEL]
    default = "" if setting is None else value_text(setting.default)
    return {
        "setting": name,
        "value": found[0] if found else default,
        "source": "cluster" if found else "default",
        "node": None,
        "unit": "" if setting is None else setting.unit,
    }


def _own_row(node: str, entry: ConfigEntry) -> dict[str, Any]:
    return {
        "setting": entry.name,
        "value": entry.value,
        "source": entry.source,
        "node": node,
        "unit": entry.unit,
    }


def _is_own(entry: ConfigEntry) -> bool:
    return not entry.restart and entry.source in ("file", "node")


def _row_of_node(entry: ConfigEntry) -> dict[str, Any]:
    row = msgspec.structs.asdict(entry)
    row["setting"] = row.pop("name")
    return row


def _entries(found: NodeConfig) -> list[ConfigEntry]:
    """Return what a node goes by.

    Raises:
        Unavailable: it does not answer.
    """
    if found.error:
        raise Unavailable(f"{found.node}: {found.error}")
    return found.entries


def _entry(boom: Client, node: str, name: str) -> ConfigEntry:
    """Return a setting of a node, one of its config file too.

    Raises:
        InvalidRequest: it has no such setting; the text has the nearest names.
    """
    for entry in _entries(boom.admin.describe_config(node)[0]):
        if entry.name == name:
            return entry
    setting = find_setting(name)
    if name in SETTINGS:
        raise InvalidRequest(f"{node} does not go by {name}: ask without --node")
    return ConfigEntry(
        name,
        "as the logger above it",
        value_text(setting.default),
        "default",
        False,
        "",
        setting.help,
    )


def _live(name: str) -> Setting:
    """Return a setting that can be changed now.

    Raises:
        InvalidRequest: there is none of this name, or only the config file has it.
    """
    for config, what in ((BrokerConfig, "broker"), (NameServerConfig, "name server")):
        fields = {field.name for field in msgspec.structs.fields(config)}
        if name in fields and name not in SETTINGS:
            raise InvalidRequest(
                f"{name} stands in the config file of each {what}: change it there and restart the "
                f"{what}; `logboom config list --node ID` shows it"
            )
    return find_setting(name)
