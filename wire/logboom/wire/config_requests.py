"""The settings that a node goes by, as it tells them on request; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from logboom.wire.key_pair import HIDDEN, Secret
from logboom.wire.messages import ConfigDescribed, ConfigEntry, DescribeConfig
from logboom.wire.settings import LOG_LEVEL, SETTINGS, LiveSettings, find_setting, value_text


def describe_config(
    message: DescribeConfig, node: str, role: str, config: Struct, settings: LiveSettings
) -> ConfigDescribed:
    """Answer with all settings of a node: live ones, and those that only its file can change.

    Args:
        role: "broker" or "name server".
        config: what its config file says.
        settings: what counts at it now.
    """
    entries = [_live(name, settings) for name in _live_names(role, settings)]
    entries += [
        _of_file(field, getattr(config, field.name))
        for field in msgspec.structs.fields(config)
        if field.name not in SETTINGS
    ]
    return ConfigDescribed(message.id, node, role, sorted(entries, key=lambda each: each.name))


def _live_names(role: str, settings: LiveSettings) -> list[str]:
    names = [
        name
        for name, setting in SETTINGS.items()
        if (setting.of_brokers if role == "broker" else setting.of_name_servers)
    ]
    return [*names, *(name for name in settings.sources if name not in SETTINGS)]


def _live(name: str, settings: LiveSettings) -> ConfigEntry:
    setting = find_setting(name)
    if name in SETTINGS:
        value = getattr(settings, name)
    else:
        logger = f"logboom{name.removeprefix(LOG_LEVEL)}"
        value = settings.logger_levels.get(logger, setting.default)
    return ConfigEntry(
        name,
        value_text(value),
        value_text(setting.default),
        settings.sources[name],
        False,
        setting.unit,
        setting.help,
    )


def _of_file(field: msgspec.structs.FieldInfo, value: Any) -> ConfigEntry:
    default = field.default
    if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    known = "" if default is msgspec.NODEFAULT else _shown(default)
    source = "default" if default is not msgspec.NODEFAULT and value == default else "file"
    return ConfigEntry(field.name, _shown(value), known, source, True)


def _shown(value: Any) -> str:
    """Return a value of a config file as text; keys by the names of those who have them."""
    match value:
        case bool():
            return "true" if value else "false"
        case Secret() | bytes():
            return HIDDEN
        case Mapping():
            return ", ".join(map(str, value))
        case list() | tuple():
            return ", ".join(map(_shown, value))
        case Struct():
            pairs = msgspec.structs.asdict(value).items()
            return " ".join(f"{name}={_shown(each)}" for name, each in pairs if each or each == 0)
        case float():
            return value_text(value)
        case _:
            return str(value)
