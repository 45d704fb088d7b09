"""Settings that the cluster keeps for its nodes and that count without a restart.

They are replicated by the name servers, as text. A value for one node wins over a value for the
whole cluster, which wins over the node's config file, which wins over the default. Names and values
are checked where a change is proposed, and not where it is applied: name servers of two releases
know different settings, and must still agree on their state. A node ignores what it does not know.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from logboom.wire.errors import InvalidRequest

Value: TypeAlias = int | float | str
Source: TypeAlias = Literal["default", "file", "cluster", "node"]
"""Where the value of a setting comes from, the weakest first."""
Kind: TypeAlias = Literal["whole", "number", "choice"]

CLUSTER_SCOPE: Final = ""
"""The scope of a value that counts at all nodes; other scopes are node ids."""
LOG_LEVEL: Final = "log_level"
LEVELS: Final = ("debug", "info", "warning", "error")
LOGGERS: Final = (
    "client",
    "metadata",
    "metadata.access",
    "metadata.duties",
    "metadata.raft",
    "metadata.server",
    "metadata.state",
    "nodes",
    "nodes.cluster",
    "nodes.disk",
    "nodes.groups",
    "nodes.replication",
    "nodes.salvage",
    "nodes.server",
    "nodes.subscriptions",
    "wire",
    "wire.audit",
    "wire.connections",
)
"""Loggers of the nodes, without the `logboom.` in front; `log_level.nodes` includes those below."""
DAY_MS: Final = 86_400_000
MAX_VALUE: Final = 2**53
"""Greatest value of a setting: what is computed with it still fits into messages."""


class Setting(Struct, frozen=True, kw_only=True):
    """One setting: its values, and what it does."""

    name: str
    kind: Kind
    default: Value
    unit: str = ""
    least: float = 0
    most: float = MAX_VALUE
    choices: tuple[str, ...] = ()
    help: str
    of_brokers: bool = True
    """True if brokers go by it, and it can be set for one of them."""
    of_name_servers: bool = False
    """True if name servers go by it."""
    per_node: bool = True
    """False if it counts for the cluster as a whole only."""

    def parse(self, text: str) -> Value:
        """Return the value of a text.

        Raises:
            InvalidRequest: INVALID_ARGUMENT; the text says what is allowed.
        """
        text = text.strip()
        if self.kind == "choice":
            if text not in self.choices:
                raise self._wrong(text)
            return text
        try:
            value: int | float = int(text) if self.kind == "whole" else float(text)
        except ValueError:
            raise self._wrong(text) from None
        if not self.least <= value <= self.most:  # neither is nan
            raise self._wrong(text)
        return value

    def allowed(self) -> str:
        """Return which values are allowed, in words."""
        if self.kind == "choice":
            return ", ".join(self.choices)
        kind = "a whole number" if self.kind == "whole" else "a number"
        unit = f" of {self.unit}" if self.unit else ""
        if self.most == MAX_VALUE:
            return f"{kind}{unit} from {self.least:g} on"
        return f"{kind}{unit} from {self.least:g} to {self.most:g}"

    def _wrong(self, text: str) -> InvalidRequest:
        return InvalidRequest(f"{self.name} cannot be {text!r}: give {self.allowed()}")


_TABLE: Final = (
    Setting(
        name="balance_mode",
        kind="choice",
        choices=("off", "new-broker", "continuous"),
        default="new-broker",
        help="When replicas move so that brokers hold even shares: off, new-broker (only onto a "
        "broker that was added), or continuous.",
        of_brokers=False,
        of_name_servers=True,
        per_node=False,
    ),
    Setting(
        name="replace_after_s",
        kind="number",
        unit="seconds",
        default=0.0,
        help="How long a broker must be dead before its replicas are made anew on others; 0: never.",
        of_brokers=False,
        of_name_servers=True,
        per_node=False,
    ),
    Setting(
        name="rebalance_after_s",
        kind="number",
        unit="seconds",
        default=5.0,
        help="How long the preferred replica of a queue must be in sync before it leads again; 0: "
        "leaders stay where they are.",
        of_brokers=False,
        of_name_servers=True,
        per_node=False,
    ),
    Setting(
        name="move_bytes_per_s",
        kind="whole",
        unit="bytes per second",
        default=0,
        help="The most that a broker takes for moves from all others, and sends to each other one; "
        "0: a quarter of what its disk was seen to do, at least 4 MiB/s. Replication is never limited.",
    ),
    Setting(
        name="replica_delete_grace_s",
        kind="number",
        unit="seconds",
        default=60.0,
        help="After how long a broker deletes a replica that was moved to another one.",
    ),
    Setting(
        name="scrub_bytes_per_s",
        kind="whole",
        unit="bytes per second",
        default=8 * 1024 * 1024,
        help="How fast stored entries are read and checked in the background; 0: not at all.",
    ),
    Setting(
        name="scrub_every_s",
        kind="number",
        unit="seconds",
        default=3_600.0,
        help="The least time from the start of one check of everything to the start of the next.",
    ),
    Setting(
        name="compaction_messages_per_s",
        kind="whole",
        unit="messages per second",
        least=1,
        default=25_000,
        help="How fast compacted topics are processed, over all queues of a broker.",
    ),
    Setting(
        name="retention_check_ms",
        kind="whole",
        unit="milliseconds",
        least=100,
        most=DAY_MS,
        default=5_000,
        help="The time between two checks of what retention may remove.",
    ),
    Setting(
        name="fetch_bytes",
        kind="whole",
        unit="bytes",
        least=64 * 1024,
        most=64 * 1024 * 1024,
        default=4 * 1024 * 1024,
        help="The most that one answer to a follower holds.",
    ),
    Setting(
        name="disk_reserve_bytes",
        kind="whole",
        unit="bytes",
        default=1024 * 1024 * 1024,
        help="Free bytes of the file system below which writes are refused; 0: only the percentage "
        "counts.",
    ),
    Setting(
        name="disk_reserve_percent",
        kind="number",
        unit="percent",
        most=99,
        default=5.0,
        help="The same limit in percent of the file system; the smaller limit counts. 0: only the "
        "bytes count.",
    ),
    Setting(
        name="transaction_timeout_ms",
        kind="whole",
        unit="milliseconds",
        least=1,
        default=15 * 60_000,
        help="How long a batch may wait for its transaction before an abort is proposed.",
    ),
    Setting(
        name="half_check_after_ms",
        kind="whole",
        unit="milliseconds",
        least=1,
        default=6_000,
        help="After how long a producer group is first asked about a half message.",
    ),
    Setting(
        name="half_check_every_ms",
        kind="whole",
        unit="milliseconds",
        least=1,
        default=30_000,
        help="The time between two of these questions.",
    ),
    Setting(
        name="half_checks",
        kind="whole",
        default=15,
        help="The number of questions after which a half message waits for an operator.",
    ),
    Setting(
        name="producer_expiry_ms",
        kind="whole",
        unit="milliseconds",
        least=60_000,
        default=7 * DAY_MS,
        help="After how long an idle idempotent producer is forgotten.",
    ),
    Setting(
        name=LOG_LEVEL,
        kind="choice",
        choices=LEVELS,
        default="info",
        help="What nodes write to their logs: this and what is worse. log_level.LOGGER sets it for a "
        "part, for example log_level.metadata.raft.",
        of_name_servers=True,
    ),
)

SETTINGS: Final[Mapping[str, Setting]] = {each.name: each for each in _TABLE}
"""All settings by name, except those of single loggers: see `find_setting`."""


def find_setting(name: str) -> Setting:
    """Return the setting of a name.

    Raises:
        InvalidRequest: INVALID_ARGUMENT: there is none; the text has the nearest names.
    """
    found = SETTINGS.get(name)
    if found is not None:
        return found
    part = name.removeprefix(f"{LOG_LEVEL}.")
    if part != name and part in LOGGERS:
        return _of_logger(part)
    raise InvalidRequest(f"there is no setting {name!r}: {_suggestion(name)}")


def _of_logger(part: str) -> Setting:
    return Setting(
        name=f"{LOG_LEVEL}.{part}",
        kind="choice",
        choices=LEVELS,
        default="info",
        help=f"The same for logboom.{part} and the loggers below it.",
        of_name_servers=True,
    )


def _suggestion(name: str) -> str:
    known = [*SETTINGS, *(f"{LOG_LEVEL}.{part}" for part in LOGGERS)]
    near = difflib.get_close_matches(name, known, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(near)}? `logboom config list` has all"
    return "`logboom config list` has all"


def check_values(scope: str, values: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return a change of settings as it is stored: each value as its number or word, None unsets.

    Raises:
        InvalidRequest: INVALID_ARGUMENT: a name or a value is wrong, or a setting of the cluster
            was given for one node.
    """
    if not values:
        raise InvalidRequest("no setting was given: name one, `logboom config list` has all")
    checked: dict[str, str | None] = {}
    for name, text in values.items():
        setting = find_setting(name)
        if scope != CLUSTER_SCOPE and not setting.per_node:
            raise InvalidRequest(f"{name} counts for the whole cluster: set it without a node")
        checked[name] = None if text is None else value_text(setting.parse(text))
    return checked


