"""The topics of retries and dead letters of subscriptions, which leaders create for consumers.

Whoever may use a subscription has them created, so their shape is not the consumer's choice, and they count
against its user's quota of topics and queues.
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.subscriptions.subscription_handler import SubscriptionLookup
from logboom.nodes.turn import BrokerTurn, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.commands import CommandResult, CreateTopic
from logboom.wire.errors import InvalidRequest, LogboomError, Unavailable, error_for
from logboom.wire.messages import Ok
from logboom.wire.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    subscription_name,
    subscription_name_fault,
    subscription_of,
)
from logboom.wire.subscription_messages import MakeRetryTopics
from logboom.wire.view import TopicConfig

COMMANDS_AT_ONCE: Final = 2
"""Commands that are in flight to the Raft leader."""
MAX_WAITING: Final = 100
"""Commands that wait, beyond which this broker is busy."""


class _Making:
    """One request whose topics are being created."""

    __slots__ = ("address", "left", "number")

    def __init__(self, address: PeerAddress, number: int) -> None:
        self.address = address
        self.number = number
        self.left = 0
        """Commands without a result."""


class RetryTopicMaker(Service):
    """Serves MAKERETRYTOPICS."""

    def __init__(self, context: BrokerContext, access: SubscriptionLookup) -> None:
        self._routes = context.routes
        self._access = access
        # A queue of its own, so that consumers never delay leaderships.
        self._proposals = context.make_proposals("retries", COMMANDS_AT_ONCE)
        self._making: dict[_Making, None] = {}

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of MAKERETRYTOPICS."""
        return {MakeRetryTopics: self.make}

    def make(self, peer: PeerSession, message: MakeRetryTopics, turn: BrokerTurn) -> None:
        """Create the topics that are missing, and answer once they are in the name servers' log."""
        try:
            self._access.led(message)
            name = subscription_name(message.topic, message.subscription)
            fault = subscription_name_fault(message.topic, message.subscription)
            if fault is not None or subscription_of(RETRY_PREFIX + name) is None:
                text = fault or "a subscription without a name has no retries and dead letters"
                raise InvalidRequest(text, "INVALID_NAME")
            if len(self._proposals) >= MAX_WAITING:
                raise Unavailable("this broker creates many topics now: ask again", "BUSY")
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)
            return
        names = (DLQ_PREFIX + name, RETRY_PREFIX + name)
        missing = [name for name in names if name not in self._routes.topics]
        if not missing:
            turn.answer(peer.address, Ok(message.id))
            return
        making = _Making(peer.address, message.id)
        making.left = len(missing)
        self._making[making] = None
        for name in missing:
            # No number of replicas is asked for: it is that of any topic.
            command = CreateTopic(name, 1, 0, TopicConfig(), turn.now.wall_ms, peer.user)
            self._proposals.propose(
                command, lambda result, later: self._made(making, result, later), turn
            )

    def _made(self, making: _Making, result: CommandResult, turn: BrokerTurn) -> None:
        if making not in self._making:
            return
        if result.code not in ("", "TOPIC_EXISTS"):
            del self._making[making]
            error = error_for(result.code, result.text, result.fields)
            turn.refuse(making.address, making.number, error)
            return
        making.left -= 1
        if not making.left:
            del self._making[making]
            turn.answer(making.address, Ok(making.number))

    def step(self, turn: BrokerTurn) -> None:
        """Continue what was proposed."""
        self._proposals.step(turn)

    def deadline(self) -> float:
        """Return when a turn is wanted next."""
        return self._proposals.deadline()

    def fenced(self, turn: BrokerTurn) -> None:
        """Give up what was proposed under the instance epoch: another leader is asked."""
        self._proposals.drop_all()
        making, self._making = self._making, {}
        for each in making:
            error = Unavailable("this broker has to register again: ask again")
            turn.refuse(each.address, each.number, error)
