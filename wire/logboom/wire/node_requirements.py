"""What nodes send: which kind of node a request or command comes from, and in whose name; pure.

What has no entry comes from no node, and is refused. docs/SECURITY.md prints the table, and a test
compares. What only the state can tell, such as who leads a queue, the Raft leader checks
(`metadata/broker_claims.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from logboom.wire.commands import (
    AlterIsr,
    CreateTopic,
    ElectLeader,
    RegisterBroker,
    ReportDamage,
    ReportLosses,
    ReportRoom,
    ReportTails,
    StepDown,
)
from logboom.wire.group_commands import (
    CommitOffsets,
    ExpireMembers,
    JoinGroup,
    LeaveGroup,
    ReleaseQueues,
    SetStart,
)
from logboom.wire.messages import (
    Heartbeat,
    Hello,
    OffsetForTime,
    Offsets,
    Ping,
    Propose,
    Prove,
    RaftFrame,
    Replicate,
    Stats,
    Watch,
)
from logboom.wire.names import is_reserved
from logboom.wire.operation_messages import ReportLoad
from logboom.wire.transactions import NOT_FENCED, Decide, ReportDecided
from logboom.wire.view import TopicConfig

NodeKind: TypeAlias = Literal["broker", "name-server"]
EITHER: Final[tuple[NodeKind, ...]] = ("broker", "name-server")


def _nobody(_asked: Any) -> Iterable[str]:
    return ()


class NodeRule(NamedTuple):
    """Which nodes send a request or command, and what they may say in it."""

    kinds: tuple[NodeKind, ...]
    names: Callable[[Any], Iterable[str]] = _nobody
    """The nodes that it speaks for: the sender alone may be among them."""
    is_fit: Callable[[Any], bool] = bool
    """False if it asks for more than nodes need."""


def kinds_of(*, is_broker: bool, is_name_server: bool) -> tuple[NodeKind, ...]:
    """Return what a node may be: what it is registered as; either, if it is unknown or is both."""
    if is_broker == is_name_server:
        return EITHER
    return ("broker",) if is_broker else ("name-server",)


def _is_abort(command: Decide) -> bool:
    plain = not command.commit and not command.consumed and command.epoch == NOT_FENCED
    return plain and bool(command.parked)


def _is_for_retries(command: CreateTopic) -> bool:
    plain = TopicConfig(max_message_bytes=command.config.max_message_bytes)
    shape = (command.queues, command.replicas, command.config)
    return is_reserved(command.name) and shape == (1, 0, plain)


_BROKER: Final = NodeRule(("broker",))
_THE_BROKER: Final = NodeRule(("broker",), lambda asked: (asked.broker,))
_THE_COORDINATOR: Final = NodeRule(("broker",), lambda asked: (asked.coordinator,))

NODE_REQUESTS: Final[Mapping[type[Struct], NodeRule]] = {
    Hello: NodeRule(EITHER),
    Prove: NodeRule(EITHER),
    Ping: NodeRule(EITHER),
    Heartbeat: _THE_BROKER,
    ReportLoad: _THE_BROKER,
    Replicate: _THE_BROKER,
    Watch: NodeRule(("broker",), lambda asked: filter(None, (asked.members_at,))),
    Propose: _BROKER,
    # A coordinator asks leaders where its groups begin.
    Offsets: _BROKER,
    OffsetForTime: _BROKER,
    RaftFrame: NodeRule(("name-server",), lambda asked: (asked.sender,)),
    # A name server asks one that is to be added.
    Stats: NodeRule(("name-server",)),
}
"""Every request that nodes send."""

NODE_COMMANDS: Final[Mapping[type[Struct], NodeRule]] = {
    RegisterBroker: _THE_BROKER,
    StepDown: _THE_BROKER,
    AlterIsr: _THE_BROKER,
    ReportTails: _THE_BROKER,
    ReportLosses: _THE_BROKER,
    ReportDamage: _THE_BROKER,
    ReportRoom: _THE_BROKER,
    ReportDecided: _THE_BROKER,
    CommitOffsets: _THE_COORDINATOR,
    ExpireMembers: _THE_COORDINATOR,
    JoinGroup: _BROKER,
    LeaveGroup: _BROKER,
    ReleaseQueues: _BROKER,
    SetStart: _BROKER,
    CreateTopic: NodeRule(("broker",), is_fit=_is_for_retries),
    # A queue without a leader that was restored into its store.
    ElectLeader: NodeRule(("broker",), lambda asked: (asked.prefer or "",)),
    Decide: NodeRule(("broker",), is_fit=_is_abort),
}
"""Every command that brokers propose. Name servers propose none: their leader makes its own."""


def node_fault(node: str, kind: str, asked: object, rule: NodeRule | None) -> str | None:
    """Return why a node does not send a request or command, or None."""
    name = type(asked).__name__
    if rule is None or kind not in rule.kinds:
        return f"a {kind} sends no {name}"
    other = next((each for each in rule.names(asked) if each != node), None)
    if other is not None:
        return f"{name} in the name of {other[:80]!r} from {node!r}: nodes speak for themselves"
    return None if rule.is_fit(asked) else f"{name} from {node!r} asks for more than a {kind} needs"