def value_text(value: Value) -> str:
    """Return the text of a value, as it is stored."""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


class LiveSettings:
    """The settings that count at one node now. They follow the replicated ones."""

    balance_mode: str
    replace_after_s: float
    rebalance_after_s: float
    move_bytes_per_s: int
    replica_delete_grace_s: float
    scrub_bytes_per_s: int
    scrub_every_s: float
    compaction_messages_per_s: int
    retention_check_ms: int
    fetch_bytes: int
    disk_reserve_bytes: int
    disk_reserve_percent: float
    transaction_timeout_ms: int
    half_check_after_ms: int
    half_check_every_ms: int
    half_checks: int
    producer_expiry_ms: int
    log_level: str

    def __init__(self, node: str, config: object = None) -> None:
        """Begin with what the config file of a node says.

        Args:
            node: the id of the node, whose own values win.
            config: its settings; those that have the name of a setting count.
        """
        self._node = node
        self._of_file: dict[str, Value] = {
            name: getattr(config, name) for name in SETTINGS if hasattr(config, name)
        }
        self.sources: dict[str, Source] = {}
        """Where each value comes from."""
        self.logger_levels: dict[str, str] = {}
        """Logger → level, for those that were set; the logger `logboom` stands for all."""
        self.follow(())

    def follow(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Take over the replicated settings, all of them, as (scope, name, value)."""
        replicated = {(scope, name): value for scope, name, value in rows}
        levels: dict[str, str] = {}
        self.sources = {}
        for name, setting in SETTINGS.items():
            value, source = self._value(setting, replicated)
            setattr(self, name, value)
            self.sources[name] = source
        names = {name for scope, name in replicated if scope in (CLUSTER_SCOPE, self._node)}
        for name in sorted(names):
            try:
                setting = find_setting(name)
            except InvalidRequest:
                continue  # A newer release has it.
            if name == LOG_LEVEL or name.startswith(f"{LOG_LEVEL}."):
                value, source = self._value(setting, replicated)
                self.sources[name] = source
                if source in ("cluster", "node"):
                    levels[f"logboom{name.removeprefix(LOG_LEVEL)}"] = str(value)
        self.logger_levels = levels

    def _value(
        self, setting: Setting, replicated: Mapping[tuple[str, str], str]
    ) -> tuple[Value, Source]:
        sources: tuple[tuple[str, Source], ...] = ((self._node, "node"), (CLUSTER_SCOPE, "cluster"))
        for scope, source in sources:
            text = replicated.get((scope, setting.name))
            if text is None or (scope != CLUSTER_SCOPE and not setting.per_node):
                continue
            try:
                return setting.parse(text), source
            except InvalidRequest:
                continue  # A newer release allows it.
        of_file = self._of_file.get(setting.name, setting.default)
        return of_file, "default" if of_file == setting.default else "file"
