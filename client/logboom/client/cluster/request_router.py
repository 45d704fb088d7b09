"""Requests to whichever node has a role, such as the leadership of a queue.

A role moves. A request goes to the node that is thought to have it. It is sent again after errors
that may pass, with a growing delay, and elsewhere as soon as the role is known to have moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from logboom.client.calls import Answer, AskLeader, AskNode, AskRaftLeader, CallHandlers
from logboom.client.cluster.connections import Connections, OnReply
from logboom.client.cluster.leader_cache import LeaderCache, QueueLeader, RaftLeader, Role
from logboom.client.cluster.metadata_updater import MetadataUpdater
from logboom.client.core_context import CoreTurn, Timer
from logboom.client.promise import Promise
from logboom.wire.backoff import backoff
from logboom.wire.base import WireMessage
from logboom.wire.errors import InternalError, InvalidRequest, LogboomError
from logboom.wire.frames import Frame
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle
from logboom.wire.view import TopicView

RAFT_LEADER_TIMEOUT_S: Final = 3.0
"""Seconds that a name server gets to answer: one that seems to lead may be dead."""


class RoutedRequest:
    """A request under way."""

    def __init__(
        self,
        role: Role,
        make: Callable[[int], WireMessage],
        on_reply: OnReply,
        deadline: float,
        attempt_s: float,
        batches: Sequence[Frame],
    ) -> None:
        self.role = role
        self.make = make
        self.on_reply = on_reply
        self.deadline = deadline
        self.attempt_s = attempt_s
        """Seconds that one node gets to answer."""
        self.batches = batches
        self.endpoint = ""
        self.failures = 0
        self.last_error: LogboomError | None = None
        self.asked: RequestHandle | None = None
        self.pause: Timer | None = None
        self.backing_off = False
        self.ended = False

    def cancel(self) -> None:
        """End the request without a reply."""
        self.ended = True
        self.stop()

    def stop(self) -> None:
        """Cancel the pending attempt and the pending retry."""
        if self.asked is not None:
            self.asked.cancel()
        if self.pause is not None:
            self.pause.cancel()
        self.asked = self.pause = None
        self.backing_off = False


class RequestRouter:
    """The requests of one client to nodes with a role, and to single nodes."""

    def __init__(
        self,
        connections: Connections,
        leaders: LeaderCache,
        watching: MetadataUpdater,
        raft_leader: RaftLeader,
        turn: CoreTurn,
    ) -> None:
        self._connections = connections
        self._leaders = leaders
        self._watching = watching
        self._raft_leader = raft_leader
        self._turn = turn
        self._open: dict[int, RoutedRequest] = {}
        watching.listen(self._rerouted)

    def register(self, handlers: CallHandlers) -> None:
        """Register the handlers of requests to nodes."""
        handlers.register(AskLeader, self._ask_leader)
        handlers.register(
            AskRaftLeader,
            lambda call: self.ask_raft_leader(call.message, settling(call.outcome), call.timeout),
        )
        handlers.register(AskNode, self._ask_node)

    def ask(
        self,
        role: Role,
        make: Callable[[int], WireMessage],
        on_reply: OnReply,
        timeout: float,
        attempt_s: float = float("inf"),
        batches: Sequence[Frame] = (),
    ) -> RoutedRequest:
        """Ask until there is an answer or a final error, for at most `timeout` seconds.

        Args:
            role: Whom to ask.
            make: Makes the message of one attempt from its timeout in milliseconds.
            on_reply: Called once with the answer or the error, unless the request is cancelled.
            timeout: Seconds for all attempts.
            attempt_s: Seconds that one node gets to answer.
            batches: Frames behind each message.
        """
        deadline = self._turn.now + timeout
        request = RoutedRequest(role, make, on_reply, deadline, attempt_s, batches)
        self._open[id(request)] = request
        self._try(request)
        return request

    def ask_raft_leader(
        self, make: Callable[[int], WireMessage], on_reply: OnReply, timeout: float
    ) -> None:
        """Ask the leader of the name servers."""
        self.ask(self._raft_leader, make, on_reply, timeout, RAFT_LEADER_TIMEOUT_S)

    def _ask_leader(self, call: AskLeader) -> None:
        """Find the topic, then ask the leader of its queue."""
        if not isinstance(call.queue, int):
            kind = type(call.queue).__name__
            call.outcome.fail(InvalidRequest(f"a queue is a number, from 0 on, not {kind}"))
            return
        deadline, settle = self._turn.now + call.timeout, settling(call.outcome)

        def found(topic: TopicView | LogboomError) -> None:
            if isinstance(topic, LogboomError):
                call.outcome.fail(topic)
                return
            role = QueueLeader(self._leaders, call.topic, call.queue, call.topic_id)
            left = deadline - self._turn.now
            self.ask(role, call.message, settle, left, batches=call.batches)

        self._watching.want(call.topic, found, call.timeout, call.queue + 1)

    def _ask_node(self, call: AskNode) -> None:
        settle = settling(call.outcome)
        self._connections.request(call.endpoint, call.message, (), settle, call.timeout)

    def _try(self, request: RoutedRequest) -> None:
        request.stop()
        if request.ended:
            self._open.pop(id(request), None)
            return
        left = request.deadline - self._turn.now
        if left <= 0:
            self._fail(request, request.role.timed_out(request.last_error))
            return
        try:
            endpoint = request.role.endpoint()
        except LogboomError as error:
            self._fail(request, error)
            return
        if endpoint is None:
            # The next change of the metadata retries earlier.
            request.pause = self._turn.after(left, lambda: self._try(request))
            return
        left = min(left, request.attempt_s)
        request.endpoint = endpoint
        request.asked = self._connections.request(
            endpoint,
            request.make(max(1, int(left * 1000))),
            request.batches,
            lambda reply: self._answered(request, reply),
            left,
        )

    def _answered(self, request: RoutedRequest, reply: Reply) -> None:
        request.asked = None
        error = reply.error
        if error is None:
            self._end(request, reply)
            return
        request.failures += 1
        request.last_error = error
        verdict = request.role.refused(request.endpoint, error, request.failures)
        if verdict == "end":
            self._end(request, reply)
        elif verdict == "at once":
            self._try(request)
        else:
            left = max(request.deadline - self._turn.now, 0.0)
            delay = min(backoff(request.failures, self._turn.rng), left)
            request.backing_off = True
            request.pause = self._turn.after(delay, lambda: self._try(request))

    def _rerouted(self) -> None:
        """Ask elsewhere where a role has moved, instead of waiting for its former owner."""
        for request in list(self._open.values()):
            try:
                moved = request.role.has_left(request.endpoint)
            except LogboomError as error:
                self._fail(request, error)
                continue
            if moved if request.asked is not None else not request.backing_off:
                self._try(request)

    def _fail(self, request: RoutedRequest, error: LogboomError) -> None:
        self._end(request, Reply(None, None, (), error))

    def _end(self, request: RoutedRequest, reply: Reply) -> None:
        request.stop()
        if self._open.pop(id(request), None) is not None and not request.ended:
            request.ended = True
            request.on_reply(reply)


def settling(outcome: Promise[Answer]) -> OnReply:
    """Return a callback that resolves an outcome with a reply."""

    def settle(reply: Reply) -> None:
        if reply.message is None:
            text = "a reply without a message: please report it"
            outcome.fail(reply.error or InternalError(text))
        else:
            outcome.resolve((reply.message, list(reply.batches)))

    return settle
