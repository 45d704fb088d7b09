"""What the parts of a node tell its audit log: refusals, management and its results, pure.

Strangers who are turned away stand in the node's own log, too.

What is in none of the lists below is routine: what nodes and applications do all day. A test has the
names of that, so that a new command or request is not forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, get_args

from logboom.wire.acceptor import PeerSession
from logboom.wire.access.access_book import AccessDecision
from logboom.wire.access.access_commands import AccessCommand
from logboom.wire.access.access_rules import user_of
from logboom.wire.access_requirements import COMMANDS, REQUESTS, Requirement
from logboom.wire.actor import Instant, Note, PeerAddress, note
from logboom.wire.audit_log import AuditEntry, AuditLog, details_of, entry_about, shortened
from logboom.wire.authorizer import Caller
from logboom.wire.backup_messages import FetchEntries, ReadState, RestoreEntries
from logboom.wire.base import Command, Request, WireMessage
from logboom.wire.commands import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    DiscardLostTopic,
    ElectLeader,
    RegisterBroker,
    RemoveBroker,
    RestoreCommand,
)
from logboom.wire.errors import LogboomError
from logboom.wire.group_commands import (
    AlterGroup,
    DeleteGroup,
    ResetOffsets,
)
from logboom.wire.messages import (
    AddNameServer,
    FinalizeUpgrade,
    Hello,
    KickConnection,
    Propose,
    Prove,
    RemoveNameServer,
)
from logboom.wire.operation_commands import OperationCommand
from logboom.wire.stats import Statistics
from logboom.wire.subscription_messages import (
    AlterSubscription,
)
from logboom.wire.transactions import (
    MADE_UP,
    NOT_FENCED,
    Decide,
)

MANAGEMENT: Final[tuple[type[Command], ...]] = (
    RegisterBroker,
    RemoveBroker,
    DiscardLostTopic,
    CreateTopic,
    AlterTopic,
    DeleteTopic,
    ElectLeader,
    AlterGroup,
    DeleteGroup,
    ResetOffsets,
    *get_args(AccessCommand),
    *get_args(OperationCommand),
    *get_args(RestoreCommand),
)
"""Commands that are told with their results, by the Raft leader that took them."""
MANAGEMENT_REQUESTS: Final[tuple[type[Request], ...]] = (
    AddNameServer,
    RemoveNameServer,
    FinalizeUpgrade,
    KickConnection,
    AlterSubscription,
    ReadState,
)
"""Requests that are told, though no command of the log follows from them."""
COUNTED_REQUESTS: Final[tuple[type[Request], ...]] = (FetchEntries, RestoreEntries)
"""Requests of which one piece of work needs many: told once a second, with their number."""
MAX_NOTES: Final = 1_000
"""Notes of one turn; who comes in such numbers is counted by the audit log."""
REFUSALS: Final = frozenset({"UNAUTHENTICATED", "FORBIDDEN", "FENCED"})
"""Codes of errors that are about who asks, and not about what is asked."""


class Auditor:
    """The audit log of one node, as its parts see it."""

    def __init__(self, node: str, stats: Statistics) -> None:
        """Create it; refusals are counted in `stats`."""
        self.log = AuditLog(node)
        self.stats = stats
        self.address_of: Callable[[PeerAddress], str] = _unknown
        """Returns the IP address of a peer; the skin sets it."""
        self.notes: list[Note] = []
        """Strangers who were turned away, for the effects of this turn."""
        self._ruled: object = None
        """What was refused by a rule last: its error comes by other ways again."""

    def begin(self, now: Instant) -> None:
        """Begin a turn of the node."""
        self.log.begin(now)

    def take_notes(self) -> list[Note]:
        """Return what is for the node's log, and forget it."""
        notes, self.notes = self.notes, []
        return notes

    def refused_by_rule(
        self, caller: Caller, asked: object, needed: Requirement, decision: AccessDecision
    ) -> None:
        """Note that a user lacks a right (`Authorizer.on_refusal`)."""
        self._ruled = asked
        if not isinstance(caller, PeerSession):
            return
        self.stats.counters[f"denied.{needed.verb}"] += 1
        entry = self._entry("refused", caller, asked)
        entry.verb, entry.resource = needed.verb, f"{needed.kind}:{needed.name}"
        entry.result, entry.rule = "FORBIDDEN", decision.why
        self.log.refused(entry)

    def refused(
        self,
        address: PeerAddress,
        principal: str | None,
        session: PeerSession | None,
        asked: object,
        error: LogboomError,
    ) -> None:
        """Note that somebody is not served, unless a rule was the reason, which is noted already."""
        ruled, self._ruled = self._ruled, None
        if isinstance(asked, Hello):
            self._turned_away(address, asked, error)
        if asked is ruled or error.code not in REFUSALS:
            return
        if isinstance(asked, Propose):
            asked = asked.command
        event = "authentication" if isinstance(asked, Hello | Prove) else "refused"
        if error.code == "UNAUTHENTICATED":
            self.stats.counters["authentication_failures"] += 1
        if session is not None:
            entry = self._entry(event, session, asked)
        else:
            client = asked.client_id if isinstance(asked, Hello) else ""
            entry = entry_about(event, principal, self.address_of(address), client)
            _describe(entry, asked)
        entry.result, entry.rule = error.code, error.text
        self.log.refused(entry)

    def refused_key(self, address: str, listener: str, principal: str | None = None) -> None:
        """Note a handshake with a key that nobody has, or that is none for the listener."""
        self.stats.counters["authentication_failures"] += 1
        text = f"no user has the key, which was used at the listener {listener!r}"
        if principal is not None:
            text = f"the key of {user_of(principal)!r} is not one for the listener {listener!r}"
        entry = entry_about("authentication", principal, address)
        entry.result, entry.rule = "UNAUTHENTICATED", text
        self.log.refused(entry)
        self._add_note(note("key_refused", address=address, listener=listener, text=text))

    def _turned_away(self, address: PeerAddress, hello: Hello, error: LogboomError) -> None:
        self._add_note(
            note(
                "stranger_refused",
                address=self.address_of(address) or None,
                client=shortened(hello.client_id),
                kind=hello.kind,
                code=error.code,
                text=error.text,
            )
        )

    def _add_note(self, made: Note) -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append(made)

    def name_of(self, session: PeerSession) -> str:
        """Return who asks, for the node's log: the user, or what a peer without one calls itself."""
        if session.user:
            return session.user
        name = shortened(session.client_id)
        address = self.address_of(session.address)
        return f"{name}@{address}" if session.kind == "client" and address else name

    def proposed(self, session: PeerSession, message: Propose, error: LogboomError) -> None:
        """Note that a command did not enter the log."""
        if error.code in REFUSALS or message.command is self._ruled:
            self.refused(session.address, session.principal, session, message.command, error)
        elif error.code != "NOT_LEADER":
            self.commanded(session, message, error.code)

    def commanded(self, session: PeerSession, message: Propose, code: str) -> None:
        """Note the result of a command, if it is one of management; "" is success."""
        if isinstance(message.command, MANAGEMENT) or _decides_for_others(message.command):
            entry = self._entry("command", session, message.command)
            entry.request_id = message.id
            self._manage(entry, message.command, code)

    def commanded_itself(self, command: object, code: str) -> None:
        """Note the result of a command of the node's own about users and their keys."""
        if isinstance(command, get_args(AccessCommand)):
            entry = AuditEntry(event="command")
            _describe(entry, command)
            self._manage(entry, command, code, itself=True)

    def requested(self, session: PeerSession, message: WireMessage, code: str = "") -> None:
        """Note a request, if it is one of management."""
        if isinstance(message, MANAGEMENT_REQUESTS):
            self._manage(self._entry("request", session, message), message, code)
        elif isinstance(message, COUNTED_REQUESTS):
            entry = self._entry("request", session, message)
            entry.result = code or "ok"
            details = details_of(message)
            entry.resource = f"topic:{details.get('topic', '')}"
            entry.details = {name: details[name] for name in ("queue",) if name in details}
            self.log.repeated(entry)

    def _manage(
        self, entry: AuditEntry, asked: Command | Request, code: str, *, itself: bool = False
    ) -> None:
        entry.result = code or "ok"
        entry.details = details_of(asked)
        if isinstance(asked, Decide) and asked.app_id.startswith(MADE_UP):
            # Whoever knows an id that a producer has invented may use it.
            entry.details["app_id"] = MADE_UP
        self.log.managed(entry, itself=itself)

    def _entry(self, event: str, session: PeerSession, asked: object) -> AuditEntry:
        address = self.address_of(session.address)
        client = session.client_id
        if session.kind != "client":
            client = f"{session.kind} {client}"
        entry = entry_about(event, session.principal, address, client)
        _describe(entry, asked)
        return entry


def _decides_for_others(command: Command) -> bool:
    """Return True for a decision without the epoch of the application: an operator's, or a clean-up."""
    return isinstance(command, Decide) and command.epoch == NOT_FENCED


def _describe(entry: AuditEntry, asked: object) -> None:
    """Say what is asked, by its type and the first right that it needs."""
    if not isinstance(asked, WireMessage | Command):
        return
    entry.request = str(type(asked).__struct_config__.tag)
    if isinstance(asked, WireMessage):
        entry.request_id = asked.id
    rule = COMMANDS.get(type(asked)) or REQUESTS.get(type(asked))
    if rule is not None and rule.needs is not None:
        for needed in rule.needs(asked):
            entry.verb, entry.resource = needed.verb, f"{needed.kind}:{needed.name}"
            return


def _unknown(_address: PeerAddress) -> str:
    return ""
