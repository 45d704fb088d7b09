"""Single questions: to a queue's leader wherever it goes, or to one node."""

from __future__ import annotations

import random
from typing import Final

from logboom.client.calls import Answer, AskLeader, AskNode, CallHandlers
from logboom.client.cluster.connections import Connections, RequestHandle
from logboom.client.cluster.leader_cache import LeaderCache
from logboom.client.cluster.metadata_updater import MetadataUpdater, no_leader, unknown_topic
from logboom.client.core_context import CoreTurn, Timer
from logboom.client.promise import Promise
from logboom.wire.errors import InternalError, LogboomError, TimedOut
from logboom.wire.messages import AnyMessage
from logboom.wire.session import Reply
from logboom.wire.view import TopicView

BACKOFF_FIRST: Final = 0.02
BACKOFF_LAST: Final = 0.5


def backoff(attempts: int, rng: random.Random) -> float:
    """Seconds before the next try: doubling, with jitter of half to one and a half."""
    delay: float = min(BACKOFF_FIRST * 2.0 ** min(attempts, 10), BACKOFF_LAST)
    return delay * (0.5 + rng.random())


class _RoutedRequest:
    __slots__ = (
        "attempts",
        "call",
        "deadline",
        "endpoint",
        "expiry",
        "last_error",
        "ticket",
        "waiting",
    )

    def __init__(self, call: AskLeader, deadline: float) -> None:
        self.call = call
        self.deadline = deadline
        self.attempts = 0
        self.endpoint = ""
        self.ticket: RequestHandle | None = None
        self.expiry: Timer | None = None
        self.waiting = False
        """A back-off runs, or the topic is looked for."""
        self.last_error: LogboomError | None = None


class RequestRouter:
    """All open questions of one client."""

    def __init__(
        self,
        connections: Connections,
        leaders: LeaderCache,
        watching: MetadataUpdater,
        turn: CoreTurn,
        rng: random.Random,
    ) -> None:
        self._connections = connections
        self._leaders = leaders
        self._watching = watching
        self._turn = turn
        self._rng = rng
        self._open: dict[int, _RoutedRequest] = {}
        watching.listen(self._rerouted)

    def register(self, handlers: CallHandlers) -> None:
        """Handle the questions to nodes."""
        handlers.register(AskLeader, self.ask_leader)
        handlers.register(AskNode, self.ask_node)

    def ask_leader(self, call: AskLeader) -> None:
        """Find the leader and ask until there is an answer."""
        question = _RoutedRequest(call, self._turn.now + call.timeout)
        self._open[id(question)] = question
        question.expiry = self._turn.after(call.timeout, lambda: self._expire(question))

        def found(topic: TopicView | LogboomError) -> None:
            if isinstance(topic, LogboomError):
                self._end(question, topic)
            else:
                self._try(question)

        question.waiting = True
        self._watching.want(call.topic, found, call.timeout, call.queue + 1)

    def ask_node(self, call: AskNode) -> None:
        """Ask one node, once."""
        self._connections.request(
            call.endpoint,
            call.message,
            (),
            lambda reply: settle(call.outcome, reply),
            call.timeout,
        )

    def _try(self, question: _RoutedRequest) -> None:
        if id(question) not in self._open or question.ticket is not None:
            return
        question.waiting = False
        call = question.call
        try:
            endpoint = self._leaders.endpoint(call.topic, call.queue)
        except LogboomError as error:
            self._end(question, error)
            return
        if endpoint is None:
            question.last_error = no_leader(call.topic, call.queue)
            return  # news of a leader calls again
        left = question.deadline - self._turn.now
        question.endpoint = endpoint
        question.ticket = self._connections.request(
            endpoint,
            call.message(max(1, int(left * 1000))),
            (),
            lambda reply: self._answered(question, reply),
            left,
        )

    def _answered(self, question: _RoutedRequest, reply: Reply) -> None:
        question.ticket = None
        call, error = question.call, reply.error
        if error is None or not self._leaders.worth_retrying(call.topic, error):
            self._end(question, error if error is not None else reply)
            return
        self._leaders.learn(call.topic, call.queue, error)
        question.last_error = error
        question.attempts += 1
        question.waiting = True
        self._turn.after(backoff(question.attempts, self._rng), lambda: self._try(question))

    def _rerouted(self) -> None:
        """Leaders may have moved: ask the new one instead of waiting for the old."""
        for question in list(self._open.values()):
            call = question.call
            if call.topic not in self._watching.routes.topics:
                if question.endpoint:  # it was there when we asked
                    self._end(question, unknown_topic(call.topic))
                continue
            if question.waiting:
                continue
            try:
                endpoint = self._leaders.endpoint(call.topic, call.queue)
            except LogboomError as error:
                self._end(question, error)
                continue
            if question.ticket is not None and endpoint not in (None, question.endpoint):
                question.ticket.cancel()
                question.ticket = None
            self._try(question)

    def _expire(self, question: _RoutedRequest) -> None:
        if id(question) not in self._open:
            return
        call, last = question.call, question.last_error
        why = f": {last}" if last is not None else ": is its leader up? try `logboom doctor`"
        text = f"queue {call.queue} of topic {call.topic!r} did not answer in time{why}"
        self._end(question, TimedOut(text))

    def _end(self, question: _RoutedRequest, result: Reply | LogboomError) -> None:
        if self._open.pop(id(question), None) is None:
            return
        if question.ticket is not None:
            question.ticket.cancel()
        if question.expiry is not None:
            question.expiry.cancel()  # it would keep the answer in memory
        if isinstance(result, LogboomError):
            question.call.outcome.fail(result)
        else:
            settle(question.call.outcome, result)


def settle(outcome: Promise[Answer], reply: Reply) -> None:
    """Resolve an outcome with a reply."""
    if reply.error is not None:
        outcome.fail(reply.error)
    elif reply.message is None:
        outcome.fail(InternalError("a reply without a message: please report it"))
    else:
        message: AnyMessage = reply.message
        outcome.resolve((message, list(reply.batches)))
