"""What the API asks of the core: the requests inside `wire.actor.Call`.

Each carries an `Promise` that the core resolves, at `timeout` seconds the latest where it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from logboom.client.promise import Promise
from logboom.wire.commands import AnyCommand, CommandResult
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.messages import AnyMessage, WireMessage
from logboom.wire.view import TopicView, View

if TYPE_CHECKING:
    from logboom.client.fetch.fetch_buffer import QueueFetch
    from logboom.client.groups.member import MemberState
    from logboom.client.send.send_buffer import SendBuffer
    from logboom.client.subscriptions.subscriber_state import SubscriberState
    from logboom.client.transactions.half_check_poller import HalfMessageQueue

Start: TypeAlias = int | Literal["first", "last"]
"""Where to begin to read: an offset, or an end of the queue."""


class MessageTime(int):
    """A message time in ms, where an offset would be an int."""


@dataclass(slots=True)
class Connect:
    """Wait for the first view of the metadata."""

    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class FindTopic:
    """Load a topic, or fail with UnknownResource once the name server knows of none.

    With `create` it is made if it does not exist. One with fewer than `queues` queues is looked up
    in the name servers' log: it may have been given more.
    """

    topic: str
    timeout: float
    create: bool = False
    queues: int = 0
    outcome: Promise[TopicView] = field(default_factory=Promise)


@dataclass(slots=True)
class ProposeCommand:
    """Put a command into the name server's log; an error code of its result fails the outcome."""

    command: AnyCommand
    timeout: float
    outcome: Promise[CommandResult] = field(default_factory=Promise)


@dataclass(slots=True)
class LoadMetadata:
    """The metadata of all topics, at least as new as `version`."""

    timeout: float
    version: int = -1
    outcome: Promise[View] = field(default_factory=Promise)


Answer: TypeAlias = tuple[AnyMessage, list[Frame]]
"""The answer of a node, and the batches behind it."""


@dataclass(slots=True)
class AskLeader:
    """Ask a queue's leader, wherever it goes, until it answers. The message is made per attempt
    from the milliseconds that are left."""

    topic: str
    queue: int
    message: Callable[[int], WireMessage]
    timeout: float
    outcome: Promise[Answer] = field(default_factory=Promise)


@dataclass(slots=True)
class AskNode:
    """Ask one node, once."""

    endpoint: str
    message: WireMessage
    timeout: float
    outcome: Promise[Answer] = field(default_factory=Promise)


@dataclass(slots=True)
class AskAll:
    """Several questions at once; done when all are answered, whatever each came to."""

    calls: Sequence[AskLeader]
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class OpenProducer:
    """Begin to send what `buffer` takes; the outcome comes with the producer id."""

    buffer: SendBuffer[Any]
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class OpenTopic:
    """Let `buffer` take messages for a topic; of `queues` as for `FindTopic`."""

    buffer: SendBuffer[Any]
    topic: str
    timeout: float
    queues: int = 0
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class Flush:
    """Send all that `buffer` holds at once; done when all of it is acknowledged or given up."""

    buffer: SendBuffer[Any]
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class CloseProducer:
    """Forget a producer; what it still holds fails, with ClientClosed unless `error` says why."""

    buffer: SendBuffer[Any]
    outcome: Promise[None] = field(default_factory=Promise)
    error: LogboomError | None = None


@dataclass(slots=True)
class OpenChecks:
    """Ask every broker for the half messages of a producer group that are in doubt."""

    checks: HalfMessageQueue


@dataclass(slots=True)
class CloseChecks:
    """Ask no more."""

    checks: HalfMessageQueue


@dataclass(slots=True)
class OpenFetch:
    """Begin to read a queue into the fetch's inbox."""

    fetch: QueueFetch


@dataclass(slots=True)
class SeekFetch:
    """Read on from elsewhere; arrivals of an older generation are void."""

    fetch: QueueFetch
    start: Start
    generation: int


@dataclass(slots=True)
class WakeFetch:
    """The reader made room, or resumed: pull on."""

    fetch: QueueFetch


@dataclass(slots=True)
class CloseFetch:
    """Read a queue no longer."""

    fetch: QueueFetch


@dataclass(slots=True)
class OpenMember:
    """Join a group; the outcome comes once the group has taken the member."""

    member: MemberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class CommitMember:
    """Commit what is finished now; with the outcome it is in the group's log."""

    member: MemberState
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class WakeMember:
    """The reader finished with the last message of a queue that is to be given away."""

    member: MemberState


@dataclass(slots=True)
class CloseMember:
    """Leave the group: finish what is handed out within `timeout`, commit, go."""

    member: MemberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class OpenSubscriber:
    """Attach a consumer to its subscription at the leaders of all queues."""

    subscriber: SubscriberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class WakeSubscriber:
    """The reader made room, or settled messages."""

    subscriber: SubscriberState


@dataclass(slots=True)
class FlushSubscriber:
    """Done when the leaders have confirmed all that was settled."""

    subscriber: SubscriberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class CloseSubscriber:
    """Confirm what was settled, within `timeout`, and detach."""

    subscriber: SubscriberState
    timeout: float
    outcome: Promise[None] = field(default_factory=Promise)


AnyCall: TypeAlias = (
    Connect
    | FindTopic
    | ProposeCommand
    | LoadMetadata
    | AskLeader
    | AskNode
    | AskAll
    | OpenProducer
    | OpenTopic
    | Flush
    | CloseProducer
    | OpenChecks
    | CloseChecks
    | OpenFetch
    | SeekFetch
    | WakeFetch
    | CloseFetch
    | OpenMember
    | CommitMember
    | WakeMember
    | CloseMember
    | OpenSubscriber
    | WakeSubscriber
    | FlushSubscriber
    | CloseSubscriber
)
