"""What the audit log of a node says, pure: lines of JSON, and how many of them.

A line tells who did or was refused what, by its name. It never holds the contents of messages, nor
keys, public ones included: a key is named by its label and a mark. Refusals of one user at one
address are told once a second, with their number. So is what a user does beyond its rate of lines.
What needs a right over the cluster is not limited: those who have it are few, and their lines are also
kept apart (`audit_file.py`), so that nobody else can push them out.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from logboom.wire.access.access_rules import AccessRule, UserKey, user_of
from logboom.wire.actor import Instant
from logboom.wire.event_table import Plain
from logboom.wire.log_format import printable
from logboom.wire.refusal_counter import RefusalCounter

MAX_TEXT_CHARS: Final = 256
"""Maximum length of a text in a line."""
MAX_LISTED: Final = 20
"""Maximum number of elements of a list in a line."""
MAX_UNTAKEN: Final = 10_000
"""Lines that may wait to be written; further ones are counted as lost."""
USER_LINES_PER_S: Final = 5.0
"""Lines a second about what one user did within its own rights; the rest is counted."""
USER_LINES: Final = 50.0
"""Lines that a quiet user may cause at once."""
MAX_USERS: Final = 10_000
"""Users whose lines are counted; the longest quiet one is forgotten first."""
UNTOLD_FIELDS: Final = frozenset(
    {"id", "number", "proposer", "time_ms", "timeout_ms", "incarnation", "seen_version"}
)
"""Fields of commands that say nothing about what is asked."""


class AuditEntry(Struct, omit_defaults=True, kw_only=True):
    """One line, without its time."""

    time: str = ""
    """UTC, by the clock of the node (RFC 3339)."""
    node: str = ""
    event: str
    """command, request, refused, authentication, audit."""
    user: str = ""
    """Empty on a listener without keys."""
    key: str = ""
    """Label and mark of the key with which the connection was opened."""
    address: str = ""
    """IP address of the peer."""
    client: str = ""
    """What a client calls itself: this is not checked."""
    request: str = ""
    """Type of the request or command."""
    verb: str = ""
    resource: str = ""
    """kind:name."""
    result: str = ""
    """ok, or the code of the error."""
    rule: str = ""
    """The rule that decided, or why there was none."""
    details: dict[str, Plain] = {}
    request_id: int = 0
    """Number of the request on its connection."""
    count: int = 0
    """Refusals that this line stands for, or lines that were lost."""


class _LineRate:
    """The lines that one user may still cause."""

    __slots__ = ("left", "since")

    def __init__(self, left: float, now: float) -> None:
        self.left = left
        self.since = now

    def take(self, now: float) -> bool:
        self.left = min(USER_LINES, self.left + max(0.0, now - self.since) * USER_LINES_PER_S)
        self.since = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


class AuditLog:
    """The lines of one node that are still to be written."""

    def __init__(self, node: str) -> None:
        self.lost = 0
        """Lines that nobody took in time."""
        self.entries = 0
        """Lines that were made."""
        self._node = node
        self._now = Instant(0.0, 0)
        self._lines: list[bytes] = []
        self._kept: list[bytes] = []
        self._refusals = RefusalCounter[tuple[str, ...], AuditEntry](self._tell)
        self._repeats = RefusalCounter[tuple[str, ...], AuditEntry](self._tell_served)
        self._rates: dict[str, _LineRate] = {}
        """By user, or address on a listener without keys; the longest quiet one first."""

    def begin(self, now: Instant) -> None:
        """Begin a turn of the node; tell the numbers of refusals that are due."""
        self._now = now
        self._refusals.tick(now.mono)
        self._repeats.tick(now.mono)

    def refused(self, entry: AuditEntry) -> None:
        """Note a refusal."""
        self._refusals.add((entry.user, entry.address), entry, self._now.mono)

    def managed(self, entry: AuditEntry) -> None:
        """Note what somebody did, one by one up to a rate unless it needed a right over the cluster."""
        if entry.verb == "admin":
            before = len(self._lines)
            self.note(entry)
            self._kept += self._lines[before:]
        elif self._has_room(entry.user or entry.address):
            self.note(entry)
        else:
            self.repeated(entry)

    def repeated(self, entry: AuditEntry) -> None:
        """Note what is done again and again: once a second for each user, request and resource."""
        key = (entry.user, entry.address, entry.event, entry.request, entry.resource)
        self._repeats.add(key, entry, self._now.mono)

    def _has_room(self, who: str) -> bool:
        """Take one line from the rate of a user; False if it is used up."""
        rate = self._rates.pop(who, None) or _LineRate(USER_LINES, self._now.mono)
        self._rates[who] = rate
        if len(self._rates) > MAX_USERS:
            del self._rates[next(iter(self._rates))]
        return rate.take(self._now.mono)

    def note(self, entry: AuditEntry) -> None:
        """Note anything else."""
        if len(self._lines) >= MAX_UNTAKEN:
            self.lost += 1
            return
        entry.time = datetime.fromtimestamp(self._now.wall_ms / 1000, UTC).isoformat(
            timespec="milliseconds"
        )
        entry.node = self._node
        for name in ("user", "client", "resource", "rule"):
            setattr(entry, name, shortened(getattr(entry, name)))
        self.entries += 1
        # Escapes of JSON, for what would steer a terminal or end a line there: bidirectional texts.
        line = printable(msgspec.json.encode(entry).decode()).encode() + b"\n"
        self._lines.append(line)

    def take(self) -> list[bytes]:
        """Return the lines made since the last call."""
        if not self._lines:
            return []
        lines, self._lines = self._lines, []
        return lines

    def take_kept(self) -> list[bytes]:
        """Return those lines made since the last call that are also kept apart."""
        if not self._kept:
            return []
        lines, self._kept = self._kept, []
        return lines

    def drop(self) -> None:
        """Forget the lines, since nobody keeps them."""
        self._lines.clear()
        self._kept.clear()

    def _tell(self, _key: tuple[str, ...] | None, entry: AuditEntry | None, count: int) -> None:
        if entry is None:
            entry = AuditEntry(event="refused", rule="of many other users and addresses")
        entry.count = count
        self.note(entry)

    def _tell_served(
        self, _key: tuple[str, ...] | None, entry: AuditEntry | None, count: int
    ) -> None:
        if entry is None:
            entry = AuditEntry(event="request", rule="of many other users and addresses")
        entry.count = count
        self.note(entry)


def entry_about(event: str, principal: str | None, address: str, client: str = "") -> AuditEntry:
    """Return an entry that says who it is about, and nothing else yet."""
    if principal is None:
        return AuditEntry(event=event, address=address, client=client)
    key = principal.partition("/")[2]
    return AuditEntry(event=event, user=user_of(principal), key=key, address=address, client=client)


def lost_line(node: str, now: Instant, count: int) -> bytes:
    """Return the line that stands for lines that could not be written."""
    log = AuditLog(node)
    log.begin(now)
    log.note(AuditEntry(event="audit", result="LOST", count=count))
    return log.take()[0]


def details_of(command: Struct) -> dict[str, Plain]:
    """Return the fields of a command that may be told: names, numbers and settings.

    Bytes are left out whatever they are, and of a key its label alone is told.
    """
    found: dict[str, Plain] = {}
    for name in command.__struct_fields__:
        value = getattr(command, name)
        if name in UNTOLD_FIELDS or value is None or value == "":
            continue
        plain = _plain(value)
        if plain is not None:
            found[name] = plain
    return found


def _plain(value: Any) -> Plain:
    match value:
        case bool() | int() | float():
            return value
        case str():
            return shortened(value)
        case UserKey():
            return {"label": value.label, "end_ms": value.end_ms}
        case AccessRule():
            return str(value)
        case Struct():
            return _settings(value)
        case list() | tuple():
            return _listed(value)
        case _:
            return None


def _settings(value: Struct) -> Plain:
    """Return the fields of a record that are not left at their defaults."""
    settings: dict[str, Plain] = {}
    for field in msgspec.structs.fields(value):
        held = getattr(value, field.name)
        plain = None if held == field.default or field.name == "public" else _plain(held)
        if plain is not None:
            settings[field.name] = plain
    return settings


def _listed(values: Iterable[Any]) -> Plain:
    plain: list[Plain] = [each for value in values if (each := _plain(value)) is not None]
    if len(plain) > MAX_LISTED:
        return [*plain[:MAX_LISTED], f"and {len(plain) - MAX_LISTED} more"]
    return plain


def shortened(text: str) -> str:
    """Return a text that others chose, as long as a line may tell it."""
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[: MAX_TEXT_CHARS - 1]}…"
