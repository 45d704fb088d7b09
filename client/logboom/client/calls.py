"""Calls: the API's requests to the core, inside `wire.actor.Call`.

A call that has an `outcome` is answered by it, after `timeout` seconds at the latest if it has one.
This module has the calls that belong to no room; the others are defined next to what they are
about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from logboom.client.promise import Promise
from logboom.wire.base import WireMessage
from logboom.wire.commands import AnyCommand, CommandResult
from logboom.wire.errors import InternalError, LogboomError
from logboom.wire.frames import Frame
from logboom.wire.messages import AnyMessage
from logboom.wire.view import BrokerView, TopicView, View

Start: TypeAlias = int | Literal["first", "last"]
"""The position where reading starts: an offset, or an end of the queue."""


class MessageTime(int):
    """A message time in ms, in place of an offset."""


class CoreCall:
    """A request of the API to the core."""

    __slots__ = ()

    outcome: Promise[Any] | None = None
    """Receives the answer; None: nobody waits for one."""

    def fail(self, error: LogboomError) -> None:
        """Fail the call with an error."""
        if self.outcome is not None:
            self.outcome.fail(error)


C = TypeVar("C", bound=CoreCall)


class CallHandlers:
    """The handlers of calls by type; every room of the core registers its own."""

    def __init__(self) -> None:
        self._handlers: dict[type[CoreCall], Callable[[Any], None]] = {}

    def register(self, kind: type[C], handler: Callable[[C], None]) -> None:
        """Register the handler of one type of call."""
        self._handlers[kind] = handler

    def handle(self, call: CoreCall) -> None:
        """Handle a call.

        Raises:
            InternalError: no room handles its type.
        """
        handler = self._handlers.get(type(call))
        if handler is None:
            raise InternalError(f"no such call: {call!r}; please report it")
        handler(call)


@dataclass(slots=True)
class Connect(CoreCall):
    """Wait for the first view of the metadata."""

    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class FindTopic(CoreCall):
    """Load a topic, or fail with UnknownResource if it does not exist.

    With `create` a missing topic is created. A topic with fewer than `queues` queues is looked up
    in the name servers' log, because queues may have been added.
    """

    topic: str
    timeout: float
    create: bool = False
    queues: int = 0
    outcome: Promise[TopicView] = field(default_factory=Promise)


@dataclass(slots=True)
class ProposeCommand(CoreCall):
    """Append a command to the name servers' log; an error code in its result fails the outcome."""

    command: AnyCommand
    timeout: float
    outcome: Promise[CommandResult] = field(default_factory=Promise)


@dataclass(slots=True)
class LoadMetadata(CoreCall):
    """Load the metadata, at least as new as `version`: brokers, name servers, and topics."""

    timeout: float
    version: int = -1
    topics: list[str] | None = None
    """The topics to load, without those that do not exist; None: all."""
    outcome: Promise[View] = field(default_factory=Promise)


@dataclass(slots=True)
class FollowTopic(CoreCall):
    """Wait until this client's copy of a topic is at least as new as `version`.

    It is resolved at once if the client does not follow the topic, and after `timeout` in any case.
    """

    topic: str
    version: int
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class KnownBrokers(CoreCall):
    """Return the brokers as this client has last heard of them. Nobody is asked."""

    outcome: Promise[list[BrokerView]] = field(default_factory=Promise)


Answer: TypeAlias = tuple[AnyMessage, list[Frame]]
"""The answer of a node, and the batches behind it."""


@dataclass(slots=True)
class AskLeader(CoreCall):
    """Ask a queue's leader, wherever it moves, until it answers.

    The message is made for each attempt from the milliseconds that are left.
    """

    topic: str
    queue: int
    message: Callable[[int], WireMessage]
    timeout: float
    batches: Sequence[Frame] = ()
    """Frames behind the message."""
    outcome: Promise[Answer] = field(default_factory=Promise)
    topic_id: int = 0
    """Id of the topic that is meant; 0: the one that has the name now. A topic that was deleted and
    created again has a greater one, and the call fails with UNKNOWN_TOPIC."""


@dataclass(slots=True)
class AskRaftLeader(CoreCall):
    """Ask the leader of the name servers, wherever it moves, until it answers."""

    message: Callable[[int], WireMessage]
    timeout: float
    outcome: Promise[Answer] = field(default_factory=Promise)


@dataclass(slots=True)
class AskNode(CoreCall):
    """Ask one node, once."""

    endpoint: str
    message: WireMessage
    timeout: float
    outcome: Promise[Answer] = field(default_factory=Promise)


@dataclass(slots=True)
class AskAll(CoreCall):
    """Ask several at once; resolved when all have answered or failed, each with its own outcome."""

    calls: Sequence[AskLeader | AskRaftLeader | AskNode]
    outcome: Promise[None] = field(default_factory=Promise)
