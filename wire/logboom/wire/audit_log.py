"""What the audit log of a node says, pure: lines of JSON, and how many of them.

A line tells who did or was refused what, by its name. It never holds the contents of messages, nor
keys, public ones included: a key is named by its label and a mark. Refusals of one user at one
address are told once a second, with their number.

Each user has two shares of bytes, for the lines of what it does and of what it is refused; strangers
together have one for what they are refused. Beyond a share one line an hour says how many there were.
So no user fills the files within a day, and none uses up the share of another. What needs a right over
the cluster is not limited: those who have it are few, and their lines are also kept apart
(`audit_file.py`), so that nobody else can push them out.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from operator import itemgetter
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
MAX_LINE_BYTES: Final = 8 * 1024
"""Size beyond which a line leaves out its details, and most of its texts."""
SHARE_BYTES: Final = 512 * 1024
"""Bytes of lines of one share that a quiet user may cause at once."""
SHARE_BYTES_PER_HOUR: Final = 128 * 1024
"""Bytes of lines of one share that a user may cause all the time."""
COUNTED_EVERY_S: Final = 3600.0
"""Seconds between two lines that say how many were not written beyond a share."""
MAX_SHARES: Final = 20_000
"""Shares that are known; that of the longest quiet user is forgotten first, and is full again."""
TEXTS: Final = ("user", "client", "resource", "rule")
"""Fields that others choose."""
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
    """Refusals or requests that this line stands for, or lines that were lost."""
    beyond_share: bool = False
    """True if the lines of `count` were not written, since a share was used up; this is the last."""


class _Share:
    """The bytes of lines that one user may still cause; below 0 by part of a line."""

    __slots__ = ("left", "since")

    def __init__(self, now: float) -> None:
        self.left: float = SHARE_BYTES
        self.since = now

    def refill(self, now: float) -> None:
        gained = max(0.0, now - self.since) * SHARE_BYTES_PER_HOUR / 3600
        self.left = min(SHARE_BYTES, self.left + gained)
        self.since = now


class AuditLog:
    """The lines of one node that are still to be written."""

    def __init__(self, node: str) -> None:
        self.lost = 0
        """Lines that nobody took in time."""
        self.entries = 0
        """Lines that were made."""
        self._node = node
        self.now = Instant(0.0, 0)
        """Time of the turn."""
        self._lines: list[bytes] = []
        self._kept: list[bytes] = []
        self._refusals = RefusalCounter[tuple[str, ...], AuditEntry](
            self._tell_refused, whose=itemgetter(0)
        )
        self._repeats = RefusalCounter[tuple[str, ...], AuditEntry](self._tell_repeated)
        self._beyond = RefusalCounter[tuple[str, ...], AuditEntry](
            self._tell_beyond, COUNTED_EVERY_S
        )
        self._shares: dict[tuple[str, ...], _Share] = {}
        """By "done" or "refused" and whose it is; that of the longest quiet one first."""

    def begin(self, now: Instant) -> None:
        """Begin a turn of the node; tell the numbers that are due."""
        self.now = now
        self._refusals.tick(now.mono)
        self._repeats.tick(now.mono)
        self._beyond.tick(now.mono)

    def flush(self) -> None:
        """Tell all numbers, because the node ends."""
        self._refusals.flush()
        self._repeats.flush()
        self._beyond.flush()

    def refused(self, entry: AuditEntry, *, known: bool = True) -> None:
        """Note a refusal.

        Args:
            entry: the line; those without a user count as strangers.
            known: False if somebody only says that it is this user.
        """
        whose = entry.user if known else ""
        if self._share(("refused", whose)).left > 0:
            key = (whose, entry.user, entry.address, entry.result)
            self._refusals.add(key, entry, self.now.mono)
        else:
            # Without a place in the lines of this second, which others need.
            self._beyond.add(("refused", whose), entry, self.now.mono)

    def managed(self, entry: AuditEntry, *, itself: bool = False) -> None:
        """Note what somebody did; within its share, unless it needed a right over the cluster.

        Args:
            entry: the line.
            itself: True if the node has done it by itself.
        """
        if itself or entry.verb == "admin":
            before = len(self._lines)
            self.note(entry)
            self._kept += self._lines[before:]
        else:
            self._note_within(("done", entry.user or entry.address), entry, 1)

    def repeated(self, entry: AuditEntry) -> None:
        """Note what is done again and again: once a second for each user, request and resource."""
        key = (entry.user, entry.address, entry.event, entry.request, entry.resource)
        self._repeats.add(key, entry, self.now.mono)

    def _note_within(self, whose: tuple[str, ...], entry: AuditEntry, count: int) -> None:
        """Note what counts against a share; if that is used up, count it."""
        share = self._share(whose)
        if share.left > 0:
            share.left -= self.note(entry)
        else:
            self._beyond.add(whose, entry, self.now.mono, count)

    def _share(self, whose: tuple[str, ...]) -> _Share:
        share = self._shares.pop(whose, None) or _Share(self.now.mono)
        self._shares[whose] = share
        if len(self._shares) > MAX_SHARES:
            del self._shares[next(iter(self._shares))]
        share.refill(self.now.mono)
        return share

    def note(self, entry: AuditEntry) -> int:
        """Note anything else. Return the size of the line in bytes."""
        if len(self._lines) >= MAX_UNTAKEN:
            self.lost += 1
            return 0
        entry.time = datetime.fromtimestamp(self.now.wall_ms / 1000, UTC).isoformat(
            timespec="milliseconds"
        )
        entry.node = self._node
        self.entries += 1
        line = _line_of(entry)
        self._lines.append(line)
        return len(line)

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

    def _tell_refused(
        self, key: tuple[str, ...] | None, entry: AuditEntry | None, count: int
    ) -> None:
        whose = "" if key is None else key[0]
        self._note_within(("refused", whose), _counted("refused", entry, count), count)

    def _tell_repeated(
        self, _key: tuple[str, ...] | None, entry: AuditEntry | None, count: int
    ) -> None:
        self.note(_counted("request", entry, count))

    def _tell_beyond(
        self, _key: tuple[str, ...] | None, entry: AuditEntry | None, count: int
    ) -> None:
        told = _counted("audit", entry, count)
        told.beyond_share = True
        self.note(told)


def _counted(event: str, entry: AuditEntry | None, count: int) -> AuditEntry:
    """Return the line that stands for several; without an entry, for those of many users."""
    if entry is None:
        entry = AuditEntry(event=event, rule="of many other users and addresses")
    entry.count = count
    return entry


def _line_of(entry: AuditEntry) -> bytes:
    line = _encoded(entry, MAX_TEXT_CHARS)
    if len(line) > MAX_LINE_BYTES:
        entry.details = {"left_out_bytes": len(line)}
        line = _encoded(entry, MAX_TEXT_CHARS)
    if len(line) > MAX_LINE_BYTES:
        # Texts of characters that are escaped.
        line = _encoded(entry, MAX_TEXT_CHARS // 8)
    return line


def _encoded(entry: AuditEntry, text_chars: int) -> bytes:
    for name in TEXTS:
        setattr(entry, name, shortened(getattr(entry, name), text_chars))
    # Escapes of JSON, for what would steer a terminal or end a line there: bidirectional texts.
    return printable(msgspec.json.encode(entry).decode()).encode() + b"\n"


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


def shortened(text: str, chars: int = MAX_TEXT_CHARS) -> str:
    """Return a text that others chose, as long as a line may tell it."""
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
