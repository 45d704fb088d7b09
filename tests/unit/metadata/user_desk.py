"""One name server with users, who ask it with their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logboom.metadata.name_server import NameServer
from logboom.wire.access.access_commands import AddRule, CreateUser, RemoveRule
from logboom.wire.access.access_rules import AccessRule, ResourceKind, UserKey, Verb, node_user
from logboom.wire.actor import Effects, Event, Instant, PeerAddress, Received
from logboom.wire.base import WireMessage
from logboom.wire.commands import AnyCommand, CommandResult, CreateTopic
from logboom.wire.errors import LogboomError, error_for
from logboom.wire.frames import decode, encode
from logboom.wire.group_commands import AlterGroup
from logboom.wire.hello import PeerKind, proof
from logboom.wire.messages import (
    Challenge,
    Failure,
    Hello,
    Propose,
    Proposed,
    Prove,
    Watch,
    WatchResult,
    Welcome,
)
from logboom.wire.view import TopicConfig, View
from tests.unit.metadata.name_servers import KEY, Group

CLOCK_AHEAD = 100.0
"""Seconds by which the clock of the name servers is ahead of the scheduler's."""


class UserDesk:
    """A name server, which leads alone unless there are others, an administrator of it, and alice, who may do nothing yet."""

    def __init__(self, size: int = 1, *, leads: bool = True) -> None:
        self.group = Group(size=size)
        self.name = self.group.leader() if leads else self.group.followers()[0]
        self.group.register("broker-1")
        self.propose(CreateUser("root", [key(1)], [], 0))
        self.rule("root", "admin", "cluster", "cluster")
        self.create_user("alice")
        self._waiting: dict[str, list[WireMessage]] = {}
        self._handle = self.core.handle
        # Turns of the simulated process answer the users, too.
        vars(self.core)["handle"] = self._listen

    @property
    def core(self) -> NameServer:
        """The name server."""
        return self.group.core(self.name)

    @property
    def version(self) -> int:
        """The metadata version."""
        return self.core.cluster.version

    def propose(self, command: AnyCommand) -> CommandResult:
        """Have a command of the operator's applied."""
        result = self.group.propose(command, "operator")
        assert result.code == "", result
        return result

    def create_user(self, name: str) -> None:
        """Create a user without rights."""
        number = 2 + len(self.core.cluster.access.users)
        self.propose(CreateUser(name, [key(number)], [], 0))

    def rule(
        self, user: str, verb: Verb, kind: ResourceKind, pattern: str, *, allow: bool = True
    ) -> None:
        """Add a rule to a user."""
        self.propose(AddRule(f"user:{user}", AccessRule(allow, verb, kind, pattern)))

    def revoke(self, user: str, verb: Verb, kind: ResourceKind, pattern: str) -> None:
        """Remove a rule that allows."""
        self.propose(RemoveRule(f"user:{user}", AccessRule(True, verb, kind, pattern)))

    def topic(self, name: str) -> int:
        """Create a topic of two queues; its id."""
        value = self.propose(CreateTopic(name, 2, 1, TopicConfig(), 0)).value
        assert isinstance(value, int)
        return value

    def consumers(self, name: str, *topics: str) -> None:
        """Create a consumer group."""
        self.propose(AlterGroup(name, None, dict.fromkeys(topics, ""), True, 0))

    # -- users ------------------------------------------------------------------------------

    def principal(self, user: str) -> str:
        """The principal of a user's first key."""
        book = self.core.cluster.access.book
        return book.principal_of(book.public_keys_of(user)[0]) or ""

    def begin(self, user: str, message: WireMessage, seconds: float = 0.0) -> list[WireMessage]:
        """Ask as a user; the answers by then, whose list grows if it is held."""
        return self.begin_all(user, [message], seconds)

    def begin_all(
        self, user: str, messages: Sequence[WireMessage], seconds: float = 0.0
    ) -> list[WireMessage]:
        """Ask several things in one turn; the answers by then, as in `begin`."""
        address = PeerAddress("main", user.encode())
        answers = self._waiting.setdefault(user, [])
        answers.clear()
        hello = Hello(-1, 1, 1, user, "client", 0)
        who = self.principal(user)
        self._turn(*(Received(address, encode(each), principal=who) for each in (hello, *messages)))
        self.run(seconds)
        return answers

    def run(self, seconds: float) -> None:
        """Let time pass, in some turns."""
        for _ in range(5):
            self.group.run(seconds / 5 + 0.001)
            self._turn()

    def _turn(self, *events: Received) -> None:
        self.core.handle(events, Instant(CLOCK_AHEAD + self.group.scheduler.now, 0))

    def _listen(self, events: Sequence[Event], now: Instant) -> Effects:
        out = self._handle(events, now)
        for send in out.sends:
            if isinstance(send.peer, PeerAddress):
                known = self._waiting.get(send.peer.routing_id.decode("latin-1"))
                message = None if known is None else decode(send.frames)
                if known is not None and message is not None and not isinstance(message, Welcome):
                    known.append(message)
        return out

    def ask(self, user: str, message: WireMessage) -> Any:
        """Ask as a user; the answer, or the error of a refusal."""
        return self._answer(self.begin(user, message))

    def _answer(self, answers: list[WireMessage]) -> Any:
        assert len(answers) == 1, answers
        (answer,) = answers
        if isinstance(answer, Failure):
            return error_for(answer.code, answer.text, answer.fields)
        return answer

    def ask_as_node(
        self, node: str, message: WireMessage, kind: PeerKind = "broker", listener: str = "main"
    ) -> Any:
        """Ask with a node's key, and the cluster key; the answer, or the error of a refusal."""
        address, nonce = PeerAddress(listener, f"{kind} {node}".encode()), bytes(16)
        answers = self._waiting.setdefault(f"{kind} {node}", [])
        answers.clear()
        who = self.principal(node_user(node))
        hello = Hello(-1, 1, 1, node, kind, 0, nonce=nonce)
        self._turn(Received(address, encode(hello), principal=who))
        (challenge,) = answers
        if isinstance(challenge, Challenge):
            answers.clear()
            shown = proof(KEY, "dialer", nonce, challenge.nonce, node)
            self._turn(
                Received(address, encode(Prove(-1, shown)), principal=who),
                Received(address, encode(message), principal=who),
            )
            self.run(0.0)
        return self._answer(answers)

    def propose_as_node(
        self, node: str, command: AnyCommand, proposer: str = "", number: int = 0
    ) -> CommandResult | LogboomError:
        """Propose with a node's key, and the cluster key."""
        answer = self.ask_as_node(node, Propose(1, 1_000, proposer, number, command))
        return answer.result if isinstance(answer, Proposed) else answer

    def command(
        self, user: str, command: AnyCommand, proposer: str = "", number: int = 0
    ) -> CommandResult | LogboomError:
        """Propose as a user."""
        answer = self.ask(user, Propose(1, 1_000, proposer, number, command))
        return answer.result if isinstance(answer, Proposed) else answer

    def view(self, user: str, version: int = -1, **asked: Any) -> View:
        """What a user is shown."""
        answer = self.ask(user, Watch(1, 1_000, version, asked.pop("topics", None), 0, **asked))
        assert isinstance(answer, WatchResult), answer
        return answer.view


def key(number: int) -> UserKey:
    """A key unlike the others."""
    return UserKey("first", f"{number:040}", 0)
